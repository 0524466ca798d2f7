"""Two reads of one file are alike; two files are not."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.formats import read
from recto.formats.session_files import read_file
from recto.text.similarity import cosine, text_vector

FILE = "\n".join(
    f"def rule_{word}(order, customer):\n    return order.{word} and customer.may('{word}')"
    for word in "ship pay hold split merge cancel refund return weigh price stamp print scan store".split()  # noqa: SIM905
)
RUN = (
    "collected 42 items\n"
    + "\n".join(f"tests/test_{n}.py::test_case_{n} PASSED" for n in range(42))
    + "\n42 passed in "
)
PROSE = "The harbour was quiet in the morning; two boats lay at the pier and nobody had yet come to unload them."


def numbered(text: str, first: int = 1) -> str:
    return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(text.splitlines(), first))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FILE, FILE),
        (FILE, FILE.replace("may('pay')", "can('pay', now=True)")),
        (numbered(FILE), numbered("import os\n" + FILE)),
        (RUN + "0.51 s", RUN + "0.73 s"),
        ("数据库连接失败，请检查网络设置后重试。" * 3, "数据库连接失败，请检查网络设置后再试。" * 3),
    ],
)
def test_what_says_nearly_the_same_is_alike(one, other):
    assert cosine(text_vector(one), text_vector(other)) > 0.85


@pytest.mark.parametrize(
    ("one", "other"), [(FILE, RUN), (FILE, PROSE), (RUN, PROSE), ("数据库连接失败", "今天天气很好")]
)
def test_what_is_about_other_things_is_not(one, other):
    assert cosine(text_vector(one), text_vector(other)) < 0.5


@given(st.text(), st.text())
def test_likeness_is_between_0_and_1_and_the_same_both_ways(one, other):
    first, second = text_vector(one), text_vector(other)
    assert 0 <= cosine(first, second) <= 1
    assert cosine(first, second) == pytest.approx(cosine(second, first))
    assert cosine(first, first) == pytest.approx(1 if first else 0)


def test_a_vector_is_the_same_in_every_process():
    script = f"from recto.text.similarity import text_vector; print(sorted(text_vector({PROSE!r}).items()))"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == str(sorted(text_vector(PROSE).items()))


def test_real_files_read_twice_are_alike_and_different_files_are_not(data):
    again, apart = [], []
    for file in sorted((data / "agent_sessions").rglob("*.jsonl"))[::2]:
        found: dict[str, list] = {}
        entries = [entry for entry in read_file([file.read_bytes()], file.name) if entry.kind == "message"]
        messages = [read(entry.content, entry.wire) for entry in entries]
        calls = {part.call_id: part for message in messages for part in message.calls if part.name == "Read"}
        for part in (part for message in messages for part in message.results):
            if part.call_id in calls and len(part.text) > 400 and '"offset"' not in calls[part.call_id].text:
                found.setdefault(calls[part.call_id].text, []).append(text_vector(part.text))
        again += [cosine(*pair) for reads in found.values() for pair in pairwise(reads)]
        firsts = [reads[0] for reads in found.values()]
        apart += [cosine(*pair) for pair in pairwise(firsts)]
    assert len(again) > 10
    assert sum(likeness > 0.85 for likeness in again) / len(again) > 0.75
    assert sum(likeness < 0.5 for likeness in apart) / len(apart) > 0.85
