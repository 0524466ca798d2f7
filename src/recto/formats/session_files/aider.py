"""The history that aider keeps in a project, `.aider.chat.history.md`: all chats in one Markdown file.

A chat begins with a line with its time. Lines of the user begin with `#### `, lines that aider prints with `> `. Both
end with two spaces, which distinguishes them from headings and quotations of a model, unless those end so too. Anything
else after a blank line is the model's answer. Commands, such as `/add`, are events. The file has no times of messages.
Written after aider 0.86.2, and tried with a file that it wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, assert_never

from recto.errors import InputError, MalformedFile
from recto.formats.json_spans import text_of
from recto.formats.openai_chat import CHAT
from recto.formats.session_files.jsonl import JsonlLine, reason_of
from recto.formats.session_files.types import (
    IMPORTED_LINE,
    UNREADABLE_LINE,
    ProblemReporter,
    ReadProblem,
    SourceEntry,
    layout_of,
)
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MESSAGE

NAME: Final = "aider"
FILE_NAME: Final = ".aider.chat.history.md"

_STARTED = lazy_re(r"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.ASCII)
_USER, _PRINTED, _LINE_END = "#### ", "> ", "  "
_COMMANDS = ("/", "!")
"""How a line begins that the user types for aider and not for the model."""
_Speaker = Literal["start", "aider", "user", "assistant"]


def is_start(line: str) -> bool:
    """Whether a chat begins with this line."""
    return _STARTED.fullmatch(line.rstrip()) is not None


@dataclass(slots=True)
class _ChatBlock:
    """Lines that belong together."""

    speaker: _Speaker
    lines: list[JsonlLine] = field(default_factory=list)
    is_open: bool = False
    """Whether aider has not ended what it prints yet: that may have several lines, and the first alone is marked."""


def read_chats(
    lines: Iterable[JsonlLine], *, source: str, session: str, keep_going: bool, report: ProblemReporter | None
) -> Iterator[SourceEntry]:
    """Yields the entries of all chats; each chat is a session, named by its time."""
    block, name, ts = _ChatBlock("start"), session, None
    for line in lines:
        try:
            text = text_of(line.body, shallow=True)
        except InputError as error:
            reason = reason_of(error)
            if not keep_going:
                raise MalformedFile(source, line.number, reason) from None
            if report is not None:
                report(ReadProblem(line.number, reason))
            yield from _entries(block, name, ts)
            yield line.as_event(name, ts=ts, kind=UNREADABLE_LINE, meta={"reason": reason})
            block = _ChatBlock(block.speaker)
            continue
        speaker = _speaker(text, block, has_gap="\n" in line.before)
        if speaker != block.speaker or speaker == "start" or (speaker == "user" and "\n" in line.before):
            yield from _entries(block, name, ts)
            block = _ChatBlock(speaker)
        if started := _STARTED.fullmatch(text.rstrip()) if speaker == "start" else None:
            name, ts = f"aider-{started[1].replace(' ', '-').replace(':', '-')}", _local_time(started[1])
        block.lines.append(line)
        block.is_open = speaker == "aider" and not text.endswith(_LINE_END)
    yield from _entries(block, name, ts)


def _speaker(text: str, block: _ChatBlock, *, has_gap: bool) -> _Speaker:
    """Returns whose line this is; `has_gap`: whether a blank line is before it."""
    is_marked = text.endswith(_LINE_END)
    if is_start(text):
        return "start"
    if text.startswith(_USER) and is_marked and (has_gap or block.speaker == "user"):
        return "user"
    if block.is_open:
        return "aider"
    match block.speaker:
        case "start":
            return "aider"
        case "assistant":
            return "aider" if text.startswith(_PRINTED) and is_marked else "assistant"
        case "user" | "aider":
            if text.startswith(_PRINTED) and (is_marked or not has_gap):
                return "aider"
            return "assistant" if has_gap or block.speaker == "user" else "aider"
    assert_never(block.speaker)


def _local_time(stamp: str) -> int | None:
    """Returns a time as aider writes it, in the zone of the machine, in microseconds."""
    try:
        return int(datetime.fromisoformat(stamp).timestamp()) * 1_000_000
    except (ValueError, OverflowError, OSError):
        return None


def _entries(block: _ChatBlock, session: str, ts: int | None) -> Iterator[SourceEntry]:
    if not block.lines:
        return
    first = block.lines[0]
    texts = [line.before + line.body.decode() + line.after for line in block.lines]
    whole = said = texts[0].removeprefix(first.before) + "".join(texts[1:])
    if block.speaker == "user":
        said = "\n".join(line.body.decode().removeprefix(_USER).removesuffix(_LINE_END) for line in block.lines)
    is_command = block.speaker == "user" and said.startswith(_COMMANDS)
    is_message = block.speaker in ("user", "assistant") and bool(said.strip()) and not is_command
    message = json.dumps({"role": block.speaker, "content": said.strip()}, ensure_ascii=False).encode()
    yield SourceEntry(
        session=session,
        role="event" if not is_message else "user" if block.speaker == "user" else "assistant",
        kind=MESSAGE if is_message else IMPORTED_LINE,
        wire=CHAT if is_message else "",
        content=message if is_message else whole.encode(),
        ts=ts,
        meta={"line": first.number},
        layout=layout_of("".join(texts)) if is_message else layout_of(first.before, (0, len(whole.encode()))),
        is_known=True,
    )
