"""The doctor: checks that transcript and index agree, and rebuilds the index where they do not."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.cli.calling import called
from tests.spelling import SpellingEmbedder

import recto
from recto.cli.console import out
from recto.engine.doctor import CheckFinding, Doctor
from recto.errors import EmbedderFailed
from recto.recall.indexer import Indexer
from recto.recall.stemmer import PorterLexicon
from recto.stores.sqlite import SqliteStore
from recto.stores.sqlite.index import SqliteIndex

KEYS = ("agent:a:one", "agent:b:two")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with a store of two sessions and a complete index, which contains one very frequent word."""
    folder = tmp_path_factory.mktemp("made")
    for key in KEYS:
        with recto.open(folder / "a.db", session=key) as session:
            for number in range(12):
                session.append({"role": "user", "content": f"The lamp number{number} of {key} " + "flickers " * 400})
    examine(folder / "a.db", repair=True)
    return folder


@pytest.fixture
def stored(made, tmp_path) -> Path:
    """A copy of that store for one test to change."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a.db"


def examine(path: Path, *, repair: bool = False, embedder=None) -> list[CheckFinding]:
    """Returns the doctor's findings about the store and its index."""
    embedder = embedder or SpellingEmbedder()
    with SqliteStore(path) as store:
        indexer = Indexer(store, SqliteIndex(f"{path}-recall"), lexicon=PorterLexicon(), embedder=embedder)
        with closing(indexer):
            return [
                finding
                for finding in Doctor(indexer).examine(repair=repair)
                if finding.about != "embedder" or finding.cure[:3] == "see"
            ]


def problems_of(path: Path, **more) -> list[str]:
    return [finding.says for finding in examine(path, **more) if finding.grade == "problem"]


def finds(path: Path, key: str, word: str) -> int:
    with recto.open(path, session=key) as session:
        return sum(word in hit.text for hit in session.recall(word).hits)


def execute(path: Path, sql: str) -> int:
    connection = apsw.Connection(f"{path}-recall" if "terms" not in sql else str(path))
    try:
        connection.execute(sql)
        return connection.total_changes()
    finally:
        connection.close()


def test_an_entry_that_was_changed_is_a_problem_of_the_store_that_no_repair_hides(stored):
    connection = apsw.Connection(str(stored))
    [guard] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'entries_keep'").fetchone()
    changed = b'{"role":"user","content":"changed"}'
    connection.execute("DROP TRIGGER entries_keep")
    connection.execute("UPDATE entries SET content = ? WHERE session_no = 1 AND seq = 2", (changed,))
    connection.execute(guard)
    connection.close()
    for repair in (False, True, False):
        problems = [finding for finding in examine(stored, repair=repair) if finding.grade == "problem"]
        assert [(found.about, found.cure, found.repaired) for found in problems] == [("store", "recto verify", False)]
        assert f"session '{KEYS[0]}': entry 2 is not what was stored" in problems[0].says


def test_a_healthy_store_has_no_problem(stored):
    assert {finding.grade for finding in examine(stored)} == {"fine"}
    assert {finding.grade for finding in examine(stored, repair=True)} == {"fine"}


def test_an_index_that_is_behind_is_a_note_and_is_brought_up_to_date(stored):
    with recto.open(stored, session=KEYS[0]) as session:
        session.append({"role": "user", "content": "One more."})
    assert ("note", "index") in {(finding.grade, finding.about) for finding in examine(stored)}
    assert not problems_of(stored)
    assert {finding.grade for finding in examine(stored, repair=True)} == {"fine"}


@pytest.mark.requirement("recall.reindexed")
def test_a_missing_index_is_treated_as_one_that_is_behind(stored):
    for ending in ("-recall", "-recall-wal", "-recall-shm"):
        Path(f"{stored}{ending}").unlink(missing_ok=True)
    assert ("note", "index") in {(finding.grade, finding.about) for finding in examine(stored)}
    examine(stored, repair=True)
    assert finds(stored, KEYS[0], "number7") == 1


def test_a_session_missing_from_the_transcript_is_removed_from_the_index(stored):
    with SqliteIndex(f"{stored}-recall") as index:
        from recto.recall.index.rows import CoveredRange, IndexRow

        index.put("agent:gone:x", "words/porter", [IndexRow(1, b"x")], CoveredRange(1, 1, b"h"))
    [says] = problems_of(stored)
    assert "agent:gone:x" in says
    assert examine(stored, repair=True)[0].repaired
    assert problems_of(stored) == []
    with SqliteIndex(f"{stored}-recall") as index:
        assert "agent:gone:x" not in index.sessions()


def test_an_index_of_another_transcript_is_detected_and_rebuilt(stored, tmp_path):
    other = tmp_path / "b.db"
    for key in KEYS:
        with recto.open(other, session=key, recall={"enabled": False}) as session:
            for number in range(12):
                session.append({"role": "user", "content": f"The door number{number} of {key} is open."})
    Path(f"{stored}-recall").rename(f"{other}-recall")
    found = problems_of(other)
    assert len(found) == 2
    assert all("another one than the index has taken in" in says for says in found)
    examine(other, repair=True)
    assert problems_of(other) == []
    assert finds(other, KEYS[1], "number7") == 1


