"""A context engine for hosts that are not written in Python, or whose packages exclude Recto's: JSON lines on a pipe.

The host's plugin sends its whole prompt before each model call and sends on what comes back. One request a line, one
answer a line, in order:

    {"op": "fit", "session": ID, "turn": ID, "wire": "openai.chat", "model": NAME, "window": 128000,
     "answer": 8000, "system": TEXT, "messages": [...], "tools": [...]}    -> {"messages": [...], "places": [...]}
    {"op": "heard", "session": ID, "turn": ID, "message": {...}, "usage": {...}}  -> {}
    {"op": "stored", "session": ID, "messages": [...], "key": ID}   -> {"stored": NUMBER}
    {"op": "compact", "session": ID, "focus": TEXT}                -> {"evicted": NUMBER}
    {"op": "overflowed", "session": ID, "error": TEXT}             -> {"learned": true}

`places` has for each message where it was in the request, or null for one that Recto wrote or changed. `stored` adds
a turn that the host has accepted; with a key that was used before it stores nothing. Only the session and the messages
are needed. What fails is answered with `{"error": TEXT}`, and the host goes on as it would without Recto.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recto.adapters.conversations import ClosingBlock, Conversations
from recto.adapters.options import joined
from recto.config import Settings
from recto.config.factory import open_store
from recto.engine.history_sync import Following
from recto.errors import InputError, RectoError
from recto.formats import DEFAULT_FORMAT, FORMATS

_MAX_VIEWS = 8
"""Lists of one session that are followed at once: its own, and those of background work under the same id."""
_MAX_TURNS = _MAX_SESSIONS = 256
"""Turns and sessions that are remembered; an older session is found again in the store."""


class ContextEngineServer(ClosingBlock):
    """Answers the requests of one host, over one store."""

    def __init__(self, settings: Settings, *, surface: str) -> None:
        self._settings, self._surface = settings, surface
        self._store = open_store(settings)
        self._opened: dict[tuple[Any, ...], Conversations] = {}
        self._views: dict[tuple[str, Conversations], list[Following]] = {}
        self._last: dict[tuple[str, str], Following] = {}
        """The view whose prompt was asked for last, by session and turn; without a turn, of the session."""

    def answer(self, line: bytes | str) -> dict[str, Any]:
        """Answer one request."""
        try:
            request = json.loads(line)
            match request["op"]:
                case "fit":
                    return self._fit(request)
                case "heard":
                    self._known(request).heard(request["message"], usage=request.get("usage"))
                    return {}
                case "stored":
                    return {"stored": self._store_turn(request)}
                case "compact":
                    return {"evicted": len(self._known(request).compact(request.get("focus") or ""))}
                case "overflowed":
                    return {"learned": self._known(request).overflowed(str(request["error"]))}
                case other:
                    raise InputError(f"there is no operation '{other}'")
        except RectoError as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return {"error": f"the request is malformed ({type(error).__name__}: {error})"}

    def _fit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        session, messages = str(request["session"]), request["messages"]
        stable = [_stable(message) for message in messages]
        conversations = self._conversations(request)
        if not messages:
            return {"messages": [], "places": []}
        views = self._views.pop((session, conversations), [])
        self._views[session, conversations] = views  # the most recently used one is last
        if len(self._views) > _MAX_SESSIONS:
            self._close_views(self._views.pop(next(iter(self._views))))
        if not views:
            views.append(conversations.of(session))
        following = next((view for view in views if view.new_in(stable) is not None), None)
        if following is None:
            following = conversations.beside(session)
            views.append(following)
            if len(views) > _MAX_VIEWS:
                self._close_views([views[0], views.pop(1)])  # the first is the session's own
        self._last[session, ""] = self._last[session, str(request.get("turn") or "")] = following
        while len(self._last) > _MAX_TURNS:
            del self._last[next(iter(self._last))]
        given: list[tuple[int | None, dict[str, Any]]] = [*enumerate(messages)]
        sent = following.working_set(
            given,
            lambda item: [_stable(item[1])],
            lambda changed: [(None, message) for message in changed],
            tools=request.get("tools") or (),
            beside=_text(request.get("system")),
        )
        return {"messages": [message for _, message in sent], "places": [place for place, _ in sent]}

    def _store_turn(self, request: Mapping[str, Any]) -> int:
        session, key = str(request["session"]), request.get("key")
        following = self._last.get((session, "")) or self._conversations(request).of(session)
        if key and following.session.find(key):
            return 0
        messages = [_stable(message) for message in request["messages"]]
        following.heard(*messages, key=key)
        return len(messages)

    def _known(self, request: Mapping[str, Any]) -> Following:
        following = self._last.get((str(request["session"]), str(request.get("turn") or "")))
        if following is None:
            raise InputError("no prompt of this session was asked for yet")
        return following

    def _conversations(self, request: Mapping[str, Any]) -> Conversations:
        model = str(request.get("model") or self._settings.model)
        window, answer = int(request.get("window") or 0), int(request.get("answer") or 0)
        wire = str(request.get("wire") or DEFAULT_FORMAT.name)
        if wire not in FORMATS:
            raise InputError(f"'{wire}' is not a wire format; known are {', '.join(FORMATS)}")
        key = (wire, model, window, answer)
        if key not in self._opened:
            settings = _for_model(self._settings, model, window, answer)
            self._opened[key] = Conversations(settings, self._store, surface=self._surface, wire=wire)
        return self._opened[key]

    def _close_views(self, views: Sequence[Following]) -> None:
        """Close the lists beside a session's own, which its conversations close."""
        for view in views[1:]:
            self._last = {key: last for key, last in self._last.items() if last is not view}
            view.close()

    def close(self) -> None:
        """Closes every conversation, and the store."""
        for views in self._views.values():
            self._close_views(views)
        for conversations in self._opened.values():
            conversations.close()
        self._store.close()


def _for_model(settings: Settings, model: str, window: int, answer: int) -> Settings:
    """Settings with the sizes that the host reports; those that the user has set win."""
    sizes = {model: {"window": window, "max_input": window}} if window else {}
    # Hosts allow answers as long as the whole window, which leaves no input budget; no answer gets that long.
    reserve = settings.window.reserve or (min(answer, window // 2) if window else answer)
    return replace(
        settings,
        model=model,
        models=joined(sizes, settings.models),
        window=replace(settings.window, reserve=reserve),
    )


def _stable(message: dict[str, Any]) -> dict[str, Any]:
    """A message without what hosts lose when they resume a session: the name of a result's tool, in OpenAI Chat."""
    if message.get("role") != "tool" or "name" not in message:
        return message
    return {name: value for name, value in message.items() if name != "name"}


def _text(system: object) -> str:
    return system if isinstance(system, str) else json.dumps(system, ensure_ascii=False) if system else ""
