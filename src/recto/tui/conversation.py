"""A conversation as it is read: what was said, what the window did in between, and an answer while it comes."""

from __future__ import annotations

import json
from collections.abc import Iterable

from textual.containers import VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from recto.core.entries import MESSAGE
from recto.engine.browsing import Shown
from recto.engine.fold import DECISIONS, RESTORED
from recto.gateway.turns import CUT, FAILED
from recto.tui.words import PLACES, shown

_TOLD = DECISIONS | {RESTORED, CUT, FAILED}
"""Events that are told between messages."""
_RESULT = 300
"""Characters of a tool's result; the transcript has all of it."""
_HELD = 120
"""How many are shown; what is older is in the transcript."""
_PER_SECOND = 12


class Said(Static):
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


class Conversation(VerticalScroll, can_focus=True):
    """The last of what was said; it stays at the end unless somebody scrolls away."""

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._last = 0
        self._session = ""

    def on_mount(self) -> None:
        """The end is what matters."""
        self.anchor()

    async def show(self, session: str, entries: Iterable[Shown]) -> None:
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

    def say(self, role: str) -> Said:
        """Shows something that is being said."""
        said = Said(role, "", live=True)
        self.mount(said)
        return said


def _drawn(one: Shown) -> Static | None:
    if one.kind == MESSAGE:
        text = one.text
        if one.role == "tool" and len(text) > _RESULT:
            text = f"{text[:_RESULT]}…"
        elif one.cut:
            text += "…"
        where = f"#{one.seq} {PLACES[one.place]} {one.place}" if one.place != "in" else f"#{one.seq}"
        return Said(one.role, text, sign=where)
    if one.kind == CUT and (text := _partial(one.text)):
        return Said("assistant", text, sign=f"#{one.seq} · cut off: it is kept, and not in the prompt")
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
