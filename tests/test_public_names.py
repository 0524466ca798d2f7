"""The public names of the package, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys


def test_importing_recto_loads_nothing_heavy():
    heavy = "apsw,splintr,rich,click,yaml,asyncio,recto.stores,recto.models,recto.engine"
    check = f"import recto,sys; print([m for m in '{heavy}'.split(',') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"


def test_the_public_names_are_these():
    import recto

    assert sorted(recto.__all__) == sorted(PUBLIC)
    for name in recto.__all__:
        assert getattr(recto, name) is not None


PUBLIC = [
    "AsyncSession",
    "Conversations",
    "Entry",
    "Following",
    "Head",
    "Prompt",
    "RectoError",
    "Session",
    "Settings",
    "TranscriptStore",
    "Verification",
    "__version__",
    "bounded",
    "errors",
    "fit",
    "follow",
    "open",
    "open_async",
    "verify",
]
