"""`recto demo`: a short guided tour over a long scripted session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import perf_counter

import click
from rich.table import Table
from rich.text import Text

from recto.cli.console import one_line, out, progress, safe
from recto.config import load
from recto.config.factory import make_importer, model_card, open_session, open_store
from recto.engine.exporter import export_recto
from recto.engine.session import Session
from recto.engine.verification import verify
from recto.formats.entry_text import entry_text
from recto.recall.quoting import HEADER
from recto.testing import scripted_session
from recto.transcript.entries import MESSAGE, Entry

_MODEL = "gpt-4o"
_SESSION = "agent:demo:main"
_STORE = "transcript.db"
_CHAT = "agent:demo:chat"
_SMALL = 3_000
"""Context window of the recall demo: a few messages fill it."""
_FILLER_TURNS = 45
_STATEMENTS = (
    "Good morning. Let us go through the open things.",
    "Marlow & Sons want their invoices on the 1st of each month.",
    "No, that was wrong: Marlow & Sons want their invoices on the 5th of each month, not on the 1st.",
)
_QUESTION = "On which day do we send the invoices to Marlow?"
_PLACES = ("Leeds", "Porto", "Graz", "Turku", "Ghent")
_THINGS = ("roof", "lease", "heating", "garden", "lift", "parking", "insurance")
_ANSWER = (
    "The {thing} in {place} is as it was. The report came on time, the costs are what we planned, and nobody there has "
    "complained. I would look at it again next week and leave it alone until then; there is nothing to decide today."
)


@click.command("demo")
@click.option("--exchanges", default=400, show_default=True, type=click.IntRange(10, 5000), help="How long a session.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep what it makes in this folder.")
def demo_command(exchanges: int, keep: Path | None) -> None:
    """Shows Recto at work on a long session that it makes up itself.

    \b
    Examples:
      recto demo
      recto demo --keep demo && recto --store demo/transcript.db sessions
    """
    with _folder(keep) as folder:
        with _open_session(folder / _STORE) as session:
            _fill_session(session, exchanges)
            _show_tokens(session)
            _show_undo(session)
            _show_recall(folder)
            _show_compaction(session)
            _show_retry(session)
            _show_export(session, folder)
        _show_verification(folder)
    out.print()
    _print_line("`recto --help` lists the commands, docs/ tells the rest.")


def _fill_session(session: Session, exchanges: int) -> None:
    _print_line(f"1. An agent works: {exchanges} exchanges with tool calls and long results.")
    _print_line("   Every message is durable before `append` returns, and comes back byte for byte. Before each answer")
    _print_line("   of the model, `prompt` gives what to send: it fits, it is valid, it changes seldom.")
    messages = list(scripted_session(exchanges=exchanges))
    largest = prompts = decisions = 0
    start = perf_counter()
    with progress("working", len(messages)) as advance:
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = session.prompt()
                prompts, decisions = prompts + 1, decisions + bool(prompt.decisions)
                largest = max(largest, prompt.tokens)
            session.append(message, key=f"demo-{place}")
            advance(1)
    seconds = perf_counter() - start
    input_budget = session.window.budget.input_budget
    _print_line(
        f"   {len(session):,} entries and {prompts:,} prompts in {seconds:.1f} s. "
        f"The largest prompt had {largest:,} of the"
    )
    _print_line(
        f"   {input_budget:,} tokens there is room for; {decisions} decisions took the oldest exchanges out. "
        "The last entries:"
    )
    for entry in session.tail(3):
        text = one_line(entry_text(entry), min(out.width, 100) - 22)
        out.print(Text(f"   {entry.seq:>6} {entry.role:<10} {text}", style="dim"), soft_wrap=True)


def _show_tokens(session: Session) -> None:
    card = model_card(load(arguments={"model": _MODEL}))
    by_role: dict[str, int] = {}
    for entry in (entry for entry in session.read() if entry.kind == MESSAGE):
        by_role[entry.role] = by_role.get(entry.role, 0) + entry.tokens
    total = sum(by_role.values())
    _print_line(f"2. Tokens, counted once by {session.meter.name} and kept with each entry:")
    table = Table("role", "tokens", "share", box=None, padding=(0, 3))
    for role, tokens in sorted(by_role.items(), key=lambda pair: -pair[1]):
        table.add_row(role, f"{tokens:>9,}", f"{tokens / total:>6.1%}")
    out.print(table)
    _print_line(
        f"   {total:,} tokens: {total / card.window:.1f} times the {card.window:,} that {card.name} can see at once."
    )


def _show_undo(session: Session) -> None:
    _print_line("3. The last decision, from the record, and undone:")
    decision = next(iter(session.report().decisions), None)
    if decision is None:
        _print_line("   nothing has left yet: the session still fits.")
        return
    _print_line(f"   entry {decision.seq:,}: {decision.kind}, {decision.messages} messages, {decision.frees:,} tokens")
    _print_line(f"   because: {one_line(decision.reason, 80)}")
    before = session.window.state.tokens
    restored = session.restore(decision.seq)
    after_restore = session.window.state.tokens
    session.redo(restored.seq)
    after_redo = session.window.state.tokens
    _print_line(
        f"   messages in the prompt: {before:,} tokens; restored: {after_restore:,}; done again: {after_redo:,}"
    )


def _show_recall(folder: Path) -> None:
    _print_line(
        "4. Something is said early, taken back, and leaves the prompt of a small window. Then it is asked for:"
    )
    small = {_MODEL: {"window": _SMALL, "max_input": _SMALL}}
    arguments = {"store": str(folder / _STORE), "session": _CHAT, "model": _MODEL, "models": small}
    with closing(open_session(load(arguments=arguments))) as chat:
        chat.append({"role": "system", "content": "You keep the books of a small firm."})
        statements = [_turn(chat, text, "I have noted it.") for text in _STATEMENTS][1:]
        with progress("talking", _FILLER_TURNS) as advance:
            for number in range(_FILLER_TURNS):
                place, thing = _PLACES[number % len(_PLACES)], _THINGS[number % len(_THINGS)]
                _turn(chat, f"How is the {thing} in {place}, week {number}?", _ANSWER.format(thing=thing, place=place))
                advance(1)
        evicted = all(entry.seq not in chat.window.state.messages for entry in statements)
        chat.append({"role": "user", "content": _QUESTION})
        prompt = chat.prompt()
    where = "left the prompt long ago" if evicted else "are still in the prompt"
    _print_line(
        f"   entries {' and '.join(str(entry.seq) for entry in statements)} {where}; the model is asked: {_QUESTION}"
    )
    if not prompt.recalled:
        _print_line("   nothing came back: nothing was relevant enough.")
        return
    quoted = next(str(message["content"]) for message in prompt.messages if HEADER in str(message["content"]))
    _print_line(f"   behind the question stands, for this turn ({prompt.tokens:,} tokens in all):")
    for line in quoted.splitlines():
        out.print(Text(f"   {safe(line)}", style="dim"), soft_wrap=True)


def _turn(session: Session, request: str, answer: str) -> Entry:
    """Appends one exchange, as an agent does."""
    entry = session.append({"role": "user", "content": request})
    session.prompt()
    session.append({"role": "assistant", "content": answer})
    return entry


def _show_compaction(session: Session) -> None:
    _print_line(
        "5. All but the newest messages are made one short text, from the messages themselves and checked against them:"
    )
    decisions = session.compact("the failing tests")
    compression = next(iter(session.report().compressions), None)
    if not decisions or compression is None:
        _print_line("   there is too little to be worth it.")
        return
    lost = ", ".join(f"{count:,} {kind}s" for kind, count in compression.lost.items() if count)
    _print_line(
        f"   {compression.tokens_from:,} tokens to {compression.tokens_to:,}, "
        f"fidelity {compression.fidelity or 0:.2f}; not in the prompt any more, but kept: {lost}"
    )
    summary = session.window.state.summary
    for line in summary.text.splitlines()[1:13] if summary else ():
        out.print(Text(f"   {one_line(line, min(out.width, 110) - 4)}", style="dim"), soft_wrap=True)
    session.restore(decisions[0].seq)
    _print_line("   and undone: every message is in again.")


def _show_retry(session: Session) -> None:
    _print_line("6. The network failed and the agent sends its last message again, under the same key:")
    before = session.head
    last = next(entry for entry in reversed(session.tail(20)) if entry.key and entry.kind == MESSAGE)
    again = session.append(last.content, key=(last.key or "").removesuffix("/0"))
    unchanged = again.id == last.id and session.head == before
    _print_line(
        f"   {'nothing was stored twice' if unchanged else 'it was stored twice!'}: still {len(session):,} entries."
    )


def _show_export(session: Session, folder: Path) -> None:
    _print_line("7. Out to a file, into another store, and the chains are compared:")
    file = folder / "session.jsonl"
    with file.open("wb") as stream:
        stream.writelines(export_recto(session.store, [session.key]))
    settings = load(arguments={"store": str(folder / "second.db"), "model": _MODEL})
    with closing(open_store(settings)) as second:
        make_importer(settings, second).import_file(file)
        same = second.head(session.key) == session.head
    verdict = "the same" if same else "different!"
    _print_line(f"   {file.stat().st_size / 1e6:.1f} MB; the heads are {verdict}: {_short(session)}")


def _show_verification(folder: Path) -> None:
    _print_line("8. Somebody changes one word in a copy of the file, behind Recto's back, and `verify` looks at both:")
    copy = folder / "tampered.db"
    for name in (f"{_STORE}", f"{_STORE}-heads"):
        shutil.copy(folder / name, folder / name.replace(_STORE, copy.name))
    stored = copy.read_bytes()
    copy.write_bytes(stored.replace(b"Never touch migrations/", b"Always edit migrations/", 1))
    for path in (folder / _STORE, copy):
        with closing(open_store(load(arguments={"store": str(path)}), create=False)) as store:
            result = verify(store)
        if result.ok:
            _print_line(f"   {path.name}: {result.entries:,} entries, all as stored", "green")
        for finding in result.findings:
            _print_line(f"   {path.name}: {finding.problem}", "red")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="recto-demo-") as folder:
            yield Path(folder)
        return
    if keep.exists() and any(keep.iterdir()):
        raise click.UsageError(f"'{keep}' is not empty")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep


@contextmanager
def _open_session(path: Path) -> Iterator[Session]:
    """Opens the long session without vectors and injection, to keep the demo short."""
    recall = {"inject": False, "embedder": {"use": "none"}}
    settings = load(arguments={"store": str(path), "session": _SESSION, "model": _MODEL, "recall": recall})
    with closing(open_session(settings)) as session:
        yield session


def _short(session: Session) -> str:
    return f"entry {session.head.seq:,}, {session.head.hash.hex()[:16]}…"


def _print_line(text: str, style: str = "") -> None:
    if text[:1].isdigit():
        out.print()
        style = "bold"
    out.print(Text(text, style=style), soft_wrap=True)
