"""Every embedder returns rows of length 1, is deterministic, and has a single kind of failure."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.errors import EmbedderFailed, SettingsError
from recto.models import embedders, weights
from recto.models.embedders import ARCTIC, ARCTIC_NAME, MULTILINGUAL, EmbedderChoice, embedder_for, known_embedder
from recto.models.embedders.onnx import OnnxEmbedder
from recto.recall.protocols import Embedder

TEXTS = [
    "The nightly backup fails because the disk of the database server is full.",
    "My sister's birthday is on the third of May.",
    "def parse_header(line: str) -> tuple[str, str]: ...",
    "日本語の文章はここにあります。",
    "Привет, как дела?",
    "café naïve Ünïcödé",
    "🎉🎉 emoji \N{ZERO WIDTH JOINER} \x00 \x1b[2J",
    "lone \ud800 surrogate \udfff",
    "[CLS] text [SEP] [PAD] [MASK]",
    "word " * 3000,
    "x" * 50_000,
]
BLANK = ["", " \n\t ", "\x00\x00"]
anything = st.text(st.characters(codec=None), max_size=200)


@pytest.fixture(scope="session")
def arctic() -> OnnxEmbedder:
    """The default embedded model, loaded once."""
    if weights.find(ARCTIC) is None:
        pytest.skip(f"the weights are not here; 'make weights' or 'recto models get {ARCTIC}' fetches them")
    found = embedder_for(EmbedderChoice(use="arctic"))
    assert isinstance(found, OnnxEmbedder)
    return found


@pytest.fixture
def embedder(arctic) -> Embedder:
    return arctic


@pytest.fixture
def folder(arctic, tmp_path) -> Path:
    """Returns a folder in a publisher's layout with the files of the default model."""
    (tmp_path / "mine" / "onnx").mkdir(parents=True)
    (tmp_path / "mine" / "onnx" / "model.onnx").symlink_to(arctic.folder / "model.onnx")
    (tmp_path / "mine" / "tokenizer.json").symlink_to(arctic.folder / "tokenizer.json")
    return tmp_path / "mine"


def test_the_multilingual_embedder_uses_its_weights_and_is_named_where_they_are_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SettingsError, match=f"recto models get {MULTILINGUAL}"):
        embedder_for(EmbedderChoice(use="multilingual"))
    folder = weights.folder_of(MULTILINGUAL)
    folder.mkdir(parents=True)
    for file in weights.known(MULTILINGUAL).files:
        with (folder / file.to).open("wb") as stream:
            stream.truncate(file.size)
    made = embedder_for(EmbedderChoice(use="multilingual"))
    assert isinstance(made, OnnxEmbedder)
    assert (made.pooling, made.query_prefix, made.document_prefix, made.dims) == ("mean", "query: ", "passage: ", 384)
    assert known_embedder(made.name).name == made.name
    with pytest.raises(EmbedderFailed, match="is not what it should be"):
        made.query("Wo ist die Rechnung?")


def test_every_text_gets_a_row_of_length_1(embedder):
    rows = embedder.documents(TEXTS)
    assert rows.shape == (len(TEXTS), embedder.dims)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    assert embedder.query(TEXTS[0]).shape == (1, embedder.dims)


def test_an_empty_text_is_similar_to_nothing(embedder):
    assert not embedder.documents(BLANK).any()
    assert all(not embedder.query(text).any() for text in BLANK)
    assert embedder.documents([]).shape == (0, embedder.dims)


