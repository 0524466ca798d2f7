"""The chat: a conversation with the model through the gateway, which holds its history."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea
from textual.worker import Worker

from recto.core.shown_text import safe
from recto.engine.browsing import EntryPage
from recto.errors import RectoError
from recto.tui.conversation import Conversation, Said
from recto.tui.here import Changed, OpenSession
from recto.tui.view import View
from recto.tui.working import beside

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


class ChatView(View):
    """Talk, and see what it does to the window."""

    PLACE = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel or leave"),
        Binding("i,enter", "write", "Write"),
    ]
    AUTO_FOCUS = "Composer"

    def body(self) -> ComposeResult:
        """What was said, and a place to say more."""
        yield Conversation()
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
            await self.query_one(Conversation).show(self.here.session, reversed(page.entries))

    def blank(self) -> None:
        """An empty session."""
        if not self._is_answering:
            beside(self, partial(self.query_one(Conversation).show, self.here.session, ()), "blank")

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
        conversation = self.query_one(Conversation)
        conversation.say("user").add(event.text)
        answer = conversation.say("assistant")
        conversation.anchor()
        self._answering = beside(self, partial(self._answer, event.text, answer), "answer")

    @property
    def _is_answering(self) -> bool:
        return self._answering is not None and not self._answering.is_finished

    async def _answer(self, text: str, said: Said) -> None:
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
