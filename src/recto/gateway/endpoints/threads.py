"""Codex's history and notes endpoints, on the transcript and the note files of a thread.

Codex appends `alpha/history/v2/…` and `alpha/notes/v2/…` to the address of its provider. The body names the thread; its
session is the one that a model request with the same id writes to, so a key reaches the sessions of its own agent only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recto.engine.async_session import on_a_thread
from recto.engine.runs import last_model
from recto.engine.session import Session
from recto.engine.threads import CALLS, Thread, ThreadCall, call_thread
from recto.errors import InputError, RectoError
from recto.formats.openai_responses import RESPONSES
from recto.formats.registry import FORMATS
from recto.gateway.api_keys import Key
from recto.gateway.errors import JsonResponse, error_response
from recto.gateway.middleware.auth import thread_path
from recto.gateway.request import read_object, valid_name
from recto.gateway.session_pool import SessionPool
from recto.gateway.session_resolver import SessionHint, base_name
from recto.transcript.entries import requested_by

_SURFACE = "gateway responses"


class ThreadsApi:
    """The endpoints of a gateway."""

    def __init__(self, sessions: SessionPool) -> None:
        self._sessions = sessions

    def routes(self) -> list[Route]:
        """One route for each call."""
        return [Route(thread_path(call), partial(self._answer, call), methods=["POST"]) for call in CALLS]

    async def _answer(self, call: ThreadCall, request: Request) -> Response:
        key: Key = request.scope["recto.key"]
        try:
            arguments = read_object(await request.body() or b"{}")
            about = arguments.pop("context", None)
            thread = self._thread(key, about if isinstance(about, dict) else {})
            return JsonResponse(await on_a_thread(call_thread, call, thread, arguments))
        except RectoError as error:
            return error_response(error, FORMATS[RESPONSES], "")

    def _thread(self, key: Key, about: dict[str, object]) -> Thread:
        id, agent = about.get("session_id"), about.get("current_agent_name")
        if not isinstance(id, str) or not id:
            raise InputError("'context.session_id' is missing: it names the thread")
        view = self._sessions.view(key)

        @contextmanager
        def use(stored: str) -> Iterator[Session]:
            with (
                self._sessions.use(key, view.name(stored), last_model(view, stored)) as session,
                requested_by(f"{key.name} (key {key.id})", _SURFACE),
            ):
                yield session

        name = base_name(key, SessionHint(name=valid_name(id), is_explicit=False))
        return Thread(
            store=view, key=view.key(name), use=use, agent=agent if isinstance(agent, str) and agent else "/root"
        )
