"""A session for the screens to show."""

from __future__ import annotations

import shutil

import pytest
from tests.tui.driving import fill, talking


@pytest.fixture(scope="package")
def shown(tmp_path_factory):
    """A gateway with a session that has something of everything. Tests that share it change nothing."""
    with talking(tmp_path_factory.mktemp("shown")) as made:
        fill(made)
        yield made


@pytest.fixture(scope="package")
def filled(tmp_path_factory):
    """A folder with a store in which somebody has worked."""
    folder = tmp_path_factory.mktemp("filled")
    with talking(folder) as made:
        fill(made, exchanges=6, proposals=2)
    return folder


@pytest.fixture
def fresh(filled, tmp_path):
    """A gateway of its own with a short session, for tests that change something."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    with talking(tmp_path) as made:
        yield made
