"""Admission of large request bodies: bounded in total, every body is admitted in the end, and no key blocks another."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, ExitStack

import pytest

from recto.errors import RequestRefused
from recto.gateway.middleware._body import BodyAdmission

MB = 1 << 20
QUICK = 1e15
"""Bytes per second: effectively unlimited."""


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_small_bodies_never_wait():
    async def run() -> int:
        arrivals = BodyAdmission(capacity=0, rate=QUICK)
        with ExitStack() as stack:
            for _ in range(1_000):
                body = stack.enter_context(arrivals.body("a"))
                await body.take(MB)
            return arrivals.buffered

    assert asyncio.run(run()) == 0


def test_the_first_body_is_admitted_above_the_capacity_and_the_second_waits_until_it_has_arrived():
    async def run() -> list[str]:
        arrivals, log = BodyAdmission(capacity=2 * MB, rate=QUICK), []
        go_on = asyncio.Event()

        async def first() -> None:
            with arrivals.body("a") as body:
                await body.take(30 * MB)
                log.append("first came")
                await go_on.wait()
                log.append("first is over")

        async def second() -> None:
            with arrivals.body("b") as body:
                await body.take(2 * MB)
                log.append("second came")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first())
            await settled()
            tasks.create_task(second())
            await settled()
            assert log == ["first came"]
            go_on.set()
        return log

    assert asyncio.run(run()) == ["first came", "first is over", "second came"]


def test_a_key_with_many_bodies_leaves_capacity_for_another():
    async def run() -> tuple[int, bool]:
        arrivals = BodyAdmission(capacity=8 * MB, rate=QUICK)
        came: list[str] = []

        async def body(key: str, until: asyncio.Event) -> None:
            with arrivals.body(key) as admitted:
                await admitted.take(2 * MB)
                came.append(key)
                await until.wait()

        end = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(body("many", end))
            await settled()
            many = len(came)
            tasks.create_task(body("one", end))
            await settled()
            alone = came[-1] == "one"
            end.set()
        assert len(came) == 11
        return many, alone

    assert asyncio.run(run()) == (3, True)  # the body that is always admitted, and half of the capacity


def test_a_body_that_waits_too_long_is_refused_with_503_and_releases_its_bytes():
    async def run() -> int:
        arrivals = BodyAdmission(capacity=MB, rate=QUICK, wait_seconds=0.01)
        with arrivals.body("a") as first:
            await first.take(4 * MB)
            with pytest.raises(RequestRefused) as refused, arrivals.body("b") as second:
                await second.take(4 * MB)
            assert refused.value.status == 503
            return arrivals.buffered

    assert asyncio.run(run()) == 4 * MB


@pytest.mark.parametrize("seed", range(20))
def test_all_bodies_arrive_and_buffer_at_most_the_capacity_and_one_body(seed):
    rng = random.Random(seed)
    most = 6 * MB

    async def run() -> int:
        arrivals, peak = BodyAdmission(capacity=4 * MB, rate=QUICK), 0

        async def body(key: str, size: int, gives_up: bool) -> None:
            nonlocal peak
            with arrivals.body(key) as admitted:
                for _ in range(0, size, MB // 4):
                    await admitted.take(MB // 4)
                    peak = max(peak, arrivals.buffered)
                    if gives_up and rng.random() < 0.1:
                        return

        async with AsyncExitStack() as stack, asyncio.timeout(30):
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for number in range(40):
                tasks.create_task(body(f"key {number % 3}", rng.randrange(most), rng.random() < 0.3))
        assert arrivals.buffered == 0
        return peak

    assert MB < asyncio.run(run()) <= 4 * MB + most
