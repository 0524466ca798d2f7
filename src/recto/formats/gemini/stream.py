"""Captures Gemini streams: assembles one content for each candidate from the parts of its chunks.

A chunk is a complete response with the next parts. Pieces of one text become one text; every other part stays as it
came, byte for byte, and so does a part with a signature, which belongs to it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recto.formats.gemini.message import named
from recto.formats.json_spans import quoted
from recto.formats.message import object_in, text_in
from recto.formats.response import ProviderReply, source_at, usage_in
from recto.formats.streaming import (
    MAX_CAPTURED_BYTES,
    RepeatedEvent,
    TextBuffer,
    code_in,
    error_in,
    event_object,
    index_of,
)

if TYPE_CHECKING:
    from recto.formats.json_spans import Json
    from recto.formats.response import Usage
    from recto.formats.streaming import SseEvent


class _Text:
    """A text that arrives in pieces."""

    __slots__ = ("buffer", "is_thought")

    def __init__(self, is_thought: bool) -> None:
        self.is_thought = is_thought
        self.buffer = TextBuffer()

    @property
    def source(self) -> str:
        """The part as JSON; empty for an empty text, which the API does not take back."""
        text = str(self.buffer)
        thought = ', "thought": true' if self.is_thought else ""
        return f'{{"text": {quoted(text)}{thought}}}' if text else ""


class GeminiCapture:
    """Captures one response of `streamGenerateContent`."""

    def __init__(self, max_bytes: int = MAX_CAPTURED_BYTES) -> None:
        self.ended = False
        self.failed = ""
        self.code = ""
        self.overflowed = False
        self.id = ""
        self._remaining = max_bytes
        self._candidates: dict[int, list[_Text | str]] = {}
        self._stop = ""
        self._usage: Usage | None = None
        self._repeated: tuple[RepeatedEvent, _Text] | None = None
        """The form of the last chunk that only added to a text, and that text."""

    def take(self, event: SseEvent) -> None:
        """Records an event."""
        if self._repeated is not None:
            repeated, part = self._repeated
            text = repeated.text_in(event.data)
            if text is not None:
                self._spend(event)
                if not self.overflowed:
                    part.buffer.add(text)
                return
        data = event_object(event)
        if data is None:
            return
        self._spend(event)
        self._repeated = None
        if "error" in data:
            self.failed = error_in(data["error"]) or "the provider reported an error"
            self.code = code_in(data["error"])
            return
        self.id = text_in(data.get("responseId")) or self.id
        self._usage = usage_in(data.get("usageMetadata")) or self._usage
        if blocked := text_in(object_in(data.get("promptFeedback")).get("blockReason")):
            self.ended, self._stop = True, blocked
        candidates = data.get("candidates")
        for place, candidate in enumerate(candidates if isinstance(candidates, list) else []):
            self._take_candidate(event, place, object_in(candidate))
        self._repeated = self._repeated_form(event, data)

    def reply(self) -> ProviderReply:
        """Returns the complete response."""
        contents = {index: _content(parts) for index, parts in sorted(self._candidates.items())}
        first = contents.pop(0, b"")
        return ProviderReply(
            messages=(first,) if first else (),
            stop_reason=self._stop,
            usage=self._usage,
            id=self.id,
            alternatives=tuple(filter(None, contents.values())),
        )

    def partial(self) -> ProviderReply:
        """Returns what can be stored of a response that was cut: parts other than text always come whole."""
        return self.reply()

    def _spend(self, event: SseEvent) -> None:
        self._remaining -= len(event.data)
        self.overflowed = self.overflowed or self._remaining < 0

    def _take_candidate(self, event: SseEvent, place: int, candidate: dict[str, Json]) -> None:
        index = index_of(candidate.get("index")) or 0
        parts = object_in(candidate.get("content")).get("parts")
        kept = self._candidates.setdefault(index, [])
        for at, part in enumerate(parts if isinstance(parts, list) else []):
            if isinstance(part, dict) and not self.overflowed:
                _add(kept, part, event.data, place, at)
        if not index and (stop := text_in(candidate.get("finishReason"))):
            self.ended, self._stop = True, stop

    def _repeated_form(self, event: SseEvent, data: dict[str, Json]) -> tuple[RepeatedEvent, _Text] | None:
        """Returns the form of a chunk that adds to one text and says nothing else; `None` for any other."""
        candidates = data.get("candidates")
        if not isinstance(candidates, list) or len(candidates) != 1 or self.ended:
            return None
        candidate = object_in(candidates[0])
        parts = object_in(candidate.get("content")).get("parts")
        kept = self._candidates.get(index_of(candidate.get("index")) or 0)
        last = kept[-1] if kept else None
        if not isinstance(parts, list) or len(parts) != 1 or not isinstance(last, _Text):
            return None
        repeated = RepeatedEvent.of(event.data, "text")
        return None if repeated is None else (repeated, last)


def _add(kept: list[_Text | str], part: dict[str, Json], data: str, place: int, at: int) -> None:
    """Adds a part to those of a candidate."""
    fields = named(part)
    if isinstance(text := fields.get("text"), str) and fields.keys() <= {"text", "thought"}:
        is_thought = fields.get("thought") is True
        last = kept[-1] if kept else None
        if not isinstance(last, _Text) or last.is_thought != is_thought:
            kept.append(last := _Text(is_thought))
        last.buffer.add(text)
    else:
        kept.append(source_at(data, "candidates", place, "content", "parts", at).decode())


def _content(parts: list[_Text | str]) -> bytes:
    """Returns a content; empty without parts."""
    sources = [part if isinstance(part, str) else part.source for part in parts]
    joined = ", ".join(filter(None, sources))
    return f'{{"role": "model", "parts": [{joined}]}}'.encode() if joined else b""
