"""A browser for each file of tests, a fresh visit for each test, and a gateway that each may change.

The browser is not shared by the whole run: while Playwright is at work in a thread, no other event loop can run there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from tests.web.browsing import BUILT, CHROMIUM, Visit, chromium, visit
from tests.web.worlds import World, fill, world

Visiting = Callable[..., AbstractContextManager[Visit]]


@pytest.fixture(scope="module")
def visiting() -> Iterator[Visiting]:
    """Opens visits: `with visiting(url) as visit`."""
    if not CHROMIUM:
        pytest.skip("there is no Chromium here: make chromium")
    if not BUILT.exists():
        pytest.skip("the page is not built: make web")
    with chromium() as browser:
        yield partial(visit, browser)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that nobody changes."""
    folder = tmp_path_factory.mktemp("filled")
    fill(folder)
    return folder


@pytest.fixture(scope="module")
def told(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway for tests that only look."""
    with world(tmp_path_factory.mktemp("told"), filled) as made:
        yield made


@pytest.fixture
def fresh(filled: Path, tmp_path: Path) -> Iterator[World]:
    """A gateway of one's own, for tests that change something."""
    with world(tmp_path, filled) as made:
        yield made


@pytest.fixture(scope="module")
def one_visit(visiting: Visiting, told: World) -> Iterator[Visit]:
    """A visit for all tests of a file that only look: loading the page anew for each would cost seconds."""
    with visiting(told.url) as made:
        yield made


@pytest.fixture
def looking(one_visit: Visit) -> Iterator[Visit]:
    """The visit to the gateway that nobody changes; what is wrong after a test is told there."""
    yield one_visit
    one_visit.end()


@pytest.fixture
def arriving(visiting: Visiting, told: World) -> Iterator[Visit]:
    """A first visit to the gateway that nobody changes, with nothing kept from before."""
    with visiting(told.url) as made:
        yield made


@pytest.fixture
def changing(visiting: Visiting, fresh: World) -> Iterator[Visit]:
    """A visit to the gateway of one's own."""
    with visiting(fresh.url) as made:
        yield made
