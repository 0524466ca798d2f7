"""Gateways with a seeded session for the screens to show."""

from __future__ import annotations

import shutil

import pytest
from tests.tui.driving import fill, running_gateway


@pytest.fixture(scope="package")
def seeded_gateway(tmp_path_factory):
    """A gateway whose session has every kind of entry. Shared by tests that only read."""
    with running_gateway(tmp_path_factory.mktemp("shown")) as made:
        fill(made)
        yield made


@pytest.fixture(scope="package")
def seeded_folder(tmp_path_factory):
    """A folder with a store that already has a session in it."""
    folder = tmp_path_factory.mktemp("filled")
    with running_gateway(folder) as made:
        fill(made, exchanges=6, proposals=2)
    return folder


@pytest.fixture
def fresh_gateway(seeded_folder, tmp_path):
    """A gateway with a short session, for one test that changes it."""
    shutil.copytree(seeded_folder, tmp_path, dirs_exist_ok=True)
    with running_gateway(tmp_path) as made:
        yield made
