"""Replays a recorded conversation in another window: message by message, with a prompt before every model call.

Recorded messages are appended unchanged; the decisions of the window are made again. The caller chooses the settings
and the store.
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
from recto.lab.readability import Case, ProbeOutcome, Where, score_case
from recto.recall.stemmer import shared_lexicon
from recto.recall.term_rows import with_row
from recto.transcript.entries import MESSAGE, Draft, Entry

if TYPE_CHECKING:
    from recto.engine.prompt_builder import Prompt

_FIELDS = tuple(field.name for field in fields(Draft))
_LATER = 1_000_000
"""Microseconds between the last message and a question."""


class ReplayStep(NamedTuple):
    """The next entry to append."""

    entry: Entry
    answers: tuple[Entry, ...] = ()
    """If the model was called before this entry: all messages of its response, of which this entry is the first."""


def replay_steps(entries: Iterable[Entry]) -> Iterator[ReplayStep]:
    """Yields the recorded messages and notes in order, and marks where the model was called."""
    response: list[Entry] = []
    is_waiting = False
    for entry in entries:
        if entry.kind not in (MESSAGE, NOTE):
            continue
        if entry.kind == MESSAGE and entry.role != "assistant":
            yield from _steps_of(response)
            response, is_waiting = [], True
            yield ReplayStep(entry)
        elif response or (is_waiting and entry.kind == MESSAGE):
            response.append(entry)
            is_waiting = False
        else:
            yield ReplayStep(entry)
    yield from _steps_of(response)


def _steps_of(response: Sequence[Entry]) -> Iterator[ReplayStep]:
    for place, entry in enumerate(response):
        yield ReplayStep(entry, () if place else tuple(message for message in response if message.kind == MESSAGE))


def replay(
    session: Session,
    entries: Iterable[Entry],
    advance: Callable[[int], object] = lambda by: None,
    on_prompt: Callable[[Prompt | WindowOverflow, Sequence[Entry]], object] = lambda prompt, answers: None,
    on_message: Callable[[int, Entry], object] = lambda seq, entry: None,
) -> dict[int, int]:
    """Appends the recorded messages to a session, and builds a prompt wherever the model was called.

    Args:
        advance: Called with 1 for every recorded entry.
        on_prompt: Called with every prompt, or with the error if none fitted (a later prompt may fit), and with the
            recorded response.
        on_message: Called with every message and its number in the session.

    Returns:
        The number of each entry in the session, by its number in the recording.
    """
    seqs: dict[int, int] = {}
    for entry, answers in replay_steps(_passing(entries, advance)):
        if answers:
            on_prompt(_prompt(session), answers)
        draft = with_row(Draft(**{name: getattr(entry, name) for name in _FIELDS}), shared_lexicon())
        seqs[entry.seq] = seq = session.store.append(session.key, [replace(draft, key=None)])[0].seq
        if entry.kind == MESSAGE:
            on_message(seq, entry)
    return seqs


def _passing(entries: Iterable[Entry], advance: Callable[[int], object]) -> Iterator[Entry]:
    for entry in entries:
        advance(1)
        yield entry


def _prompt(session: Session) -> Prompt | WindowOverflow:
    try:
        return session.prompt()
    except WindowOverflow as error:
        return error


def probe(session: Session, case: Case, seqs: Mapping[int, int], judge: ChatModel | None = None) -> ProbeOutcome:
    """Asks a question as the next message and checks whether the prompt holds what it needs, or lets a judge score
    it.
    """
    _append_question(session, case.ask)
    try:
        prompt = session.prompt()
    except WindowOverflow as error:
        return ProbeOutcome(score=0.0, where="not", tokens=error.tokens, trouble=str(error))
    result = score_case(case, _parts(session, prompt, case.ask), _entries(session, prompt, case, seqs), prompt.tokens)
    if judge is None:
        return result
    from recto.engine.llm_judge import judge_fidelity  # noqa: PLC0415  # only with a judge

    (judgement,) = judge_fidelity(session.window, judge, [Question(text=case.ask, answer=case.known_answer)]).answers
    return replace(result, score=judgement.score, trouble=judgement.trouble)


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
    session.store.append(session.key, [with_row(draft, shared_lexicon())])


def _parts(session: Session, prompt: Prompt, question: str) -> dict[Where, str]:
    """Splits the text of a prompt by place; the question itself is removed."""
    extras, state = session.window.builder.extras, session.window.state
    recalled = extras.recalled.text if extras.recalled else ""
    written = [state.summary.text] if state.summary else []
    written += [extras.handoff.text] if extras.handoff else []
    text = "\n".join(read(raw, prompt.built.wire).text for raw in (*prompt.built.system, *prompt.built.messages))
    for part in (recalled, *written, question):
        before, match, after = text.rpartition(part) if part else (text, "", "")
        text = f"{before}\n{after}" if match else text
    return {"prompt": text, "summary": "\n".join(written), "recalled": recalled}


def _entries(session: Session, prompt: Prompt, case: Case, seqs: Mapping[int, int]) -> dict[int, Where]:
    """Returns where each entry is that a question needs."""
    state = session.window.state
    recalled = {hit.seq for hit in prompt.recalled if hit.session == session.key}
    places: dict[int, Where] = {}
    for seq in case.evidence:
        seq_now = seqs.get(seq, 0)
        is_complete = seq_now in state.messages and seq_now not in state.shortened
        places[seq] = "prompt" if is_complete else "recalled" if seq_now in recalled else "not"
    return places
