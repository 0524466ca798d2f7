"""A conversation gone through again in another window: message by message, with a prompt wherever the model was asked.

What was said then is fed as it was said; what was decided then is decided anew. It is not known here which settings
the window has, nor in which store it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, NamedTuple

from recto.context.compaction.fidelity import Question
from recto.context.compaction.protocols import ChatModel
from recto.engine.projection import NOTE
from recto.engine.session import Session
from recto.errors import WindowOverflow
from recto.formats import DEFAULT_FORMAT, format_named, read
from recto.lab.readability import Case, ProbeOutcome, Where, outcome
from recto.transcript.entries import MESSAGE, Draft, Entry

if TYPE_CHECKING:
    from recto.engine.prompt_builder import Prompt

_FIELDS = tuple(field.name for field in fields(Draft))
_LATER = 1_000_000
"""Microseconds between the last message and a question."""


class ReplayStep(NamedTuple):
    """The next entry to be fed."""

    entry: Entry
    answers: tuple[Entry, ...] = ()
    """Where the model was asked before this entry: all the messages it answered with, of which this is the first."""


def steps(entries: Iterable[Entry]) -> Iterator[ReplayStep]:
    """What was said and noted down, one by one, with the places where the model was asked."""
    answer: list[Entry] = []
    is_asked = False
    for entry in entries:
        if entry.kind not in (MESSAGE, NOTE):
            continue
        if entry.kind == MESSAGE and entry.role != "assistant":
            yield from _steps_of(answer)
            answer, is_asked = [], True
            yield ReplayStep(entry)
        elif answer or (is_asked and entry.kind == MESSAGE):
            answer.append(entry)
            is_asked = False
        else:
            yield ReplayStep(entry)
    yield from _steps_of(answer)


def _steps_of(answer: Sequence[Entry]) -> Iterator[ReplayStep]:
    for place, entry in enumerate(answer):
        yield ReplayStep(entry, () if place else tuple(one for one in answer if one.kind == MESSAGE))


def replay(
    session: Session,
    entries: Iterable[Entry],
    advance: Callable[[int], object] = lambda by: None,
    asked: Callable[[Prompt | WindowOverflow, Sequence[Entry]], object] = lambda prompt, answers: None,
    said: Callable[[int, Entry], object] = lambda seq, entry: None,
) -> dict[int, int]:
    """Feeds what was said; where each entry of it stands now, by where it stood.

    `asked` is told of every prompt that the model is asked with, or why there is none, and what was answered then: the
    next message may be shorter, so it goes on all the same. `said` is told of every message and where it stands now.
    """
    places: dict[int, int] = {}
    for entry, answers in steps(_passing(entries, advance)):
        if answers:
            asked(_prompt(session), answers)
        draft = Draft(**{name: getattr(entry, name) for name in _FIELDS})
        places[entry.seq] = place = session.store.append(session.key, [replace(draft, key=None)])[0].seq
        if entry.kind == MESSAGE:
            said(place, entry)
    return places


def _passing(entries: Iterable[Entry], advance: Callable[[int], object]) -> Iterator[Entry]:
    for entry in entries:
        advance(1)
        yield entry


def _prompt(session: Session) -> Prompt | WindowOverflow:
    try:
        return session.prompt()
    except WindowOverflow as error:
        return error


def ask(session: Session, case: Case, places: Mapping[int, int], judge: ChatModel | None = None) -> ProbeOutcome:
    """Asks a question as the next message, and looks whether what it needs is in the prompt, or lets a judge tell."""
    _append_question(session, case.ask)
    try:
        prompt = session.prompt()
    except WindowOverflow as error:
        return ProbeOutcome(score=0.0, where="not", tokens=error.tokens, trouble=str(error))
    found = outcome(case, _parts(session, prompt, case.ask), _entries(session, prompt, case, places), prompt.tokens)
    if judge is None:
        return found
    from recto.engine.llm_judge import judge_fidelity  # noqa: PLC0415  # only for who has a judge

    (answered,) = judge_fidelity(session.window, judge, [Question(text=case.ask, answer=case.known_answer)]).answers
    return replace(found, score=answered.score, trouble=answered.trouble)


def _append_question(session: Session, text: str) -> None:
    last = next((entry for entry in reversed(session.tail(500)) if entry.kind == MESSAGE), None)
    wire = last.wire if last is not None and last.wire else DEFAULT_FORMAT.name
    raw = format_named(wire).text_message("user", text)
    draft = Draft(
        id=f"question-{len(session)}",
        ts=(last.ts if last is not None else 0) + _LATER,
        role="user",
        content=raw,
        wire=wire,
        tokens=session.meter.message(read(raw, wire)),
        counter=session.meter.name,
    )
    session.store.append(session.key, [draft])


def _parts(session: Session, prompt: Prompt, question: str) -> dict[Where, str]:
    """What a prompt says, by place; the question itself is no place."""
    extras, state = session.window.builder.extras, session.window.state
    recalled = extras.recalled.text if extras.recalled else ""
    written = [state.summary.text] if state.summary else []
    written += [extras.handoff.text] if extras.handoff else []
    said = "\n".join(read(raw, prompt.built.wire).text for raw in (*prompt.built.system, *prompt.built.messages))
    for part in (recalled, *written, question):
        before, found, after = said.rpartition(part) if part else (said, "", "")
        said = f"{before}\n{after}" if found else said
    return {"prompt": said, "summary": "\n".join(written), "recalled": recalled}


def _entries(session: Session, prompt: Prompt, case: Case, places: Mapping[int, int]) -> dict[int, Where]:
    """Where the entries are that a question needs."""
    state = session.window.state
    back = {hit.seq for hit in prompt.recalled if hit.session == session.key}
    found: dict[int, Where] = {}
    for seq in case.evidence:
        now = places.get(seq, 0)
        whole = now in state.messages and now not in state.shortened
        found[seq] = "prompt" if whole else "recalled" if now in back else "not"
    return found
