"""Fixtures for every test: the real data, and how much of a long test to run."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Generator, Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Protocol

import httpcore2
import pytest
import uvicorn
from hypothesis import settings

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("RECTO_TEST_DATA", ROOT.parent / "shared" / "data")).absolute()
os.environ["RECTO_TEST_DATA"] = str(DATA)  # for benchmarks and processes, which do not start in this folder
SCALE = os.environ.get("RECTO_TEST_SCALE", "small")
SCALES = ("small", "ci", "tenfold", "release")

# Sessions opened in tests do not load the real embedding model unless the test requests it: loading takes seconds.
os.environ.setdefault("RECTO_RECALL__EMBEDDER__USE", "none")

settings.register_profile(
    "recto", deadline=None, derandomize=True, max_examples={"release": 1000, "tenfold": 400}.get(SCALE, 40)
)
settings.load_profile("recto")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real sessions."""
    if not DATA.is_dir():
        pytest.skip(f"no real data at {DATA}; name its folder in RECTO_TEST_DATA")
    return DATA


@pytest.fixture(scope="module", autouse=True)
def empty_working_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs the tests of a file in an empty folder.

    Checkpoints contain what git says of the working directory: in a checkout that takes 30 ms each time, and depends on
    what a developer has just changed.
    """
    with chdir(tmp_path_factory.mktemp("working-folder")):
        yield


@pytest.fixture(scope="session", autouse=True)
def one_tls_context() -> Iterator[None]:
    """HTTP clients share one TLS context, which no test uses: each would read all certificate authorities for 40 ms."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def servers_stop_promptly() -> Iterator[None]:
    """Servers see within 20 ms that they are to stop. uvicorn looks every 100 ms, and a thousand tests wait for it."""

    async def main_loop(server: uvicorn.Server) -> None:
        ticks = 0
        while not await server.on_tick(ticks):
            ticks = (ticks + 1) % 864_000
            for _ in range(5):
                if not server.should_exit:
                    await asyncio.sleep(0.02)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(uvicorn.Server, "main_loop", main_loop)
        yield


class Rounds(Protocol):
    """Returns the number of rounds of a long test: few locally, more in CI, ten times that or more before a release."""

    def __call__(self, small: int, *, release: int, ci: int | None = None) -> int: ...


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> Rounds:
    """Picks a number by `RECTO_TEST_SCALE`. A test with a number of its own for CI is marked as a promise."""

    def rounds(small: int, *, release: int, ci: int | None = None) -> int:
        if ci is not None and request.node.get_closest_marker("promise") is None:
            pytest.fail("a test with a number for CI needs @pytest.mark.promise: otherwise CI never runs it")
        in_ci = small if ci is None else ci
        return {"small": small, "ci": in_ci, "tenfold": min(10 * in_ci, release), "release": release}[SCALE]

    return rounds


def pytest_configure(config: pytest.Config) -> None:
    if SCALE not in SCALES:
        raise pytest.UsageError(f"RECTO_TEST_SCALE is one of {', '.join(SCALES)}, not {SCALE!r}")
    config.addinivalue_line("markers", "promise: has a larger number of rounds in CI (make test-promises)")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disables garbage collection during collection: nothing loaded here is freed, and scanning it takes seconds.

    The objects are frozen afterwards, so that forked processes share their memory.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the longest tests first, so that no worker is still running one at the end."""
    items.sort(key=lambda item: "faults" not in item.path.parts)
