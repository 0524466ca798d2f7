"""A decorator for agent loops that keep their own list of messages and call a model with it.

```
    @recto.bounded("agent.db", model="gpt-4o")
    def ask(messages, tools=()):
        return client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)
```

The list may grow without limit: the function is called with a working set of it. New messages are stored before the
call, and the answer after it if it is recognised as one; a stream is passed through and stored when the list contains
it. If the provider rejects a prompt as too long, a shorter one is tried once. No provider's client is known here.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Self

from recto.adapters._messages import answer_in
from recto.adapters.conversations import Conversations, follow
from recto.engine.arguments import describe
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import Following
from recto.errors import InputError
from recto.formats import DEFAULT_FORMAT, format_named
from recto.formats.response_objects import plain
from recto.transcript.protocols import TranscriptStore


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call."""

    bound: inspect.BoundArguments
    named: Mapping[str, Any]
    """All arguments by name, including those in `**kwargs`."""
    rest: str
    """The name of the function's `**kwargs`; empty if it has none."""

    @classmethod
    def of(cls, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """Bind the arguments. Raises `TypeError` if the function does not accept them."""
        bound = signature.bind_partial(*args, **kwargs)
        rest = next(
            (
                (
                    parameter.name
                    for parameter in signature.parameters.values()
                    if parameter.kind is parameter.VAR_KEYWORD
                )
            ),
            "",
        )
        return cls(bound, {**bound.arguments, **bound.arguments.get(rest, {})}, rest)

    def put(self, name: str, value: object) -> None:
        """Replace an argument."""
        place = self.bound.arguments if name in self.bound.arguments else self.bound.arguments[self.rest]
        place[name] = value

    def call(self, function: Callable[..., Any]) -> Any:  # noqa: ANN401  # whatever the function returns
        """Call the function with the arguments."""
        return function(*self.bound.args, **self.bound.kwargs)


def name_of_list(signature: inspect.Signature, usual: str) -> str:
    """Return the parameter that takes the messages: the one with the usual name, else the first."""
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
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
    """Limit what a function sends to a model; see `recto.follow` for the other arguments.

    `argument` names the parameter with the messages: by default `messages` (`input` for Responses), else the first one.
    `session_id` is a name, or a function from the call's arguments to one; a call may pass its own: `ask(messages,
    session_id="7")`. The decorated function has two attributes: `conversations` and `compact(focus)`.
    """
    default_session = "" if callable(session_id) else session_id
    shared = conversations or follow(store, session_id=default_session, wire=wire, **names)

    def decorate(function: Callable[..., Any]) -> Any:  # noqa: ANN401  # the same kind of function
        signature = _signature_of(function)
        name = argument or name_of_list(signature, format_named(shared.wire).body.messages)
        wrapper = _wrapper(_Loop(function, signature, shared, name, session_id))
        wrapper.conversations = shared
        wrapper.compact = lambda focus="", session_id=default_session: shared.of(session_id).compact(focus)
        return wrapper

    return decorate


def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function. Raises `InputError` for anything that has none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        found = describe(function)
        raise InputError(f"recto.bounded(…) decorates a function that takes messages, not {found}") from None


@dataclass(frozen=True, slots=True)
class _Loop:
    """A decorated function and its conversations."""

    function: Callable[..., Any]
    signature: inspect.Signature
    conversations: Conversations
    argument: str
    session_id: str | Callable[[Mapping[str, Any]], str]

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _BoundedCall:
        own_session = "" if "session_id" in self.signature.parameters else kwargs.pop("session_id", "")
        arguments = Arguments.of(self.signature, args, kwargs)
        named = arguments.named
        if not isinstance(named.get(self.argument), list | tuple):
            raise InputError(f"the function was called without a list of messages in '{self.argument}'")
        default_session = self.session_id(named) if callable(self.session_id) else self.session_id
        return _BoundedCall(
            self, arguments, self.conversations.of(str(own_session or named.get("session_id") or default_session))
        )


@dataclass(frozen=True, slots=True)
class _BoundedCall:
    """One call of the function."""

    loop: _Loop
    arguments: Arguments
    following: Following

    def fit(self) -> None:
        """Replace the list by a working set."""
        named, name = self.arguments.named, self.loop.argument
        beside, tools = named.get(format_named(self.following.wire).body.system or ""), named.get("tools")
        sent = self.following.working_set(
            list(named[name]),
            lambda message: [plain(message)],
            lambda changed: changed,
            # Functions and other objects that the wrapped function turns into schemas itself cannot be counted.
            tools=[tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list | tuple) else (),
            beside=beside if isinstance(beside, str) else json.dumps(beside) if isinstance(beside, list) else "",
        )
        self.arguments.put(name, sent)

    def heard(self, answer: object) -> None:
        """Store the answer if it is one; everything else is in the list."""
        messages, usage = answer_in(answer, self.following.wire)
        if messages:
            self.following.heard(*messages, usage=usage)


def _wrapper(loop: _Loop) -> Any:  # noqa: ANN401  # the same kind of function
    """Wrap the function according to its kind: synchronous, awaited or streaming."""
    innermost = inspect.unwrap(loop.function)

    def call(*args: object, **kwargs: object) -> object:
        invocation = loop.begin(args, kwargs)
        invocation.fit()
        try:
            answer = invocation.arguments.call(loop.function)
        except Exception as error:
            if not invocation.following.overflowed(error):
                raise
            invocation.fit()
            answer = invocation.arguments.call(loop.function)
        invocation.heard(answer)
        return answer

    async def awaited(*args: object, **kwargs: object) -> object:
        invocation = await on_a_thread(loop.begin, args, kwargs)
        await on_a_thread(invocation.fit)
        try:
            answer = await invocation.arguments.call(loop.function)
        except Exception as error:
            if not await on_a_thread(invocation.following.overflowed, error):
                raise
            await on_a_thread(invocation.fit)
            answer = await invocation.arguments.call(loop.function)
        await on_a_thread(invocation.heard, answer)
        return answer

    async def streamed(*args: object, **kwargs: object) -> AsyncIterator[object]:
        invocation = await on_a_thread(loop.begin, args, kwargs)
        await on_a_thread(invocation.fit)
        async for piece in invocation.arguments.call(loop.function):
            yield piece

    if inspect.isasyncgenfunction(innermost):
        return wraps(loop.function)(streamed)
    return wraps(loop.function)(awaited if inspect.iscoroutinefunction(innermost) else call)
