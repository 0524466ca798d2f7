"""The chat: a conversation with the model through the gateway, which stores the history."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static, TextArea
from textual.worker import Worker

from recto.engine.projection import DECISIONS, RESTORED
from recto.engine.views.models import EntryPage, EntryView
from recto.errors import RectoError
from recto.gateway.turn import CUT, FAILED
from recto.text.unicode import safe
from recto.transcript.entries import MESSAGE
from recto.tui.display_text import PLACES, safe_content
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed, OpenSession
from recto.tui.workers import run_exclusive

_SHOWN_EVENTS = DECISIONS | {RESTORED, CUT, FAILED}
"""Events that are shown between messages."""
_RESULT_CHARACTERS = 300
"""Characters of a tool result; the transcript has all of it."""
_MAX_LINES = 120
"""Messages that are shown; older ones are in the transcript."""
_UPDATES_PER_SECOND = 12


class ChatLine(Static):
    """A message."""

    def __init__(self, role: str, text: str, *, sign: str = "", live: bool = False) -> None:
        self._role, self._sign, self._pieces = role, sign, [text]
        super().__init__(self._content(), markup=False, classes=f"said {role}{' live' if live else ''}")
        self._timer: Timer | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def add(self, piece: str) -> None:
        """Adds a piece; the line is redrawn a few times per second, however small the pieces."""
        self._pieces.append(piece)
        if self._timer is None:
            self._timer = self.set_timer(1 / _UPDATES_PER_SECOND, self.finish)

    def finish(self, remark: str = "") -> None:
        """Redraws the line."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.update(self._content(remark))

    def _content(self, remark: str = "") -> Content:
        head = Content.assemble((self._role, "bold"), f" {self._sign}" if self._sign else "")
        body = Content.assemble(head, "\n", safe_content(self.text))
        return Content.assemble(body, ("\n" if self.text else "") + remark) if remark else body


class ConversationLog(VerticalScroll, can_focus=True):
    """The last messages; it stays at the end unless the user scrolls away."""

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._last = 0
        self._session = ""

    def on_mount(self) -> None:
        """Anchors to the end."""
        self.anchor()

    async def show(self, session: str, entries: Iterable[EntryView]) -> None:
        """Shows the new entries of a session, oldest first."""
        if session != self._session:
            self._session, self._last = session, 0  # before the first await: a newer load may cancel this one
            await self.remove_children()
        new_entries = [entry for entry in entries if entry.seq > self._last]
        if not new_entries:
            return
        self._last = new_entries[-1].seq
        lines = [line for entry in new_entries if (line := _make_line(entry)) is not None]
        if lines:
            self.query(".live").remove()
            await self.mount_all(lines)
        for old in list(self.children)[:-_MAX_LINES]:
            await old.remove()

    def add_line(self, role: str) -> ChatLine:
        """Adds a message that is still being written."""
        line = ChatLine(role, "", live=True)
        self.mount(line)
        return line


def _make_line(entry: EntryView) -> Static | None:
    if entry.kind == MESSAGE:
        text = entry.text
        if entry.role == "tool" and len(text) > _RESULT_CHARACTERS:
            text = f"{text[:_RESULT_CHARACTERS]}…"
        elif entry.cut:
            text += "…"
        where = f"#{entry.seq} {PLACES[entry.place]}" if entry.place != "in" else f"#{entry.seq}"
        return ChatLine(entry.role, text, sign=where)
    if entry.kind == CUT and (text := _partial(entry.text)):
        return ChatLine("assistant", text, sign=f"#{entry.seq} · cut off: it is kept, and not in the prompt")
    if entry.kind in _SHOWN_EVENTS:
        return Static(Content(f"· {entry.kind.replace('_', ' ')} (entry {entry.seq})"), markup=False, classes="event")
    return None


def _partial(content: str) -> str:
    """Returns the text of a response that was cut off; empty if there is none, or if it is too long to be parsed
    here.
    """
    try:
        texts = [message["content"] for message in json.loads(content)["messages"]]
    except (ValueError, KeyError, TypeError):
        return ""
    return "".join(text for text in texts if isinstance(text, str))


_LAST_ENTRIES = 30
_PLACEHOLDER = "Write to the model. Enter sends, Ctrl+J begins a new line."


class Composer(TextArea):
    """The input field. Pasted text stays complete."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", priority=True),
        Binding("ctrl+j,alt+enter,shift+enter", "new_line", "New line", priority=True),
    ]

    class Sent(Message):
        """The text should be sent."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def get_line(self, line_index: int) -> Text:
        """Returns a line as it is drawn: pasted text may contain anything."""
        return Text(safe(self.document.get_line(line_index)), end="", no_wrap=True)

    def action_send(self) -> None:
        """Sends the text."""
        if self.text.strip():
            self.post_message(self.Sent(self.text))

    def action_new_line(self) -> None:
        """Inserts a line break."""
        self.insert("\n")


class ChatView(BaseView):
    """Chat, and see what it does to the window."""

    PLACE = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel or leave"),
        Binding("i,enter", "write", "Write"),
    ]
    AUTO_FOCUS = "Composer"

    def compose_body(self) -> ComposeResult:
        """Yields the messages and the input field."""
        yield ConversationLog()
        yield Composer(
            id="composer", placeholder=_PLACEHOLDER, soft_wrap=True, highlight_cursor_line=False, compact=True
        )

    def main_selector(self) -> str:
        """The conversation, which can be scrolled."""
        return "#conversation"

    _answering: Worker[None] | None = None

    async def load_content(self) -> None:
        """Loads the last entries, unless a response is arriving."""
        if self._is_answering:
            return
        page = await self.state.get_for_session(EntryPage, "transcript", order="desc", limit=_LAST_ENTRIES)
        if not self._is_answering:
            await self.query_one(ConversationLog).show(self.state.session, reversed(page.entries))

    def show_empty(self) -> None:
        """Shows an empty session."""
        if not self._is_answering:
            run_exclusive(self, partial(self.query_one(ConversationLog).show, self.state.session, ()), "blank")

    def action_write(self) -> None:
        """Focuses the input field."""
        self.query_one(Composer).focus()

    def action_leave(self) -> None:
        """Cancels the response, or else leaves the field."""
        if self._answering is not None and self._is_answering:
            self._answering.cancel()
        else:
            super().action_leave()

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """Sends the text, unless a response is still arriving."""
        if self._is_answering:
            self.show_message("An answer is under way. Esc cancels it.", bad=False)
            return
        if self.refuse_without("ask"):
            return
        self.query_one(Composer).text = ""
        self.show_message("")
        conversation = self.query_one(ConversationLog)
        conversation.add_line("user").add(event.text)
        answer = conversation.add_line("assistant")
        conversation.anchor()
        self._answering = run_exclusive(self, partial(self._answer, event.text, answer), "answer")

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.is_finished

    async def _answer(self, text: str, line: ChatLine) -> None:
        state, remark = self.state, "… cancelled; what came of it is kept in the transcript"
        try:
            async with state.client.answer(state.session, text, state.model) as answer:
                self.app.post_message(Changed())  # the message is stored, so the gauge can be updated
                async for piece in answer:
                    line.add(piece)
            remark = ""
            if (session := answer.headers.get("x-recto-session-id", state.session)) != state.session:
                self.app.post_message(OpenSession(session))
        except RectoError as error:
            remark = "… no answer"
            self.show_message(str(error))
        finally:
            self._answering = None
            if line.is_attached:
                line.finish(remark)
            self.app.post_message(Changed())
