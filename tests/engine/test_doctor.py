"""The doctor: says whether transcript and index agree, and makes the index anew where they do not."""

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
    """A folder with a store of two sessions whose index is whole. A word that comes very often is in it."""
    folder = tmp_path_factory.mktemp("made")
    for key in KEYS:
        with recto.open(folder / "a.db", session=key) as session:
            for number in range(12):
                session.append({"role": "user", "content": f"The lamp number{number} of {key} " + "flickers " * 400})
    examined(folder / "a.db", mend=True)
    return folder


@pytest.fixture
def stored(made, tmp_path) -> Path:
    """That store, for a test to do with as it likes."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a.db"


def examined(path: Path, *, mend: bool = False, embedder=None) -> list[CheckFinding]:
    """What is found of the store and its index."""
    embedder = embedder or SpellingEmbedder()
    with SqliteStore(path) as store:
        indexer = Indexer(store, SqliteIndex(f"{path}-recall"), lexicon=PorterLexicon(), embedder=embedder)
        with closing(indexer):
            return [
                one for one in Doctor(indexer).examine(repair=mend) if one.about != "embedder" or one.cure[:3] == "see"
            ]


def problems(path: Path, **more) -> list[str]:
    return [one.says for one in examined(path, **more) if one.grade == "problem"]


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


def test_a_healthy_store_has_no_problem_whatever_it_says(stored):
    assert {one.grade for one in examined(stored)} == {"fine"}
    assert {one.grade for one in examined(stored, mend=True)} == {"fine"}


def test_an_index_that_is_behind_is_a_note_and_is_brought_up_to_date(stored):
    with recto.open(stored, session=KEYS[0]) as session:
        session.append({"role": "user", "content": "One more."})
    assert ("note", "index") in {(one.grade, one.about) for one in examined(stored)}
    assert not problems(stored)
    assert {one.grade for one in examined(stored, mend=True)} == {"fine"}


@pytest.mark.requirement("recall.reindexed")
def test_an_index_that_is_gone_is_as_one_that_is_behind(stored):
    for ending in ("-recall", "-recall-wal", "-recall-shm"):
        Path(f"{stored}{ending}").unlink(missing_ok=True)
    assert ("note", "index") in {(one.grade, one.about) for one in examined(stored)}
    examined(stored, mend=True)
    assert finds(stored, KEYS[0], "number7") == 1


def test_a_session_that_the_transcript_does_not_have_is_forgotten(stored):
    with SqliteIndex(f"{stored}-recall") as index:
        from recto.recall.index.rows import CoveredRange, IndexRow

        index.put("agent:gone:x", "words/porter", [IndexRow(1, b"x")], CoveredRange(1, 1, b"h"))
    [says] = problems(stored)
    assert "agent:gone:x" in says
    assert examined(stored, mend=True)[0].repaired
    assert problems(stored) == []
    with SqliteIndex(f"{stored}-recall") as index:
        assert "agent:gone:x" not in index.sessions()


def test_another_transcript_under_the_same_index_is_seen_and_indexed_anew(stored, tmp_path):
    other = tmp_path / "b.db"
    for key in KEYS:
        with recto.open(other, session=key, recall={"enabled": False}) as session:
            for number in range(12):
                session.append({"role": "user", "content": f"The door number{number} of {key} is open."})
    Path(f"{stored}-recall").rename(f"{other}-recall")
    found = problems(other)
    assert len(found) == 2
    assert all("another one than the index has taken in" in says for says in found)
    examined(other, mend=True)
    assert problems(other) == []
    assert finds(other, KEYS[1], "number7") == 1


def test_a_transcript_that_is_shorter_than_its_index_is_seen(stored, tmp_path):
    short = tmp_path / "c.db"
    with recto.open(short, session=KEYS[0], recall={"enabled": False}) as session:
        session.append({"role": "user", "content": "The only one."})
    Path(f"{stored}-recall").rename(f"{short}-recall")
    found = problems(short)
    assert any("which is not in the transcript" in says for says in found)
    assert any(KEYS[1] in says for says in found)
    examined(short, mend=True)
    assert problems(short) == []


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
def test_rows_that_were_tampered_with_are_seen_and_made_anew(stored, name):
    with recto.open(stored, session=KEYS[0]) as session:  # so that rows differ in length
        session.append({"role": "user", "content": "Something quite different, once, number99."})
        session.recall("x")
    assert execute(stored, TAMPERED[name]) > 0
    assert any(one.grade != "fine" for one in examined(stored)), "it was not seen"
    examined(stored, mend=True)
    assert {one.grade for one in examined(stored)} == {"fine"}
    for key in KEYS:
        assert finds(stored, key, "number7") == 1


def test_a_table_that_was_added_is_seen(stored):
    execute(stored, "CREATE TABLE more(x)")
    assert problems(stored)
    examined(stored, mend=True)
    assert problems(stored) == []


@pytest.mark.parametrize("keep", [0, 100, 20_000])
def test_a_damaged_file_is_seen_set_aside_and_made_anew(stored, keep):
    file = Path(f"{stored}-recall")
    whole = file.read_bytes()
    file.write_bytes(whole[:keep] + b"\x5a" * (len(whole) - keep))
    assert problems(stored)
    assert problems(stored), "looking changes nothing"
    assert not list(stored.parent.glob("*-damaged-*"))
    assert all(one.repaired for one in examined(stored, mend=True) if one.grade == "problem")
    assert list(stored.parent.glob("*-damaged-1"))
    assert problems(stored) == []
    assert finds(stored, KEYS[0], "number7") == 1


def test_a_file_that_is_not_ours_is_told_of_and_left_alone(stored):
    file = Path(f"{stored}-recall")
    file.unlink()
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE mine(x); INSERT INTO mine VALUES (1)")
    connection.close()
    before = file.read_bytes()
    assert any("another kind" in says for says in problems(stored))
    assert any("another kind" in says for says in problems(stored, mend=True))
    assert file.read_bytes() == before


def test_an_embedder_that_does_not_answer_is_a_problem_of_its_own(stored):
    class Failing(SpellingEmbedder):
        def query(self, text):
            raise EmbedderFailed(self.name, "the plug is out")

    [problem] = [one for one in examined(stored, embedder=Failing()) if one.grade == "problem"]
    assert (problem.about, problem.says) == ("embedder", "the plug is out")


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(path.parent))
        patched.setattr(out, "width", 200)
        return called("--store", str(path), *arguments)


def test_the_command_says_what_is_wrong_mends_it_and_answers_by_its_code(stored):
    well = run(stored, "doctor")
    assert well.returncode == 0, well.stderr
    assert "everything is in it" in well.stdout
    Path(f"{stored}-recall").write_bytes(b"garbage" * 10_000)
    ill = run(stored, "doctor")
    assert ill.returncode == 1, ill.stderr
    assert "recto doctor --repair" in ill.stdout
    assert "Traceback" not in ill.stderr
    mended = run(stored, "doctor", "--repair")
    assert mended.returncode == 0, mended.stderr
    assert "(repaired)" in mended.stdout
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
