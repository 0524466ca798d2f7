"""Counters are exact where they say so, and never fail, whatever the text."""

from __future__ import annotations

import importlib
import json
import random
import sys
import threading
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.errors import SettingsError
from recto.formats.message import Message, Part
from recto.tokens import meter
from recto.tokens.meter import (
    FAMILIES,
    FRAMES,
    MAX_FRAME,
    PIECE_CHARS,
    SafeCounter,
    Tokenizers,
    byte_bound,
    counter_from_file,
    counter_named,
)
from recto.tokens.model_card import ModelCard
from recto.tokens.model_registry import Registry

REFERENCE = json.loads(Path(__file__).with_name("reference_counts.json").read_text())
"""Counts made with the vendors' own vocabularies by another tokenizer."""

HOSTILE = {
    "letters": "a" * 1_000_000,
    "spaces": " " * 1_000_000,
    "carets": "^" * 1_000_000,
    "newlines": "\n" * 1_000_000,
    "combining marks": "e" + "\u0301" * 500_000,
    "surrogates": "\ud800" * 300_000,
    "emoji": "\U0001f600" * 200_000,
    "special tokens": "<|endoftext|><|im_start|><|eot_id|></s>[INST]" * 10_000,
    "nulls": "\x00" * 300_000,
}

anything = st.text(st.characters(codec=None), max_size=200)


def fresh(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """As in a process of its own, where some packages are not installed."""
    monkeypatch.setattr(meter, "_loaded", {})
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("family", ["o200k", "cl100k", "llama3", "qwen3"])
@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: ascii(case["text"])[:30])
@pytest.mark.requirement("tokens.exact")
def test_an_exact_counter_counts_as_the_vendor_does(family, case):
    counter = counter_named(family)
    assert counter.exact
    assert counter.count(case["text"]) == case[family]


def test_gpt_oss_text_is_counted_as_o200k():
    counter = counter_named("gpt-oss")
    assert [counter.count(case["text"]) for case in REFERENCE] == [case["o200k"] for case in REFERENCE]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_counter_a_frame_and_a_name_of_its_own(family):
    counter = counter_named(family)
    assert counter.name.split("/")[0] == family
    assert counter.count("") == 0
    assert counter.count("hello, world") >= 2
    assert FAMILIES[family].frame in FRAMES or family == "unknown"


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.percent > 100])
def test_a_margin_is_added_where_the_models_own_vocabulary_is_not_public(family):
    spec = FAMILIES[family]
    bare = next(
        name for name, other in FAMILIES.items() if other.vocabulary == spec.vocabulary and other.percent == 100
    )
    text = "The transcript is history. " * 100
    assert counter_named(family).count(text) >= counter_named(bare).count(text) * spec.percent / 100
    assert not counter_named(family).exact