def test_a_row_does_not_depend_on_the_rest_of_the_batch(embedder):
    together = embedder.documents(TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        assert np.array_equal(embedder.documents([text])[0], row)


def test_similar_texts_are_nearer_than_different_ones(embedder):
    rows = embedder.documents(["the deployment script fails with exit code 3", "we had soup for dinner"])
    near, far = rows @ embedder.query("why did deploying the scripts fail?")[0]
    assert near > far + 0.1


def test_rows_are_the_same_in_other_threads_and_processes(embedder):
    alone = embedder.documents(TEXTS[:4])
    found: list = []
    threads = [threading.Thread(target=lambda: found.append(embedder.documents(TEXTS[:4]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(rows, alone) for rows in found)
    assert len(found) == 4
    code = (
        "import sys; from recto.models.embedders import EmbedderChoice, embedder_for\n"
        f"sys.stdout.buffer.write(embedder_for(EmbedderChoice(use='arctic')).documents({TEXTS[:4]!r}).tobytes())"
    )
    command = [sys.executable, "-c", code]
    for seed in ("1", "2"):
        done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        assert done.stdout == alone.tobytes()


@settings(max_examples=30)
@given(text=anything)
def test_the_model_accepts_any_text(arctic, text):
    rows = np.concatenate([arctic.documents([text]), arctic.query(text)])
    lengths = np.linalg.norm(rows, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))


def test_the_model_reads_a_long_text_as_far_as_it_can(arctic):
    head = "The quick brown fox jumps over the lazy dog. " * 60
    cut, longer, other = arctic.documents([head, head + "Nothing of this is read. " * 500, "Another text. " + head])
    assert np.array_equal(cut, longer)
    assert not np.array_equal(cut, other)


def test_a_truncated_text_still_has_its_end_token(arctic):
    model = arctic._loaded()
    assert model.after == 1
    tokens = arctic._tokens(model, "word " * 3000)
    assert len(tokens) == 512
    assert (tokens[0], tokens[-1]) == (model.encode("")[0], model.encode("")[-1])


def test_a_control_token_inside_a_text_is_text(arctic):
    model = arctic._loaded()
    assert model.encode("")[-1] not in arctic._tokens(model, "one [SEP] two")[:-1]


def test_only_questions_get_the_query_prefix(arctic):
    text = "when is the backup made"
    assert not np.array_equal(arctic.query(text), arctic.documents([text]))
    marked = arctic.documents([embedders.ARCTIC_PREFIX + text])
    assert np.array_equal(arctic.query(text), marked)


def test_the_vectors_match_those_of_the_publishers_code(arctic):
    """Compares with figures computed once by the publisher's recipe; 8-bit arithmetic differs slightly."""
    document = arctic.documents(["The nightly backup fails because the disk is full."])[0]
    question = arctic.query("why is there no backup?")[0]
    assert document[:6] == pytest.approx([0.0273, -0.0572, -0.0844, 0.0533, -0.0310, -0.0264], abs=0.01)
    assert question[:6] == pytest.approx([0.0420, -0.0819, -0.0316, 0.0377, 0.0181, -0.0052], abs=0.01)


def test_the_runtime_sends_no_telemetry(arctic, tmp_path):
    """With telemetry, the runtime would store a machine identifier and unsent events in the user's cache."""
    code = (
        "from pathlib import Path; from recto.models.embedders.onnx import OnnxEmbedder\n"
        f"OnnxEmbedder(Path({str(arctic.folder)!r}), name='a').query('a')"
    )
    subprocess.run([sys.executable, "-c", code], env={"HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []


def test_any_folder_with_a_model_can_be_used(folder, arctic):
    mine = embedder_for(EmbedderChoice(use="onnx", path=str(folder), query_prefix=arctic.query_prefix))
    assert mine.dims == 384
    assert np.array_equal(mine.documents(TEXTS[:2]), arctic.documents(TEXTS[:2]))
    assert np.array_equal(mine.query("a"), arctic.query("a"))
    assert mine.name.startswith("mine/")


def test_the_name_covers_everything_that_changes_a_documents_vector(folder):
    def name(**more: str) -> str:
        return embedder_for(EmbedderChoice(use="onnx", path=str(folder), **more)).name

    names = [name(), name(pooling="mean"), name(document_prefix="passage: ")]
    assert len(set(names)) == 3
    assert name(query_prefix="query: ") == names[0]
    content = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").write_bytes(content + b" ")
    assert name() not in names


def test_pooling_by_the_mean_gives_other_vectors(folder, arctic):
    mean = embedder_for(EmbedderChoice(use="onnx", path=str(folder), pooling="mean"))
    row = mean.documents(TEXTS[:1])
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-5)
    assert not np.allclose(row, arctic.documents(TEXTS[:1]), atol=1e-3)


def test_the_publishers_own_files_can_be_used_for_the_default(folder, arctic):
    found = embedder_for(EmbedderChoice(use="arctic", path=str(folder)))
    assert np.array_equal(found.query("a"), arctic.query("a"))
    assert found.name != arctic.name


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_raises_the_embedder_error(arctic, tmp_path, file):
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).symlink_to(arctic.folder / name)
    (tmp_path / file).unlink()
    (tmp_path / file).write_bytes(b"\0" * 5000)
    broken = OnnxEmbedder(tmp_path, name="broken")
    for _ in range(2):
        with pytest.raises(EmbedderFailed, match="embedder 'broken'"):
            broken.documents(["a"])
    with pytest.raises(EmbedderFailed):
        _ = broken.dims


def test_a_missing_model_fails_on_first_use(tmp_path):
    with pytest.raises(EmbedderFailed, match="embedder 'none'"):
        OnnxEmbedder(tmp_path, name="none").query("a")


def test_modified_weights_are_not_loaded(arctic, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(weights, "_checked", set())
    here = weights.folder_of(ARCTIC)
    here.mkdir(parents=True)
    for name in ("model.onnx", "tokenizer.json"):
        (here / name).write_bytes((arctic.folder / name).read_bytes())
    with (here / "model.onnx").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\0\0\0\0changed")
    changed = embedder_for(EmbedderChoice(use="auto"))
    assert changed.name == ARCTIC_NAME
    with pytest.raises(EmbedderFailed, match=r"not what it should be.*recto models get"):
        changed.documents(["a"])


def test_a_missing_runtime_is_reported_with_its_install_command(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmbedderFailed, match=r"recto-ai\[recall\]"):
        OnnxEmbedder(folder, name="mine").documents(["a"])
    for use in ("arctic", "onnx"):
        with pytest.raises(SettingsError, match=r"recto-ai\[recall\]"):
            embedder_for(EmbedderChoice(use=use, path=str(folder)))
    assert embedder_for(EmbedderChoice()) is None


def test_auto_uses_the_model_if_its_weights_are_present_and_words_otherwise(arctic, tmp_path, monkeypatch):
    assert embedder_for(EmbedderChoice()).name == arctic.name
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert embedder_for(EmbedderChoice()) is None
    with pytest.raises(SettingsError, match="recto models get arctic-embed-s"):
        embedder_for(EmbedderChoice(use="arctic"))


def test_stored_vectors_find_their_embedder_if_it_is_available(arctic, tmp_path, monkeypatch):
    assert known_embedder(arctic.name).name == arctic.name
    assert known_embedder("some-model@example.org") is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert known_embedder(arctic.name) is None


def test_none_disables_the_embedder_and_a_weight_can_be_set():
    assert embedder_for(EmbedderChoice(use="none")) is None
    endpoint = EmbedderChoice(use="endpoint", url="http://a/v1", model="m")
    assert embedder_for(endpoint).weight == 0.5
    assert embedder_for(replace(endpoint, weight=0.4)).weight == 0.4


@pytest.mark.parametrize(
    ("choice", "detail"),
    [
        ({"use": "artic"}, "Did you mean 'arctic'"),
        ({"pooling": "max"}, "cls or mean"),
        ({"weight": 2}, "from 0 to 1"),
        ({"use": "onnx"}, "expects a folder"),
        ({"use": "onnx", "path": "/no/such"}, "no file '/no/such/model.onnx'"),
        ({"use": "endpoint", "model": "m"}, "expects an address"),
        ({"use": "endpoint", "url": "ftp://a/v1", "model": "m"}, "expects an address"),
        ({"use": "endpoint", "url": "http://[::1/v1", "model": "m"}, "expects an address"),
        ({"use": "endpoint", "url": "http://me:secret@a/v1", "model": "m"}, "must not hold a name"),
        ({"use": "endpoint", "url": "http://a/v1"}, "name of its model"),
        ({"use": "endpoint", "url": "http://a/v1", "model": "m", "key": "a\nb"}, "no key has"),
        ({"use": "endpoint", "url": "http://a/v1", "model": "m", "seconds": 0.0}, "more than 0"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_an_invalid_choice_is_refused_with_an_explanation(choice, detail):
    with pytest.raises(SettingsError) as refused:
        embedder_for(EmbedderChoice(**choice))
    assert detail in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_repr_of_a_choice_hides_the_key():
    choice = EmbedderChoice(use="endpoint", url="http://a/v1?k=hidden", model="m", key="hidden")
    assert "hidden" not in repr(choice).replace("k=hidden", "")
    assert "hidden" not in repr(embedder_for(choice)) + embedder_for(choice).name


def test_choosing_an_embedder_loads_nothing_heavy():
    code = (
        "import sys; from recto.models.embedders import *; from recto.models.embedders import EmbedderChoice\n"
        "embedder_for(EmbedderChoice()), embedder_for(EmbedderChoice(use='none'))\n"
        "embedder_for(EmbedderChoice(use='endpoint', url='http://a', model='m'))\n"
        "print([name for name in ('numpy', 'onnxruntime', 'httpx2', 'splintr') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
