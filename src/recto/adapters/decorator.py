"""A decorator for a loop that keeps its own list of messages and calls a model with it.

    @recto.bounded("agent.db", model="gpt-4o")
    def ask(messages, tools=()):
        return client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)

The list may grow without end: the function is called with a working set of it. What is new is stored before the call,
and the answer after it, where it is recognised as one; a stream is passed through, and is stored when the list tells
it. A prompt that the provider finds too long is tried once more, tighter. Nothing here knows a provider's client.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self

from recto.adapters._messages import answer_in, plain
from recto.adapters.conversations import Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import Following
from recto.errors import InputError
from recto.formats import DEFAULT_FORMAT, format_named
from recto.transcript.protocols import TranscriptStore


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a function is called with."""

    bound: inspect.BoundArguments
    named: Mapping[str, Any]
    """All of them by name, those among `**kwargs` too."""
    rest: str
    """What the function calls its `**kwargs`; empty where it has none."""

    @classmethod
    def of(cls, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """Raises `TypeError` where the function cannot be called so."""
        bound = signature.bind_partial(*args, **kwargs)
        rest = next((one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), "")
        return cls(bound, {**bound.arguments, **bound.arguments.get(rest, {})}, rest)

    def put(self, name: str, value: object) -> None:
        """Replaces one that was given."""
        place = self.bound.arguments if name in self.bound.arguments else self.bound.arguments[self.rest]
        place[name] = value

    def call(self, function: Callable[..., Any]) -> Any:  # noqa: ANN401  # whatever the function returns
        """Calls the function with them."""
        return function(*self.bound.args, **self.bound.kwargs)


def name_of_list(signature: inspect.Signature, usual: str) -> str:
    """The parameter that takes the messages: the one with the usual name, else the first."""
    open_ended = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
    return usual if usual in signature.parameters or open_ended else next(iter(signature.parameters), usual)


def bounded(
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    argument: str = "",
    session_id: str | Callable[[Mapping[str, Any]], str] = "",
    wire: str = DEFAULT_FORMAT.name,
    conversations: Conversations | None = None,
    **names: Any,  # noqa: ANN401  # as `follow` takes them
) -> Callable[[Callable[..., Any]], Any]:
    """Bounds what a function sends to a model; see `recto.follow` for everything else that can be given.

    `argument` names the parameter with the messages: where it is not said, `messages` (`input` for Responses) or else
    the first one. `session_id` is a name, or a function from the call's arguments to one; a call may give its own:
    `ask(messages, session_id="7")`. The function gets two attributes: `conversations` and `compact(focus)`.
    """
    usual = "" if callable(session_id) else session_id
    kept = conversations or follow(store, session_id=usual, wire=wire, **names)

    def decorate(function: Callable[..., Any]) -> Any:  # noqa: ANN401  # the same kind of function
        signature = inspect.signature(function)
        name = argument or name_of_list(signature, format_named(kept.wire).body.messages)
        found = _wrapper(_Loop(function, signature, kept, name, session_id))
        found.conversations = kept
        found.compact = lambda focus="", session_id=usual: kept.of(session_id).compact(focus)
        return found

    return decorate


@dataclass(frozen=True, slots=True)
class _Loop:
    """A function that is called with a list, and whose the list is."""

    function: Callable[..., Any]
    signature: inspect.Signature
    conversations: Conversations
    argument: str
    session_id: str | Callable[[Mapping[str, Any]], str]

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        own = "" if "session_id" in self.signature.parameters else kwargs.pop("session_id", "")
        arguments = Arguments.of(self.signature, args, kwargs)
        given = arguments.named
        if not isinstance(given.get(self.argument), list | tuple):
            raise InputError(f"the function was called without a list of messages in '{self.argument}'")
        usual = self.session_id(given) if callable(self.session_id) else self.session_id
        return _Call(self, arguments, self.conversations.of(str(own or given.get("session_id") or usual)))


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the function."""

    loop: _Loop
    arguments: Arguments
    following: Following

    def fit(self) -> None:
        """Puts a working set in the place of the list."""
        given, name = self.arguments.named, self.loop.argument
        beside, tools = given.get(format_named(self.following.wire).body.system or ""), given.get("tools")
        sent = self.following.working_set(
            list(given[name]),
            lambda one: [plain(one)],
            lambda made: made,
            tools=tools if isinstance(tools, list | tuple) else (),
            beside=beside if isinstance(beside, str) else json.dumps(beside) if isinstance(beside, list) else "",
        )
        self.arguments.put(name, sent)

    def heard(self, answer: object) -> None:
        """Stores an answer, where it is one; the list tells everything else."""
        messages, usage = answer_in(answer, self.following.wire)
        if messages:
            self.following.heard(*messages, usage=usage)


def _wrapper(loop: _Loop) -> Any:  # noqa: ANN401  # the same kind of function
    """Calls the function as what it is: one that answers, one that is awaited, or one that streams."""
    innermost = inspect.unwrap(loop.function)

    def call(*args: object, **kwargs: object) -> object:
        one = loop.begin(args, kwargs)
        one.fit()
        try:
            answer = one.arguments.call(loop.function)
        except Exception as error:
            if not one.following.overflowed(error):
                raise
            one.fit()
            answer = one.arguments.call(loop.function)
        one.heard(answer)
        return answer

    async def awaited(*args: object, **kwargs: object) -> object:
        one = await on_a_thread(loop.begin, args, kwargs)
        await on_a_thread(one.fit)
        try:
            answer = await one.arguments.call(loop.function)
        except Exception as error:
            if not await on_a_thread(one.following.overflowed, error):
                raise
            await on_a_thread(one.fit)
            answer = await one.arguments.call(loop.function)
        await on_a_thread(one.heard, answer)
        return answer

    async def streamed(*args: object, **kwargs: object) -> AsyncIterator[object]:
        one = await on_a_thread(loop.begin, args, kwargs)
        await on_a_thread(one.fit)
        async for piece in one.arguments.call(loop.function):
            yield piece

    if inspect.isasyncgenfunction(innermost):
        return wraps(loop.function)(streamed)
    return wraps(loop.function)(awaited if inspect.iscoroutinefunction(innermost) else call)
