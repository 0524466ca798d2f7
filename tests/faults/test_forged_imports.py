"""Promise 21: a Recto file that was forged, reordered, cut or edited is refused, and a name in it is only a name.

Each round changes one thing in a valid file and reads it. Only a change of JSON spelling may go unnoticed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from recto.errors import InputError
from recto.formats.session_files import lines_of, read_file
from recto.formats.session_files.recto_jsonl import read_copies, read_entries, write_header, write_line
from recto.transcript.entries import EMPTY_HEAD, Draft, Entry, Head, entry_hash, link_entries

PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "C:\\Windows\\x",
    "..",
    "~root",
    "s\u202egnp.exe",
    "con",
    "a/../../b",
    "%2e%2e",
]


def transcript(session: str, size: int) -> list[Entry]:
    drafts = [
        Draft(id=f"e{n}", ts=n, role="user", content=b'{"role":"user","content":"%d"}' % n, key=f"k{n}")
        for n in range(size)
    ]
    return link_entries(session, EMPTY_HEAD, drafts)


TRUE = [entry for pair in zip(transcript("a", 4), transcript("b", 4), strict=True) for entry in pair]
HEADS = {entry.session: Head(entry.seq, entry.hash) for entry in TRUE}
LINES = [write_line(entry) for entry in TRUE]
FILE = [write_header(HEADS), *LINES]


def accepted(raw: bytes) -> tuple[list[Entry], bool]:
    """Returns the entries that were read before the end or an error, and whether there was an error."""
    found: list[Entry] = []
    try:
        for entry in read_entries(lines_of([raw]), "x.jsonl"):
            found.append(entry)  # noqa: PERF402  entries before an error count
    except InputError:
        return found, True
    return found, False


def edited(lines: list[bytes], chance: random.Random) -> None:
    """Flips a bit anywhere."""
    place = chance.randrange(len(lines))
    line = bytearray(lines[place])
    at = chance.randrange(len(line) - 1)
    line[at] ^= 1 << chance.randrange(8)
    lines[place] = bytes(line)


def rewritten(lines: list[bytes], chance: random.Random) -> None:
    """Changes a field and leaves the hash as it is."""
    place = chance.randrange(1, len(lines))
    fields = json.loads(lines[place])
    key = chance.choice([key for key in fields if key not in ("key",)])
    value = fields[key]
    fields[key] = {**value, "x": 1} if isinstance(value, dict) else value + (1 if isinstance(value, int) else "x")
    lines[place] = json.dumps(fields).encode() + b"\n"


def forged(lines: list[bytes], chance: random.Random) -> None:
    """Changes the content and its hash: only the next entry reveals it."""
    place = chance.randrange(1, len(lines))
    entry = TRUE[place - 1]
    content = b'{"role":"user","content":"forged"}'
    draft = Draft(id=entry.id, ts=entry.ts, role=entry.role, content=content, key=entry.key)
    digest = entry_hash(entry.session, entry.seq, entry.prev, draft)
    lines[place] = (
        lines[place].replace(entry.content, content).replace(entry.hash.hex().encode(), digest.hex().encode())
    )


def reordered(lines: list[bytes], chance: random.Random) -> None:
    """Swaps two entries of one session."""
    first, second = sorted(chance.sample(range(1, len(lines), 2), 2))
    lines[first], lines[second] = lines[second], lines[first]


def cut(lines: list[bytes], chance: random.Random) -> None:
    """Removes any line."""
    del lines[chance.randrange(len(lines))]


def broken_off(lines: list[bytes], chance: random.Random) -> None:
    """Truncates the file, in a line or between two."""
    whole = b"".join(lines)
    lines[:] = [whole[: chance.randrange(len(whole) - 1)]]


def doubled(lines: list[bytes], chance: random.Random) -> None:
    """Repeats a line."""
    place = chance.randrange(1, len(lines))
    lines.insert(chance.randrange(place + 1, len(lines) + 1), lines[place])


def moved_to_another_session(lines: list[bytes], chance: random.Random) -> None:
    """Moves an entry to another session."""
    place = chance.randrange(1, len(lines))
    lines[place] = lines[place].replace(
        f'"session": "{TRUE[place - 1].session}"'.encode(), json.dumps({"session": chance.choice(PATHS)}).encode()[1:-1]
    )


FORGERIES = [edited, rewritten, forged, reordered, cut, broken_off, doubled, moved_to_another_session]


def says_the_same(raw: bytes) -> bool:
    """Returns whether the change only affects whitespace or spelling: then it is still the same transcript."""
    return accepted(raw) == (TRUE, False)


def rounds(read: Callable[[bytes], tuple[list[Entry], bool]], count: int) -> int:
    """Returns how many forgeries were accepted."""
    chance = random.Random(21)
    accepted_forgeries = 0
    for turn in range(count):
        lines = list(FILE)
        FORGERIES[turn % len(FORGERIES)](lines, chance)
        found, refused = read(b"".join(lines))
        if not refused and found != TRUE:
            accepted_forgeries += 1
    return accepted_forgeries


@pytest.mark.promise
def test_no_forged_file_is_accepted(scale):
    assert rounds(accepted, scale(2_000, ci=20_000, release=100_000)) == 0


def believing(raw: bytes) -> tuple[list[Entry], bool]:
    """A reader that trusts the lines: the control."""
    found = []
    try:
        for line in lines_of([raw]):
            fields = json.loads(line.body)
            if "recto" not in fields:
                found.append(
                    next(entry for entry in TRUE if entry.id == fields["id"] and entry.session == fields["session"])
                )
    except (ValueError, KeyError, StopIteration):
        return found, True
    return found, False


def test_a_reader_that_trusts_the_file_is_caught():
    assert rounds(believing, 800) > 100


def test_without_heads_in_the_header_only_a_clean_cut_at_the_end_is_undetected():
    lines = [write_header(), *LINES]
    for count in range(1, len(lines) + 1):
        found, refused = accepted(b"".join(lines[:count]))
        assert (found, refused) == (TRUE[: count - 1], False)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_as_a_session_name_stays_a_name(name):
    entries = transcript(name, 2) if name.isprintable() else None
    if entries is None:
        line = write_line(transcript("a", 1)[0]).replace(
            b'"session": "a"', json.dumps({"session": name}).encode()[1:-1]
        )
        with pytest.raises(InputError, match="printable"):
            list(read_entries(lines_of([write_header() + line]), "x"))
        return
    raw = write_header({name: Head(2, entries[-1].hash)}) + b"".join(map(write_line, entries))
    assert [entry.session for entry in read_entries(lines_of([raw]), "x")] == [name, name]
    assert {entry.session for entry in read_copies(lines_of([raw]), "x", "x", None)} == {name, "x"}


@pytest.mark.promise
def test_a_damaged_file_is_never_read_as_complete_even_with_keep_going(scale):
    chance = random.Random(3)
    for turn in range(scale(400, ci=2_000, release=20_000)):
        lines = list(FILE)
        FORGERIES[turn % len(FORGERIES)](lines, chance)
        raw = b"".join(lines)
        problems: list[object] = []
        try:
            found = list(read_file([raw], "x.jsonl", keep_going=True, report=problems.append))
        except InputError:
            continue
        assert b"".join(entry.source for entry in found) == raw
        assert problems or says_the_same(raw)
