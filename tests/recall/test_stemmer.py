"""All forms of a word share the same term."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.recall import stemmer
from recto.recall.stemmer import STOP_WORDS, PorterLexicon

LEXICON = PorterLexicon()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("running", "runs"),
        ("connections", "connected"),
        ("Deploying", "deployed"),
        ("parse_header", "PARSE_HEADER"),
        ("naïve", "NAIVE"),
    ],
)
def test_forms_of_one_word_are_one_term(first, second):
    assert LEXICON.terms(first) == LEXICON.terms(second)


@pytest.mark.parametrize(
    ("text", "question", "stem"),
    [
        ("Die Rechnung ist bezahlt.", "Welche Rechnungen sind da?", "rechnung"),
        ("Le médicament est cher.", "Quels médicaments sont là ?", "medic"),
        ("La reparación del tejado.", "¿Qué hay que reparar?", "repar"),
        ("Il pagamento è fatto.", "Quali pagamenti sono stati fatti?", "pag"),
        ("A fatura não está aqui.", "Quais são as faturas?", "fatur"),
        ("De rekening is betaald.", "Welke rekeningen zijn er?", "rekeen"),
        ("Räkningen är betald.", "Vilka räkningar har vi?", "rakning"),
        ("Regningen er ikke betalt.", "Hvilke regninger har jeg ikke fået?", "regning"),
        ("Regningen er ikke betalt.", "Hvilke regninger har vi ikke fått?", "regning"),
        ("Tämä lasku on maksettu.", "Mitkä laskut ovat täällä?", "lasku"),
        ("Счёт оплачен вчера.", "Какие счета были?", "счет"),
    ],
)
def test_forms_of_a_word_in_another_language_share_a_term(text, question, stem):
    assert crc32(stem.encode()) in LEXICON.terms(text).keys() & LEXICON.terms(question).keys()


def test_function_words_of_another_language_are_left_out():
    assert LEXICON.terms("Die Rechnung ist nicht in der Mappe") == LEXICON.terms("und Rechnung Mappe")
    assert len(LEXICON.terms("wer bin ich")) == 3, "a text of only function words can still be found"


def test_an_english_text_has_only_english_stems():
    text = "The invoices of the carrier were paid twice, and the second payment is refunded in den Haag."
    assert LEXICON.terms(text) == dict(Counter(LEXICON.sequence(text)))


def test_an_english_word_matches_in_a_text_of_another_language_and_vice_versa():
    english, german = LEXICON.terms("the parser raised an error"), LEXICON.terms("Der Parser hat einen Fehler")
    assert crc32(b"parser") in english.keys() & german.keys()


def test_names_and_paths_have_the_same_terms_in_every_language():
    name = "src/parse_headers.py fetchUserNames v1.2.3"
    context = "Die Rechnung ist in der Mappe"
    assert LEXICON.terms(f"{context} {name}").keys() == LEXICON.terms(context).keys() | LEXICON.terms(name).keys()


@pytest.mark.parametrize(
    ("question", "term"), [("什么时候检查备份？", "备份"), ("バックアップはいつ確認しますか？", "確認")]
)
def test_particles_and_endings_without_spaces_are_left_out(question, term):
    terms = LEXICON.terms(question).keys()
    assert crc32(term.encode()) in terms
    assert not terms & {crc32(word.encode()) for word in ("什么", "时候", "ます", "すか")}
    assert LEXICON.terms("什么时候？"), "a text of only function words can still be found"


def test_a_word_of_one_character_is_found_inside_a_text_without_spaces():
    for text in ("上周带猫去医院", "先週、猫を病院に連れて行った"):
        assert LEXICON.terms("猫").keys() < LEXICON.terms(text).keys()
    assert LEXICON.terms("在医院的").keys().isdisjoint(LEXICON.terms("的"))


def test_terms_are_counted_and_fit_32_bits():
    found = LEXICON.terms("tests test tested something")
    assert sorted(found.values()) == [1, 3]
    assert all(0 <= term < 2**32 for term in found)


def test_stop_words_are_left_out_unless_there_is_nothing_else():
    assert LEXICON.terms("the database is not there") == LEXICON.terms("database")
    assert len(LEXICON.terms("who am I")) == 3


def test_negations_that_distinguish_texts_stay():
    assert not {"never", "without", "nothing"} & STOP_WORDS
    assert 80 <= len(STOP_WORDS) <= 150


def test_an_identifier_yields_its_parts_and_itself():
    assert LEXICON.terms("user").keys() < LEXICON.terms("fetch_user_data").keys()


@given(st.text())
def test_every_text_is_accepted_and_a_new_lexicon_agrees(text):
    assert LEXICON.terms(text) == PorterLexicon().terms(text)


TEXTS = ["Die Rechnung der Spedition ist bezahlt", "who am I", "the invoice is paid", "猫が好き", "", "src/app.py " * 3]


@given(st.lists(st.sampled_from(TEXTS) | st.text(), max_size=5))
def test_the_terms_of_several_texts_are_those_of_each(texts):
    for lexicon in (PorterLexicon(), LEXICON):
        assert lexicon.distinct(texts) == [frozenset(PorterLexicon().terms(text)) for text in texts]


def test_the_terms_of_the_stored_lane_do_not_change():
    assert LEXICON.name == "porter/2"
    # CRC-32 of the stem: stored in indexes, so it must not change under this name.
    assert LEXICON.terms("databases") == {crc32(b"databas"): 1}
    assert LEXICON.terms("und Rechnungen").keys() == {crc32(b"rechnungen"), crc32(b"rechnung")}
    assert LEXICON.terms("резервные").keys() == {crc32("резервные".encode()), crc32("резервн".encode())}


def test_threads_share_a_lexicon(monkeypatch):
    monkeypatch.setattr(stemmer, "MAX_CACHED_WORDS", 50)
    shared = PorterLexicon()
    texts = [f"running word{number} tests{number % 7} alpha{'x' * (number % 5)}" for number in range(400)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(shared.terms, texts))
    assert found == [LEXICON.terms(text) for text in texts]
    assert len(shared._known) <= 50