def test_a_transcript_shorter_than_its_index_is_detected(stored, tmp_path):
    short = tmp_path / "c.db"
    with recto.open(short, session=KEYS[0], recall={"enabled": False}) as session:
        session.append({"role": "user", "content": "The only one."})
    Path(f"{stored}-recall").rename(f"{short}-recall")
    found = problems_of(short)
    assert any("which is not in the transcript" in says for says in found)
    assert any(KEYS[1] in says for says in found)
    examine(short, repair=True)
    assert problems_of(short) == []


TAMPERED = {
    "rows cut short": "UPDATE terms SET data = substr(data, 1, length(data) / 2)",
    "rows of zeros": "UPDATE terms SET data = zeroblob(length(data))",
    "rows of another entry": """
        UPDATE terms SET data = (SELECT t.data FROM terms AS t WHERE length(t.data) <> length(terms.data) LIMIT 1)
        WHERE pos & 4294967295 = 1
    """,
    "rows taken away": "DELETE FROM terms",
    "coverage taken away": "DELETE FROM covered",
    "a hash of nothing": "UPDATE covered SET hash = x'00'",
    "coverage of more than there is": "UPDATE covered SET last = last + 5",
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_rows_are_detected_and_rebuilt(stored, name):
    with recto.open(stored, session=KEYS[0]) as session:  # so that rows differ in length
        session.append({"role": "user", "content": "Something quite different, once, number99."})
        session.recall("x")
    assert execute(stored, TAMPERED[name]) > 0
    assert any(finding.grade != "fine" for finding in examine(stored)), "it was not seen"
    examine(stored, repair=True)
    assert {finding.grade for finding in examine(stored)} == {"fine"}
    for key in KEYS:
        assert finds(stored, key, "number7") == 1


def test_an_added_table_is_detected(stored):
    execute(stored, "CREATE TABLE more(x)")
    assert problems_of(stored)
    examine(stored, repair=True)
    assert problems_of(stored) == []


@pytest.mark.parametrize("keep", [0, 100, 20_000])
def test_a_damaged_file_is_detected_set_aside_and_rebuilt(stored, keep):
    file = Path(f"{stored}-recall")
    whole = file.read_bytes()
    file.write_bytes(whole[:keep] + b"\x5a" * (len(whole) - keep))
    assert problems_of(stored)
    assert problems_of(stored), "looking changes nothing"
    assert not list(stored.parent.glob("*-damaged-*"))
    assert all(finding.repaired for finding in examine(stored, repair=True) if finding.grade == "problem")
    assert list(stored.parent.glob("*-damaged-1"))
    assert problems_of(stored) == []
    assert finds(stored, KEYS[0], "number7") == 1


def test_a_foreign_file_is_reported_and_left_alone(stored):
    file = Path(f"{stored}-recall")
    file.unlink()
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE mine(x); INSERT INTO mine VALUES (1)")
    connection.close()
    before = file.read_bytes()
    assert any("another kind" in says for says in problems_of(stored))
    assert any("another kind" in says for says in problems_of(stored, repair=True))
    assert file.read_bytes() == before


def test_a_failing_embedder_is_a_problem_of_its_own(stored):
    class Failing(SpellingEmbedder):
        def query(self, text):
            raise EmbedderFailed(self.name, "the plug is out")

    [problem] = [finding for finding in examine(stored, embedder=Failing()) if finding.grade == "problem"]
    assert (problem.about, problem.says) == ("embedder", "the plug is out")


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(path.parent))
        patched.setattr(out, "width", 200)
        return called("--store", str(path), *arguments)


def test_the_command_reports_and_repairs_damage_and_sets_its_exit_code(stored):
    healthy = run(stored, "doctor")
    assert healthy.returncode == 0, healthy.stderr
    assert "everything is in it" in healthy.stdout
    Path(f"{stored}-recall").write_bytes(b"garbage" * 10_000)
    damaged = run(stored, "doctor")
    assert damaged.returncode == 1, damaged.stderr
    assert "recto doctor --repair" in damaged.stdout
    assert "Traceback" not in damaged.stderr
    repaired = run(stored, "doctor", "--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert "(repaired)" in repaired.stdout
    assert run(stored, "doctor").returncode == 0


def test_the_command_writes_json_lines(stored):
    Path(f"{stored}-recall").write_bytes(b"garbage" * 10_000)
    done = run(stored, "doctor", "--json")
    assert done.returncode == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"grade", "about", "says", "cure", "repaired"} == set(rows[0])
    assert rows[0]["grade"] == "problem"
    assert not rows[0]["repaired"]


def test_there_must_be_a_store(tmp_path):
    assert run(tmp_path / "none.db", "doctor").returncode == 4
    assert not (tmp_path / "none.db").exists()
