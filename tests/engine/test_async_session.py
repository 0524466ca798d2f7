"""`AsyncSession` has every call of `Session`, with the same name and the same parameters."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

import recto
from recto.engine.async_session import AsyncSession, RunningCall
from recto.engine.session import Session

DEADLINE = 30
NAMESPACES = ("memory", "checkpoints", "health", "usage", "transcript", "work")


def public(thing: object) -> dict[str, object]:
    """Returns the public methods and properties of an object's class."""
    members = inspect.getmembers(type(thing))
    return {
        name: member
        for name, member in members
        if not name.startswith("_") and (callable(member) or is_property(member))
    }


def is_property(member: object) -> bool:
    return isinstance(member, property)


def parameters(method) -> list[tuple[str, object, object]]:
    found = list(inspect.signature(method).parameters.values())[1:]
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


@pytest.fixture
def pair():
    with recto.open("memory:", model="gpt-4o") as session:
        yield session, AsyncSession(session)


@pytest.mark.parametrize("namespace", ["", *NAMESPACES])
def test_every_call_of_a_session_can_be_awaited_with_the_same_parameters(pair, namespace):
    blocking, awaited = (getattr(session, namespace) if namespace else session for session in pair)
    calls = public(awaited)
    for name, member in public(blocking).items():
        assert name in calls, f"AsyncSession lacks {namespace or 'session'}.{name}"
        if is_property(member):
            assert is_property(calls[name]) or parameters(calls[name]) == []
        else:
            assert parameters(calls[name]) == parameters(member), f"{namespace or 'session'}.{name}"


def test_an_async_session_has_no_call_that_a_session_lacks(pair):
    for namespace in ("", *NAMESPACES):
        blocking, awaited = (getattr(session, namespace) if namespace else session for session in pair)
        assert public(awaited).keys() <= public(blocking).keys()


def test_a_session_and_its_async_counterpart_have_the_same_attributes(pair):
    session, awaited = pair
    shared = {name for name in vars(session) if not name.startswith("_")}
    assert shared <= {name for name in vars(awaited) if not name.startswith("_")}
    assert set(NAMESPACES) <= shared


def test_a_session_has_at_most_32_public_members():
    assert len(public(Session.__new__(Session))) <= 32


def test_a_call_on_a_thread_completes_after_its_task_is_cancelled_and_returns_its_result():
    async def meet() -> tuple[str, list[str]]:
        free, ended = threading.Event(), []

        def work() -> str:
            free.wait(DEADLINE)
            ended.append("work")
            return "done"

        call = RunningCall(work)
        task = asyncio.create_task(call.complete())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await call, ended

    assert asyncio.run(meet()) == ("done", ["work"])


def test_an_error_of_a_call_on_a_thread_is_raised_where_it_is_awaited():
    def fail() -> None:
        raise ValueError("no")

    async def meet() -> None:
        await RunningCall(fail).complete()

    with pytest.raises(ValueError, match="no"):
        asyncio.run(meet())
