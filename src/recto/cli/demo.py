"""`recto demo`: a short guided walk over a long tool-using session that Recto makes up by itself."""

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
"""Tokens of the window in which recall is shown: a few messages are enough to fill it."""
_TALK = 45
_SAID = (
    "Good morning. Let us go through the open things.",
    "Marlow & Sons want their invoices on the 1st of each month.",
    "No, that was wrong: Marlow & Sons want their invoices on the 5th of each month, not on the 1st.",
)
_ASKED = "On which day do we send the invoices to Marlow?"
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
        with _opened(folder / _STORE) as session:
            _fill(session, exchanges)
            _weigh(session)
            _undo(session)
            _remember(folder)
            _compact(session)
            _retry(session)
            _move(session, folder)
        _tamper(folder)
    out.print()
    _say("`recto --help` lists the commands, docs/ tells the rest.")


def _fill(session: Session, exchanges: int) -> None:
    _say(f"1. An agent works: {exchanges} exchanges with tool calls and long results.")
    _say("   Every message is durable before `append` returns, and comes back byte for byte. Before each answer")
    _say("   of the model, `prompt` gives what to send: it fits, it is valid, it changes seldom.")
    messages = list(scripted_session(exchanges=exchanges))
    largest = asked = decided = 0
    start = perf_counter()
    with progress("working", len(messages)) as advance:
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                prompt = session.prompt()
                asked, decided = asked + 1, decided + bool(prompt.decisions)
                largest = max(largest, prompt.tokens)
            session.append(message, key=f"demo-{place}")
            advance(1)
    took = perf_counter() - start
    room = session.window.budget.input_budget
    _say(
        f"   {len(session):,} entries and {asked:,} prompts in {took:.1f} s. The largest prompt had {largest:,} of the"
    )
    _say(f"   {room:,} tokens there is room for; {decided} decisions took the oldest exchanges out. The last entries:")
    for entry in session.tail(3):
        text = one_line(entry_text(entry), min(out.width, 100) - 22)
        out.print(Text(f"   {entry.seq:>6} {entry.role:<10} {text}", style="dim"), soft_wrap=True)


def _weigh(session: Session) -> None:
    card = model_card(load(arguments={"model": _MODEL}))
    by_role: dict[str, int] = {}
    for entry in (entry for entry in session.read() if entry.kind == MESSAGE):
        by_role[entry.role] = by_role.get(entry.role, 0) + entry.tokens
    total = sum(by_role.values())
    _say(f"2. Tokens, counted once by {session.meter.name} and kept with each entry:")
    table = Table("role", "tokens", "share", box=None, padding=(0, 3))
    for role, tokens in sorted(by_role.items(), key=lambda pair: -pair[1]):
        table.add_row(role, f"{tokens:>9,}", f"{tokens / total:>6.1%}")
    out.print(table)
    _say(f"   {total:,} tokens: {total / card.window:.1f} times the {card.window:,} that {card.name} can see at once.")


def _undo(session: Session) -> None:
    _say("3. The last decision, from the record, and undone:")
    decided = next(iter(session.report().decisions), None)
    if decided is None:
        _say("   nothing has left yet: the session still fits.")
        return
    _say(f"   entry {decided.seq:,}: {decided.kind}, {decided.messages} messages, {decided.frees:,} tokens")
    _say(f"   because: {one_line(decided.reason, 80)}")
    before = session.window.state.tokens
    restored = session.restore(decided.seq)
    again = session.window.state.tokens
    session.redo(restored.seq)
    now = session.window.state.tokens
    _say(f"   messages in the prompt: {before:,} tokens; restored: {again:,}; done again: {now:,}")


def _remember(folder: Path) -> None:
    _say("4. Something is said early, taken back, and leaves the prompt of a small window. Then it is asked for:")
    small = {_MODEL: {"window": _SMALL, "max_input": _SMALL}}
    named = {"store": str(folder / _STORE), "session": _CHAT, "model": _MODEL, "models": small}
    with closing(open_session(load(arguments=named))) as chat:
        chat.append({"role": "system", "content": "You keep the books of a small firm."})
        said = [_turn(chat, text, "I have noted it.") for text in _SAID][1:]
        with progress("talking", _TALK) as advance:
            for number in range(_TALK):
                place, thing = _PLACES[number % len(_PLACES)], _THINGS[number % len(_THINGS)]
                _turn(chat, f"How is the {thing} in {place}, week {number}?", _ANSWER.format(thing=thing, place=place))
                advance(1)
        gone = all(entry.seq not in chat.window.state.messages for entry in said)
        chat.append({"role": "user", "content": _ASKED})
        prompt = chat.prompt()
    where = "left the prompt long ago" if gone else "are still in the prompt"
    _say(f"   entries {' and '.join(str(entry.seq) for entry in said)} {where}; the model is asked: {_ASKED}")
    if not prompt.recalled:
        _say("   nothing came back: nothing was relevant enough.")
        return
    quoted = next(str(message["content"]) for message in prompt.messages if HEADER in str(message["content"]))
    _say(f"   behind the question stands, for this turn ({prompt.tokens:,} tokens in all):")
    for line in quoted.splitlines():
        out.print(Text(f"   {safe(line)}", style="dim"), soft_wrap=True)


