"""What every test may ask for: the real data, and how much of a long test to run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("RECTO_TEST_DATA", ROOT.parent / "shared" / "data"))
RELEASE = os.environ.get("RECTO_TEST_SCALE") == "release"

# A session opened in a test embeds nothing by the real model unless the test asks for it: that takes seconds.
os.environ.setdefault("RECTO_RECALL__EMBEDDER__USE", "hashing")

settings.register_profile("recto", deadline=None, derandomize=True, max_examples=1000 if RELEASE else 40)
settings.load_profile("recto")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real sessions."""
    if not DATA.is_dir():
        pytest.skip(f"no real data at {DATA}; name its folder in RECTO_TEST_DATA")
    return DATA


@pytest.fixture(scope="session")
def scale() -> Callable[[int, int], int]:
    """How many rounds: the first number at each change, the second before a release."""
    return lambda ci, release: release if RELEASE else ci


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: "faults" not in item.path.parts)
