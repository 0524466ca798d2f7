"""Fixtures: a browser for each test file, visits, and gateways over a seeded store.

The browser is not shared by the whole run: while Playwright runs in a thread, no other event loop can run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from tests.web.browsing import BUILT, CHROMIUM, Visit, chromium, visit
from tests.web.worlds import World, fill, world

VisitFactory = Callable[..., AbstractContextManager[Visit]]


@pytest.fixture(scope="module")
def open_visit() -> Iterator[VisitFactory]:
    """Opens visits: `with open_visit(url) as visit`."""
    if not CHROMIUM:
        pytest.skip("Chromium is not installed: make chromium")
    if not BUILT.exists():
        pytest.skip("the page is not built: make web")
    with chromium() as browser:
        yield partial(visit, browser)


@pytest.fixture(scope="session")
def seeded_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a seeded store that no test changes."""
    folder = tmp_path_factory.mktemp("seeded-store")
    fill(folder)
    return folder


@pytest.fixture(scope="module")
def seeded_world(seeded_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway over the seeded store, shared by the tests of a file that only read."""
    with world(tmp_path_factory.mktemp("seeded-world"), seeded_store) as made:
        yield made


@pytest.fixture
def fresh_world(seeded_store: Path, tmp_path: Path) -> Iterator[World]:
    """A gateway over a copy of the seeded store, for one test that changes it."""
    with world(tmp_path, seeded_store) as made:
        yield made


@pytest.fixture(scope="module")
def shared_visit(open_visit: VisitFactory, seeded_world: World) -> Iterator[Visit]:
    """A visit shared by the read-only tests of a file: loading the page again for each would take seconds."""
    with open_visit(seeded_world.url) as made:
        yield made


@pytest.fixture
def read_only_visit(shared_visit: Visit) -> Iterator[Visit]:
    """The shared visit to the read-only gateway; asserts after each test that the visit stayed clean."""
    yield shared_visit
    shared_visit.assert_clean()


@pytest.fixture
def new_visit(open_visit: VisitFactory, seeded_world: World) -> Iterator[Visit]:
    """A first visit to the read-only gateway, with empty browser storage."""
    with open_visit(seeded_world.url) as made:
        yield made


@pytest.fixture
def editing_visit(open_visit: VisitFactory, fresh_world: World) -> Iterator[Visit]:
    """A visit to the gateway of this test alone."""
    with open_visit(fresh_world.url) as made:
        yield made