def _turn(session: Session, said: str, answer: str) -> Entry:
    """One exchange, as an agent makes it."""
    entry = session.append({"role": "user", "content": said})
    session.prompt()
    session.append({"role": "assistant", "content": answer})
    return entry


def _compact(session: Session) -> None:
    _say(
        "5. All but the newest messages are made one short text, from the messages themselves and checked against them:"
    )
    decisions = session.compact("the failing tests")
    made = next(iter(session.report().compressions), None)
    if not decisions or made is None:
        _say("   there is too little to be worth it.")
        return
    _say(
        f"   {made.tokens_from:,} tokens to {made.tokens_to:,}, fidelity {made.fidelity or 0:.2f}; "
        f"not in the prompt any more, but kept: {', '.join(f'{n:,} {kind}s' for kind, n in made.lost.items() if n)}"
    )
    summary = session.window.state.summary
    for line in summary.text.splitlines()[1:13] if summary else ():
        out.print(Text(f"   {one_line(line, min(out.width, 110) - 4)}", style="dim"), soft_wrap=True)
    session.restore(decisions[0].seq)
    _say("   and undone: every message is in again.")


def _retry(session: Session) -> None:
    _say("6. The network failed and the agent sends its last message again, under the same key:")
    before = session.head
    last = next(entry for entry in reversed(session.tail(20)) if entry.key and entry.kind == MESSAGE)
    again = session.append(last.content, key=(last.key or "").removesuffix("/0"))
    kept = again.id == last.id and session.head == before
    _say(f"   {'nothing was stored twice' if kept else 'it was stored twice!'}: still {len(session):,} entries.")


def _move(session: Session, folder: Path) -> None:
    _say("7. Out to a file, into another store, and the chains are compared:")
    file = folder / "session.jsonl"
    with file.open("wb") as stream:
        stream.writelines(export_recto(session.store, [session.key]))
    settings = load(arguments={"store": str(folder / "second.db"), "model": _MODEL})
    with closing(open_store(settings)) as second:
        make_importer(settings, second).import_file(file)
        same = second.head(session.key) == session.head
    verdict = "the same" if same else "different!"
    _say(f"   {file.stat().st_size / 1e6:.1f} MB; the heads are {verdict}: {_short(session)}")


def _tamper(folder: Path) -> None:
    _say("8. Somebody changes one word in a copy of the file, behind Recto's back, and `verify` looks at both:")
    copy = folder / "tampered.db"
    for name in (f"{_STORE}", f"{_STORE}-heads"):
        shutil.copy(folder / name, folder / name.replace(_STORE, copy.name))
    stored = copy.read_bytes()
    copy.write_bytes(stored.replace(b"Never touch migrations/", b"Always edit migrations/", 1))
    for path in (folder / _STORE, copy):
        with closing(open_store(load(arguments={"store": str(path)}), create=False)) as store:
            result = verify(store)
        if result.ok:
            _say(f"   {path.name}: {result.entries:,} entries, all as stored", "green")
        for found in result.findings:
            _say(f"   {path.name}: {found.problem}", "red")


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
def _opened(path: Path) -> Iterator[Session]:
    """The long session is indexed by its words alone, and nothing is recalled in it: the demo should be short."""
    recall = {"inject": False, "embedder": {"use": "none"}}
    settings = load(arguments={"store": str(path), "session": _SESSION, "model": _MODEL, "recall": recall})
    with closing(open_session(settings)) as session:
        yield session


def _short(session: Session) -> str:
    return f"entry {session.head.seq:,}, {session.head.hash.hex()[:16]}…"


def _say(text: str, style: str = "") -> None:
    if text[:1].isdigit():
        out.print()
        style = "bold"
    out.print(Text(text, style=style), soft_wrap=True)
