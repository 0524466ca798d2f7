"""Three moments of the sample week in the terminal, as its transcript and its prompts have them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

from rich.table import Table
from rich.text import Text

from recto.cli.console import one_line, out, safe
from recto.config import load
from recto.config.factory import open_session
from recto.engine.projection import RESTORED
from recto.engine.prompt_diff import prompt_after
from recto.engine.session import Session
from recto.engine.window_view import entry_history, window_view
from recto.formats import entry_text
from recto.sample import MODEL, SESSION, sample_week
from recto.sample.script import load_script
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Entry

_LABEL = 15
_WRITTEN = {"record": "the working record", "notes": "the notes", "summary": "the summary"}


def play_week(now: int) -> None:
    """Generates the sample week, which ends the day before `now` (µs since 1970), and prints three moments of it."""
    with _sample(now) as session:
        budget = session.window.budget.input_budget
        _head(f"A coding agent's week: {len(session):,} entries, and prompts of at most {budget:,} tokens")
        _constraint_kept(session)
        _correction_recalled(session)
        _compaction_undone(session)


def _constraint_kept(session: Session) -> None:
    script = load_script()
    said = _user_message(session, script.instructions[1].request)
    question, answer = _exchange(session, script.later[-1].request)
    blocks = window_view(session.window, answer.seq - 1).blocks
    _head("1. A constraint is kept after its message was evicted")
    _say(said)
    _evicted(session, said)
    _say(question)
    for block in blocks:
        lines = [line for line in block.text.splitlines() if _matches(line, "lantern_prod")]
        if block.what in _WRITTEN and lines:
            _quote(f"in {_WRITTEN[block.what]}", lines[:1])
    _say(answer)


def _correction_recalled(session: Session) -> None:
    script = load_script()
    wrong = _user_message(session, script.instructions[0].request)
    correction = _user_message(session, script.correction.request)
    question, answer = _exchange(session, script.later[0].request)
    blocks = window_view(session.window, answer.seq - 1).blocks
    _head("2. A wrong statement is recalled together with its correction")
    for entry in (wrong, correction):
        _say(entry)
        _evicted(session, entry)
    _say(question)
    for block in blocks:
        if block.what == "recalled":
            texts = [entry_text(entry)[:40] for entry in (wrong, correction)]
            lines = [line for line in block.text.splitlines() if _matches(line, "superseded by", *texts)]
            _quote("recalled, for this question", lines)
    _say(answer)


def _compaction_undone(session: Session) -> None:
    window = session.window
    compactions = {entry.seq for entry in session.read() if entry.kind == "compaction"}
    restored, made = next(
        (entry, undone)
        for entry in session.read()
        if entry.kind == RESTORED and (undone := json.loads(entry.content)["decision"]) in compactions
    )
    first = json.loads(restored.content)["left"][0][0]
    decision = next(item for item in entry_history(window, first).decisions if item.decision.seq == made)
    _head("3. A compaction is undone")
    tokens = f"{decision.tokens_before:,} → {decision.tokens_after:,} tokens"
    _event(made, f"a summary replaces {decision.decision.messages} messages: {tokens}")
    _say(_user_message(session, load_script().undo.request))
    spans = json.loads(restored.content)["left"]
    evicted = [entry for first, last in spans for entry in session.read(first, last) if entry.kind == MESSAGE]
    sent = prompt_after(window, restored.seq).messages
    exact = sum(entry.content in sent for entry in evicted)
    _event(restored.seq, f"restored: {exact} of {len(evicted)} messages are in the prompt again, byte for byte")


def _user_message(session: Session, text: str) -> Entry:
    return next(entry for entry in session.read() if entry.role == "user" and entry_text(entry) == text)


def _exchange(session: Session, text: str) -> tuple[Entry, Entry]:
    """A question and its answer."""
    question = _user_message(session, text)
    answer = next(entry for entry in session.read(question.seq) if entry.kind == MESSAGE and entry.role == "assistant")
    return question, answer


def _matches(line: str, *texts: str) -> bool:
    return any(text in line for text in texts)


def _evicted(session: Session, entry: Entry) -> None:
    """Prints which decision evicted an entry first."""
    made = entry_history(session.window, entry.seq).decisions[-1]
    before, after = f"{made.tokens_before:,}", f"{made.tokens_after:,}"
    _event(
        made.decision.seq, f"{made.action} by {made.decision.policy}: the prompt goes from {before} to {after} tokens"
    )


def _head(text: str) -> None:
    out.print()
    out.print(Text(text, style="bold"))


def _say(entry: Entry) -> None:
    style = "cyan" if entry.role == "user" else "green"
    _line(f"{entry.seq:>5} {entry.role}", style, Text(_plain(entry_text(entry))))


def _event(seq: int, text: str) -> None:
    _line(f"{seq:>5} decision", "yellow", Text(_plain(text)))


def _quote(where: str, lines: list[str]) -> None:
    _line("      prompt", "magenta", Text(f"{where}:"))
    for line in lines:
        _line("", "", Text(_plain(line), style="italic"))


def _plain(text: str) -> str:
    return safe(one_line(text, 500))


def _line(label: str, style: str, text: Text) -> None:
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=_LABEL)
    row.add_column()
    row.add_row(Text(label, style=f"bold {style}".strip()), text)
    out.print(row)


@contextmanager
def _sample(now: int) -> Iterator[Session]:
    arguments = {"session": SESSION, "model": MODEL, "recall": {"embedder": {"use": "none"}, "background": False}}
    with closing(MemoryStore()) as store:
        store.append(SESSION, sample_week(now))
        with closing(open_session(load(arguments=arguments), store)) as session:
            yield session
