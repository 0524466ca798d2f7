"""A program may exit at any moment: background threads end with it, and its exit code is preserved."""

from __future__ import annotations

import subprocess
import sys

import pytest

from recto.models import weights
from recto.models.embedders import ARCTIC

PROGRAM = """
import atexit, os, sys, threading
import recto
from recto.models.embedders.onnx import OnnxEmbedder

embedding, documents = threading.Event(), OnnxEmbedder.documents

def observed(self, texts):
    embedding.set()
    return documents(self, texts)

OnnxEmbedder.documents = observed
small = {"gpt-4o": {"window": 16_000, "max_input": 16_000}}
session = recto.open("memory:", model="gpt-4o", models=small, recall={"embedder": {"use": "arctic", "cpu_share": 1.0}})
for number in range(16):
    session.append({"role": "user", "content": f"Garden {number}. " + "A path leads to the old gate. " * 80})
    session.append({"role": "assistant", "content": "Roses, and a pond with fish, by the wall. " * 40})
session.append({"role": "user", "content": "Go on."})
session.prompt()
assert embedding.wait(60)
"""
ENDINGS = {
    "the end": ("", 0),
    "close": ("session.close()", 0),
    "sys.exit": ("sys.exit(7)", 7),
    "an exception": ("raise LookupError", 1),
    "a thread that outlives the main one": (
        "threading.Thread(target=lambda: session.append({'role': 'assistant', 'content': 'Bye.'})).start()",
        0,
    ),
    "an exit handler that closes": ("atexit.register(session.close)", 0),
    "an exit handler that talks": ("atexit.register(session.prompt)", 0),
    "a forked child": (
        """
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
else:
    with recto.open("memory:", model="gpt-4o", recall={"embedder": {"use": "arctic"}}) as other:
        other.append({"role": "user", "content": "The backup failed."})
        assert not other.recall("Did the backup work?").without_vectors
    sys.exit(5)
""",
        0,
    ),
    "asyncio": (
        """
import asyncio
async def talk():
    async with await recto.open_async("memory:", model="gpt-4o", models=small) as other:
        await other.append({"role": "user", "content": "A path leads to the old gate. " * 1_000})
        await other.prompt()
asyncio.run(talk())
""",
        0,
    ),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_exiting_during_embedding_keeps_its_exit_code(name):
    if weights.find(ARCTIC) is None:
        pytest.skip(f"the weights are not here; 'make weights' or 'recto models get {ARCTIC}' fetches them")
    ending, code = ENDINGS[name]
    done = subprocess.run([sys.executable, "-c", PROGRAM + ending], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "terminate called" not in done.stderr
    assert "Exception ignored" not in done.stderr