@pytest.mark.parametrize("family", ["o200k", "gemma4", "llama2", "claude-4.7", "unknown"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_million_hostile_characters_are_counted_within_the_bound(family, kind):
    text = HOSTILE[kind]  # anything worse than linear would not come back before the suite loses patience
    counted = counter_named(family).count(text)
    assert 0 < counted <= 4 * byte_bound(text) + 10
    half = counter_named(family).count(text[: len(text) // 2])
    assert half <= counted


def test_ten_megabytes_are_counted():
    text = "".join(f"line {number}: the quick brown fox\n" for number in range(320_000))
    assert len(text) > 10_000_000
    counter = counter_named("o200k")
    assert counter.count(text) >= sum(counter.count(line) for line in text[:1_000_000].splitlines()) * 9


@pytest.mark.parametrize("family", FAMILIES)
@given(text=anything)
def test_no_text_makes_a_counter_fail_or_count_nothing(family, text):
    counted = counter_named(family).count(text)
    assert (counted > 0) == bool(text)
    if FAMILIES[family].exact:
        assert counted <= byte_bound(unicodedata.normalize("NFC", text) if FAMILIES[family].nfc else text) + 1


@pytest.mark.parametrize("marker", ["<|endoftext|>", "<|im_start|>", "<|eot_id|>", "<|think|>", "[INST]", "<s>"])
@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.claude is None])
def test_a_special_token_spelled_out_is_counted_as_text(family, marker):
    assert counter_named(family).count(marker) > 1


@pytest.mark.parametrize("family", ["o200k", "llama3", "gemma4"])
def test_counting_in_pieces_never_counts_less(monkeypatch, family):
    text = "\n".join(case["text"] for case in REFERENCE) * 3
    counter = counter_named(family)
    whole = counter.count(text)
    for size in (7, 64, 1000):
        monkeypatch.setattr(meter, "PIECE_CHARS", size)
        assert counter.count(text) >= whole


def test_a_token_hidden_by_a_cut_is_made_good(monkeypatch):
    text = "\n" * 10 + '[{"id":1,"x":n'
    counter = counter_named("o200k")
    whole = counter.count(text)
    assert counter.count(text[:12]) + counter.count(text[12:]) == whole - 1
    monkeypatch.setattr(meter, "PIECE_CHARS", 12)
    assert counter.count(text) == whole


@pytest.mark.parametrize("unit", ["the quick brown fox ", "漢字仮名", "QUJDREVGR0", "a"])
def test_only_the_beginning_of_a_very_long_text_is_tokenized_and_the_count_is_never_too_low(monkeypatch, unit):
    monkeypatch.setattr(meter, "MAX_COUNTED_CHARS", 50_000)
    exact, sizes = counter_named("o200k"), []
    text = unit * (200_000 // len(unit))
    counter = SafeCounter(name="x", exact=True, count_text=lambda piece: sizes.append(len(piece)) or exact.count(piece))
    whole = sum(exact.count(text[at : at + 40_000]) for at in range(0, len(text), 40_000))
    assert whole - 5 <= counter.count(text) <= byte_bound(text) + len(sizes)
    assert sum(sizes) == 50_000
    assert counter.count(text + unit) > counter.count(text)


def test_the_cache_of_a_tokenizer_is_emptied_after_so_many_characters(monkeypatch):
    counter = meter._load("o200k_base").count_text
    monkeypatch.setattr(meter, "_CACHED_CHARS", 20_000)
    letters, cached = random.Random(1), []
    for _ in range(60):
        counter(" ".join("".join(letters.choices("bcdfghjklmnpqrstvwxz", k=12)) for _ in range(100)))
        cached.append(counter._tokenizer.cache_len)
    assert 500 < max(cached) < 3_000
    assert sum(after < before for before, after in pairwise(cached)) >= 2


def test_pieces_are_the_text():
    for text in ("", "a", "a b " * PIECE_CHARS, "x" * (2 * PIECE_CHARS + 3)):
        assert "".join(meter._pieces(text)) == text


def test_a_tokenizer_that_fails_gives_way_to_the_byte_bound():
    class Panic(BaseException):
        pass

    def fails(text: str) -> int:
        raise Panic

    assert SafeCounter(name="broken", exact=True, count_text=fails).count("häh") == 4 + 1


def test_an_interrupt_is_not_taken_for_a_failing_tokenizer():
    def interrupted(text: str) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SafeCounter(name="interrupted", exact=True, count_text=interrupted).count("a")


def test_a_vocabulary_is_loaded_once_for_all_threads(monkeypatch):
    fresh(monkeypatch)
    loaded = []
    load = meter._load
    monkeypatch.setattr(meter, "_load", lambda vocabulary: loaded.append(vocabulary) or load(vocabulary))
    start = threading.Barrier(8)
    counts = []

    def work() -> None:
        start.wait()
        counts.append([counter_named("llama3").count(case["text"]) for case in REFERENCE])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loaded == ["llama3"]
    assert counts == [[case["llama3"] for case in REFERENCE]] * 8


def test_without_its_tokenizer_a_family_is_estimated_and_says_so(monkeypatch):
    fresh(monkeypatch, "splintr", "tiktoken", "ctok")
    for family in ("o200k", "llama3", "qwen3", "gemini"):
        counter = counter_named(family)
        assert (counter.name, counter.exact) == (f"{family}/estimate", False)
    below = [case for case in REFERENCE if counter_named("o200k").count(case["text"]) < case["o200k"]]
    assert [case["text"] for case in below] == []
    assert counter_named("claude-4.7").name == "claude-4.7/formula/estimate"


def test_tiktoken_is_asked_only_where_its_vocabulary_is_on_the_machine(monkeypatch, tmp_path):
    fresh(monkeypatch, "splintr")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    name = "fb374d419588a4632f3f557e76b4b70aebbca790"
    (tmp_path / name).write_bytes(b"not the vocabulary")
    asked = []
    real = importlib.import_module
    monkeypatch.setattr(meter.importlib, "import_module", lambda name: asked.append(name) or real(name))
    assert counter_named("o200k").name == "o200k/estimate"
    assert "tiktoken" not in asked


@pytest.mark.requirement("tokens.exact")
def test_claude_is_counted_by_formula_above_every_gpt_count(monkeypatch):
    fresh(monkeypatch, "ctok")
    older, newer = counter_named("claude"), counter_named("claude-4.7")
    assert not older.exact
    for case in REFERENCE:
        assert older.count(case["text"]) > case["cl100k"]
    text = "The transcript is history. The prompt is a working set." * 20
    assert newer.count(text) > older.count(text) > counter_named("o200k").count(text)


def test_claude_is_counted_by_ctok_where_it_is_installed(monkeypatch):
    class Ctok:
        @staticmethod
        def token_count(text: str, version: str) -> int:
            return len(text.split()) + (7 if version == "3.0" else 6)

    monkeypatch.setitem(sys.modules, "ctok", Ctok)
    assert counter_named("claude").name == "claude/ctok"
    assert counter_named("claude").count("one two three") == 3
    assert counter_named("claude-4.7").count("one two three") == 3
    long = "one two three " * 30_000
    assert counter_named("claude").count(long) > 90_000  # past the length at which it would take too long


def tokenizer_file(folder: Path) -> Path:
    letters = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz<|>Ġ")}
    vocabulary = letters | {"th": 30, "the": 31}
    merges = [["t", "h"], ["th", "e"]]
    special = {"id": 32, "content": "<|end|>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges, "unk_token": None, "byte_fallback": False}
    tree = {
        "version": "1.0",
        "added_tokens": [special | {"normalized": False}],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(tree))
    return file


def test_a_tokenizer_file_of_ones_own_is_counted_with(tmp_path):
    file = tokenizer_file(tmp_path)
    counter = counter_from_file(file)
    assert counter.exact
    assert counter.name.startswith("tokenizer.json:")
    assert counter.count("the") == 1
    assert counter.count("theth") == 2
    assert counter.count("<|end|>") == 7


def test_a_card_may_name_a_tokenizer_of_ones_own(tmp_path):
    card = ModelCard(name="mine", window=1000, max_input=1000, max_output=100, tokenizer="house")
    mine = Tokenizers({"house": str(tokenizer_file(tmp_path))})
    assert mine.counter_for(card).count("the") == 1
    assert mine.meter_for(card).frame is MAX_FRAME


@pytest.mark.parametrize("content", [b"", b"{}", b"[1, 2]", b"\xff\xfe", b'{"model": {"type": "BPE"}}'])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, content):
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"tokenizer\.json"):
        counter_from_file(file)


def test_a_tokenizer_nobody_knows_is_refused_with_the_nearest_known(tmp_path):
    with pytest.raises(SettingsError, match="cannot read"):
        counter_from_file(tmp_path / "missing.json")
    with pytest.raises(SettingsError, match="Did you mean 'llama3'"):
        counter_named("lama3")


def test_a_meter_counts_messages_as_its_model_does():
    registry = Registry()
    message = Message(role="user", parts=(Part(kind="text", text="hello, world"),))
    meter = Tokenizers().meter_for(registry.card("gpt-4o"))
    assert (meter.name, meter.text("hello, world"), meter.message(message)) == ("o200k", 3, 7)
    assert meter.prompt([message]) == 10
    claude = Tokenizers().meter_for(registry.card("claude-opus-4-5"))
    assert claude.message(message) >= meter.message(message)


def test_the_same_text_always_counts_the_same():
    for family in ("o200k", "claude", "gemma4"):
        counter = counter_named(family)
        assert len({counter.count(REFERENCE[5]["text"]) for _ in range(5)}) == 1
