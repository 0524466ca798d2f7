"""Texts are taken apart into the words they are found by, in any script."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.text.terms import MAX_ANALYZED_CHARS, MAX_WORD_CHARS, chunk_counts, chunks_of, distinct_chunks, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Fetch the DATA", "fetch the data"),
        ("fetch_user_data", "fetch user data fetch_user_data"),
        ("fetchUserData", "fetch user data fetchuserdata"),
        ("HTTPServer", "http server httpserver"),
        ("state-of-the-art", "state of the art state-of-the-art"),
        ("utf8", "utf utf8"),
        ("__init__", "init"),
        ("std::vector", "std vector std::vector"),
        ("src/app/main_window.py:42", "src app main window py main_window.py 42 src/app/main_window.py"),
        (r"C:\Users\me\notes.txt", "c users me notes txt notes.txt users/me/notes.txt"),
        ("joe.doe@example.com", "joe doe example com joe.doe@example.com"),
        ("https://example.org/a1/issues", "example org example.org a1 issues a1/issues example.org/a1/issues"),
        ("python 3.11.7", "python 3.11.7 3.11"),
        ("v2.0", "2.0"),
        ("E1234 0x80070005", "1234 e1234 0x80070005"),
        ("1,200 and 1,200,300", "1200 200 and 1200300 200 300"),
        ("2023-05-20 at 10:30", "2023-05-20 2023-05 2023 at 10:30"),
        ("deadbeef12", "deadbeef12 deadbee"),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "3f2504e0-4f89-11d3-9a0c-0305e82c3301 3f2504e0"),
        ("don't, can’t, user's", "do not can not user"),
        ("l'eau", "l eau"),
        ("C++ C# U.S.", "c++ c c# c us"),
        ("“quoted” — dash", "quoted dash"),
        ("café Ångström straße", "cafe angstrom strasse"),
        ("ＡＢＣ ｄｅｆ", "abc def"),
        ("Привет ёлка", "привет елка"),
        ("数据库 Python编程 猫", "数据 据库 python 编程 猫"),
        ("ภาษา", "ภา าษ ษา"),
        ("학교에서", "학교 교에 에서"),
        ("हिन्दी में", "हिन्दी में"),
        ("مُحَمَّد الكـتاب إلى مدرسة", "محمد الكتاب الي مدرسه"),
        ("١٢٣", "123"),
        ("\ud800 x \x00 y", "x y"),
        ("", ""),
    ],
)
def test_each_kind_of_word_is_taken_apart(text, words):
    assert words_of(text) == words.split()


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("user", "fetch_user_data"),
        ("server", "HTTPServer"),
        ("main.py", "src/app/main.py"),
        ("3.11", "3.11.7"),
        ("example.com", "https://example.com/x"),
        ("utf-8", "utf8"),
        ("数据", "数据库连接失败"),
        ("Cafe", "CAFÉ"),
    ],
)
def test_a_part_finds_the_whole_and_the_whole_finds_itself_best(part, whole):
    of_part, of_whole = set(words_of(part)), set(words_of(whole))
    assert of_part & of_whole
    assert of_whole - of_part or of_whole == of_part


@given(st.text())
def test_whatever_the_text_its_words_are_short_and_always_the_same(text):
    found = words_of(text)
    assert found == words_of(text)
    assert all(0 < len(word) <= MAX_WORD_CHARS for word in found)


@given(st.text() | st.text(alphabet=st.sampled_from("ab_.\\@:/',+#-=~% \n"), max_size=60))
def test_every_run_of_name_characters_is_among_the_distinct_chunks(text):
    chunks = " ".join(distinct_chunks(text))
    assert all(run in chunks for run in re.findall(r"[A-Za-z0-9_.\\@:/',+#-]+", text))
    assert sum(chunk_counts(text).values()) == len(chunks_of(text))


@given(st.text(alphabet=st.characters(categories=["L", "N"]), max_size=20))
def test_forms_of_unicode_and_case_make_no_difference(text):
    composed = unicodedata.normalize("NFC", text)
    assert words_of(composed) == words_of(unicodedata.normalize("NFD", composed))


def test_every_letter_there_is_belongs_to_a_word():
    lost = [chr(code) for code in range(0x110000) if chr(code).isalpha() and not words_of(f"a{chr(code)}")]
    alone = [chr(code) for code in range(0x3000, 0x30000) if chr(code).isalpha() and not words_of(chr(code))]
    assert lost == []
    assert len(alone) < 40  # marks that are written alone only in tables


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece", ["a", "a-", "a_", "1,", "'", "a'", "A", "/", "猫", "猫a", "\u0301\u0327", "é", "1", "://"]
)
def test_a_million_of_one_thing_takes_no_time(piece):
    assert all(len(word) <= MAX_WORD_CHARS for word in words_of(piece * (1_000_000 // len(piece))))


def test_of_a_very_long_text_the_beginning_and_the_end_are_found():
    found = words_of("beginning " + "x " * MAX_ANALYZED_CHARS + " ending")
    assert found[0] == "beginning"
    assert found[-1] == "ending"
    assert len(found) < MAX_ANALYZED_CHARS


def test_a_very_long_word_is_cut_and_what_stands_beside_it_is_found():
    assert words_of("see " + "Ab1" * 5_000 + " here")[::2] == ["see", "here"]


@pytest.mark.parametrize("written", ["file:///etc/hosts", "sqlite:///db", "http://", "://", "x:///", "a://b//"])
def test_an_address_without_a_host_or_a_path_is_no_trouble(written):
    assert words_of(f"see {written} there")[0] == "see"
