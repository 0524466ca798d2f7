"""Provides a folder in memory, for tests that open thousands of stores and do not need a real disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def swift_folder() -> Iterator[Path]:
    in_memory = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        yield Path(folder)
