"""State shared by all screens: the gateway client, the caller, the current session, and a revision to reload by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from textual.message import Message

from recto.engine.views.models import Caller, SessionOverview
from recto.errors import RequestRefused
from recto.gateway.api_keys import Right
from recto.gateway.client import GatewayClient, decode_result

T = TypeVar("T")


class TuiState:
    """The gateway client, the caller and the current session."""

    def __init__(self, client: GatewayClient, session: str = "") -> None:
        self.client = client
        self.session = session
        self.caller: Caller | None = None
        self.now: SessionOverview | None = None
        """Overview of the session; None before it was loaded, and while nothing is stored in it."""
        self.is_loaded = False
        """Whether the overview was loaded once, so that None means an empty session."""
        self.models: tuple[str, ...] = ()
        self.chosen_model = ""
        """The model that the user chose."""
        self.revision = 0
        """Increases whenever something changed: a screen with an older revision reloads."""

    @property
    def model(self) -> str:
        """The model for the next message: the chosen one, else the session's, else the gateway's."""
        if self.chosen_model:
            return self.chosen_model
        known = (self.now.model if self.now else "", self.caller.model if self.caller else "")
        offered = next((name for name in known if name in self.models), "")
        return offered or next((name for name in (*self.models, *known) if name), "")

    def open(self, session: str) -> None:
        """Opens another session; it is loaded by the next `load_session`."""
        self.session, self.now, self.is_loaded, self.chosen_model = session, None, False, ""

    def has_right(self, right: Right) -> bool:
        """Returns whether the key has a right."""
        return self.caller is not None and right in self.caller.rights

    async def load_caller(self) -> None:
        """Loads the caller and the session to start with."""
        self.caller = decode_result(Caller, await self.client.get("/asker"))
        self.session = self.session or self.caller.main

    async def load_session(self) -> SessionOverview | None:
        """Loads the overview of the session."""
        session = self.session
        try:
            overview = decode_result(SessionOverview, await self.client.get("/session", session=session))
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            overview = None
        if session == self.session:
            self.now, self.is_loaded = overview, True
        return self.now

    async def get(self, kind: type[T], path: str, **query: Any) -> T:  # noqa: ANN401  # parameters
        """Reads a value from the gateway."""
        return decode_result(kind, await self.client.get(path, **query))

    async def get_for_session(self, kind: type[T], path: str, **query: Any) -> T:  # noqa: ANN401  # parameters
        """Reads a value about the current session: `get_for_session(Report, "context")`."""
        return decode_result(kind, await self.client.get(f"/session/{path}", session=self.session, **query))

    async def post_to_session(self, kind: type[T], path: str, body: Mapping[str, Any]) -> T:
        """Changes the current session."""
        return decode_result(kind, await self.client.post(f"/session/{path}", body, session=self.session))


class Changed(Message):
    """Something was changed."""


class OpenSession(Message):
    """Another session should be opened."""

    def __init__(self, session: str) -> None:
        super().__init__()
        self.session = session


class ShowEntry(Message):
    """A full entry should be shown."""

    def __init__(self, seq: int) -> None:
        super().__init__()
        self.seq = seq


class GoTo(Message):
    """Another screen should be shown."""

    def __init__(self, screen: str) -> None:
        super().__init__()
        self.screen = screen
