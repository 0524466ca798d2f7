"""The chat: a conversation with the model through the gateway, which holds its history."""

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
from recto.tui.formatting import PLACES, shown
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed, OpenSession
from recto.tui.workers import beside

_TOLD = DECISIONS | {RESTORED, CUT, FAILED}
"""Events that are told between messages."""
_RESULT = 300
"""Characters of a tool's result; the transcript has all of it."""
_HELD = 120
"""How many are shown; what is older is in the transcript."""
_PER_SECOND = 12


class ChatLine(Static):
    """Something that was said."""

    def __init__(self, role: str, text: str, *, sign: str = "", live: bool = False) -> None:
        self._role, self._sign, self._pieces = role, sign, [text]
        super().__init__(self._drawn(), markup=False, classes=f"said {role}{' live' if live else ''}")
        self._due: Timer | None = None

    @property
    def text(self) -> str:
        """All of it, so far."""
        return "".join(self._pieces)

    def add(self, piece: str) -> None:
        """More of it came; it is drawn a few times a second, however small the pieces."""
        self._pieces.append(piece)
        if self._due is None:
            self._due = self.set_timer(1 / _PER_SECOND, self.finish)

    def finish(self, remark: str = "") -> None:
        """Draws what came."""
        if self._due is not None:
            self._due.stop()
            self._due = None
        self.update(self._drawn(remark))

    def _drawn(self, remark: str = "") -> Content:
        head = Content.assemble((self._role, "bold"), f" {self._sign}" if self._sign else "")
        body = Content.assemble(head, "\n", shown(self.text))
        return Content.assemble(body, ("\n" if self.text else "") + remark) if remark else body


class ConversationLog(VerticalScroll, can_focus=True):
    """The last of what was said; it stays at the end unless somebody scrolls away."""

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._last = 0
        self._session = ""

    def on_mount(self) -> None:
        """The end is what matters."""
        self.anchor()

    async def show(self, session: str, entries: Iterable[EntryView]) -> None:
        """Shows what is new of a session; entries come oldest first."""
        if session != self._session:
            self._session, self._last = session, 0  # before anything is waited for: a newer look may end this one
            await self.remove_children()
        fresh = [one for one in entries if one.seq > self._last]
        if not fresh:
            return
        self._last = fresh[-1].seq
        drawn = [line for one in fresh if (line := _drawn(one)) is not None]
        if drawn:
            self.query(".live").remove()
            await self.mount_all(drawn)
        for old in list(self.children)[:-_HELD]:
            await old.remove()

    def say(self, role: str) -> ChatLine:
        """Shows something that is being said."""
        said = ChatLine(role, "", live=True)
        self.mount(said)
        return said


def _drawn(one: EntryView) -> Static | None:
    if one.kind == MESSAGE:
        text = one.text
        if one.role == "tool" and len(text) > _RESULT:
            text = f"{text[:_RESULT]}…"
        elif one.cut:
            text += "…"
        where = f"#{one.seq} {PLACES[one.place]} {one.place}" if one.place != "in" else f"#{one.seq}"
        return ChatLine(one.role, text, sign=where)
    if one.kind == CUT and (text := _partial(one.text)):
        return ChatLine("assistant", text, sign=f"#{one.seq} · cut off: it is kept, and not in the prompt")
    if one.kind in _TOLD:
        return Static(Content(f"· {one.kind.replace('_', ' ')} (entry {one.seq})"), markup=False, classes="told")
    return None


def _partial(told: str) -> str:
    """What had come of an answer that was cut off; empty where nothing had, or it is too long to be read here."""
    try:
        said = [message["content"] for message in json.loads(told)["messages"]]
    except (ValueError, KeyError, TypeError):
        return ""
    return "".join(text for text in said if isinstance(text, str))


_SHOWN = 30
_PLACEHOLDER = "Write to the model. Enter sends, Ctrl+J begins a new line."


class Composer(TextArea):
    """What is being written. Pasted text stays whole."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", priority=True),
        Binding("ctrl+j,alt+enter,shift+enter", "new_line", "New line", priority=True),
    ]

    class Sent(Message):
        """It is to be said."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn: what was pasted may hold anything."""
        return Text(safe(self.document.get_line(line_index)), end="", no_wrap=True)

    def action_send(self) -> None:
        """Says it."""
        if self.text.strip():
            self.post_message(self.Sent(self.text))

    def action_new_line(self) -> None:
        """A line more."""
        self.insert("\n")


class ChatView(BaseView):
    """Talk, and see what it does to the window."""

    PLACE = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel or leave"),
        Binding("i,enter", "write", "Write"),
    ]
    AUTO_FOCUS = "Composer"

    def body(self) -> ComposeResult:
        """What was said, and a place to say more."""
        yield ConversationLog()
        yield Composer(
            id="composer", placeholder=_PLACEHOLDER, soft_wrap=True, highlight_cursor_line=False, compact=True
        )

    def main(self) -> str:
        """The conversation can be scrolled."""
        return "#conversation"

    _answering: Worker[None] | None = None

    async def look(self) -> None:
        """The last entries; while an answer comes, they wait."""
        if self._is_answering:
            return
        page = await self.here.of_session(EntryPage, "transcript", order="desc", limit=_SHOWN)
        if not self._is_answering:
            await self.query_one(ConversationLog).show(self.here.session, reversed(page.entries))

    def blank(self) -> None:
        """An empty session."""
        if not self._is_answering:
            beside(self, partial(self.query_one(ConversationLog).show, self.here.session, ()), "blank")

    def action_write(self) -> None:
        """Back to the field."""
        self.query_one(Composer).focus()

    def action_leave(self) -> None:
        """Cancels the answer; where there is none, leaves the field."""
        if self._answering is not None and self._is_answering:
            self._answering.cancel()
        else:
            super().action_leave()

    def on_composer_sent(self, event: Composer.Sent) -> None:
        """Something is said, unless an answer is still coming."""
        if self._is_answering:
            self.trouble("An answer is under way. Esc cancels it.", bad=False)
            return
        if self.refuse_without("ask"):
            return
        self.query_one(Composer).text = ""
        self.trouble("")
        conversation = self.query_one(ConversationLog)
        conversation.say("user").add(event.text)
        answer = conversation.say("assistant")
        conversation.anchor()
        self._answering = beside(self, partial(self._answer, event.text, answer), "answer")

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.is_finished

    async def _answer(self, text: str, said: ChatLine) -> None:
        here, remark = self.here, "… cancelled; what came of it is kept in the transcript"
        try:
            async with here.client.answer(here.session, text, here.model) as answer:
                self.app.post_message(Changed())  # it is stored, and the gauge can move
                async for piece in answer:
                    said.add(piece)
            remark = ""
            if (named := answer.headers.get("x-recto-session-id", here.session)) != here.session:
                self.app.post_message(OpenSession(named))
        except RectoError as error:
            remark = "… no answer"
            self.trouble(str(error))
        finally:
            self._answering = None
            if said.is_attached:
                said.finish(remark)
            self.app.post_message(Changed())
