"""Compares a history with a stored session where the client does not send its messages as it got them.

Clients strip reasoning from the assistant's messages, shorten them or wrap them, and clear old tool results. Such a
history is aligned by its user and tool messages: all of them have to be there, in order. Messages of the assistant have
to be derived from the stored ones: the same calls, and words that are contained in the other's. A history that an
edit or another conversation explains as well is not aligned: a wrong session is worse than a new one.

Coding agents add reminders of their own (`<system-reminder>`) to what the user says, and not the same ones when they
resume a session. Reminders are not compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from recto.formats import read
from recto.formats.message import Message
from recto.text.reminders import without_reminders
from recto.transcript.entries import Entry
from recto.transcript.hidden import content_as_sent

_WORD = re.compile(r"\w+")
_MIN_WORDS = 3
"""Words that two different texts have in common, at least, if one is derived from the other."""


@dataclass(slots=True)
class _Round:
    """A message that is not the assistant's, and what the assistant said next."""

    prompt: Message | None
    answers: list[Message] = field(default_factory=list)
    last: Entry | None = None
    """The last stored message of the assistant."""


def aligned_entry(stored: Sequence[Entry], sent: Sequence[bytes], wire: str) -> Entry | None:
    """Return the stored message up to which a history is stored; None where it is not.

    Args:
        stored: The messages of a session, from its first one on.
        sent: The history of a client, up to and with a message of the assistant.
        wire: The format of the history.
    """
    if any(entry.wire != wire for entry in stored):
        return None
    history = _rounds([(read(raw, wire), None) for raw in sent])
    session = _rounds([(read(content_as_sent(entry), wire), entry) for entry in stored])[: len(history)]
    if len(session) < len(history) or not all(map(_matches, session, history)):
        return None
    return session[-1].last


def opening_name(seed: bytes, sent: Sequence[bytes], wire: str) -> str:
    """Return the lineage name of what precedes the first response in a history, whatever reminders it has."""
    messages = [read(raw, wire) for raw in sent]
    text = json.dumps([(message.role, _parts(message)) for message in messages])
    return f"opening/{hashlib.sha256(seed + text.encode()).hexdigest()}"


def _rounds(messages: Sequence[tuple[Message, Entry | None]]) -> list[_Round]:
    found: list[_Round] = []
    for message, entry in messages:
        if message.role != "assistant":
            found.append(_Round(message))
            continue
        if not found:
            found.append(_Round(None))
        found[-1].answers.append(message)
        found[-1].last = entry
    return found


def _matches(stored: _Round, sent: _Round) -> bool:
    if (stored.prompt is None) != (sent.prompt is None):
        return False
    if stored.prompt is not None and sent.prompt is not None and not _same_question(stored.prompt, sent.prompt):
        return False
    return _is_derived(stored.answers, sent.answers)


def _same_question(stored: Message, sent: Message) -> bool:
    """Whether two messages of the user or a tool are the same, except that results may have been cleared."""
    if stored.role != sent.role or _parts(stored) != _parts(sent):
        return False
    pairs = zip(stored.results, sent.results, strict=False)
    return len(stored.results) == len(sent.results) and all(
        before.call_id == after.call_id and (before.text == after.text or len(after.text) < len(before.text))
        for before, after in pairs
    )


def _parts(message: Message) -> list[tuple[str, str, int]]:
    """Return what a message holds beside tool results, beside the media of results and beside reminders."""
    if message.results:
        return [
            ("text", text, 0)
            for part in message.parts
            if part.kind == "text" and (text := without_reminders(part.text))
        ]
    return [
        (part.kind, text, part.weight)
        for part in message.parts
        if (text := without_reminders(part.text)) or part.kind not in ("other", "text")
    ]


def _is_derived(stored: Sequence[Message], sent: Sequence[Message]) -> bool:
    """Whether what a client sends as the assistant's is what the assistant said, or made from it."""
    if _calls(stored) != _calls(sent):
        return False
    before, after = _words(stored), _words(sent)
    if before == after:
        return True
    if not before or not after:
        return bool(_calls(stored))
    short, long = sorted((before, after), key=len)
    return len(short) >= _MIN_WORDS and _contains(long, short)


def _calls(messages: Sequence[Message]) -> list[tuple[str, str, str]]:
    calls = [call for message in messages for call in message.calls]
    return [(call.call_id, call.name, _arguments(call.text)) for call in calls]


def _arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _words(messages: Sequence[Message]) -> list[str]:
    texts = [part.text for message in messages for part in message.parts if part.kind == "text"]
    return [word for text in texts for word in _WORD.findall(text.lower())]


def _contains(long: Sequence[str], short: Sequence[str]) -> bool:
    """Whether the words are in the longer text, one after the other."""
    return f" {' '.join(short)} " in f" {' '.join(long)} "
