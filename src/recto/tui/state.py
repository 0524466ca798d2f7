"""What every screen is given: the gateway to ask, who asks, the session that is looked at, and when to look again.

It asks and remembers; how anything is drawn is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from textual.message import Message

from recto.engine.views.models import Caller, SessionOverview
from recto.errors import RequestRefused
from recto.gateway.api_keys import Right
from recto.gateway.client import GatewayClient, value_of

T = TypeVar("T")


class TuiState:
    """The gateway, and where in it we are."""

    def __init__(self, client: GatewayClient, session: str = "") -> None:
        self.client = client
        self.session = session
        self.asker: Caller | None = None
        self.now: SessionOverview | None = None
        """The session in short; none before it was asked for, and where nothing was said in it yet."""
        self.models: tuple[str, ...] = ()
        self.chosen = ""
        """The model that was chosen by hand."""
        self.moment = 0
        """Grows whenever something changed: who shows it asks again."""

    @property
    def model(self) -> str:
        """The model that is asked: the chosen one, else the session's, else the gateway's."""
        if self.chosen:
            return self.chosen
        known = (self.now.model if self.now else "", self.asker.model if self.asker else "")
        offered = next((name for name in known if name in self.models), "")
        return offered or next((name for name in (*self.models, *known) if name), "")

    def may(self, right: Right) -> bool:
        """Whether the key has a right."""
        return self.asker is not None and right in self.asker.rights

    async def arrive(self) -> None:
        """Asks who we are, and where to begin."""
        self.asker = value_of(Caller, await self.client.get("/asker"))
        self.session = self.session or self.asker.main

    async def look(self) -> SessionOverview | None:
        """The session in short, as it is now."""
        asked = self.session
        try:
            found = value_of(SessionOverview, await self.client.get("/session", session=asked))
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            found = None
        if asked == self.session:
            self.now = found
        return self.now

    async def get(self, kind: type[T], path: str, **query: Any) -> T:  # noqa: ANN401  # parameters
        """Asks about anything."""
        return value_of(kind, await self.client.get(path, **query))

    async def of_session(self, kind: type[T], path: str, **query: Any) -> T:  # noqa: ANN401  # parameters
        """Asks about the session that is looked at: `of_session(Report, "context")`."""
        return value_of(kind, await self.client.get(f"/session/{path}", session=self.session, **query))

    async def do(self, kind: type[T], path: str, body: Mapping[str, Any]) -> T:
        """Asks for a change of the session that is looked at."""
        return value_of(kind, await self.client.post(f"/session/{path}", body, session=self.session))


class Changed(Message):
    """Something was changed."""


class OpenSession(Message):
    """Another session is to be looked at."""

    def __init__(self, session: str) -> None:
        super().__init__()
        self.session = session


class ShowEntry(Message):
    """An entry is to be shown, all of it."""

    def __init__(self, seq: int) -> None:
        super().__init__()
        self.seq = seq


class GoTo(Message):
    """Another screen is to be shown."""

    def __init__(self, screen: str) -> None:
        super().__init__()
        self.screen = screen
