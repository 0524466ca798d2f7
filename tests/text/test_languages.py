"""The language of a text is found by its function words, and English is assumed wherever they leave a doubt."""

from __future__ import annotations

import pytest

from recto.recall.stemmer import ENGLISH, FUNCTION_WORDS, languages_of
from recto.text.terms import chunk_counts, words_of


def languages(text: str) -> tuple[str, ...]:
    return languages_of(chunk_counts(text))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Welche Rechnungen wurden doppelt bezahlt?", "german"),
        ("Quelles factures ont été payées en double ?", "french"),
        ("¿Qué facturas no se han pagado todavía?", "spanish"),
        ("Quali fatture sono state pagate due volte?", "italian"),
        ("As faturas não foram pagas duas vezes.", "portuguese"),
        ("Welke rekeningen zijn er nog niet betaald?", "dutch"),
        ("Vilka räkningar har vi inte betalat?", "swedish"),
        ("Hvad koster det, og hvilke regninger har jeg?", "danish"),
        ("Hvilke regninger har dere ikke fått, og hva nå?", "norwegian"),
        ("Mitkä laskut ovat vielä maksamatta?", "finnish"),
    ],
)
def test_a_question_shows_its_language(text, language):
    assert languages(text) == (language,)


@pytest.mark.parametrize(
    "text",
    [
        "Which invoices were paid twice?",
        "He has a house in den Haag, the man was there and the door is in La Paz.",
        "Rechnungen Spedition Mai",
        "def is_in(a, b): return a in b or not a",
        "locale: de, en, es, fr, la " + "status ok request served " * 40,
        "哪些发票付了两次？",
        "Какие счета были оплачены дважды?",
        "",
    ],
)
def test_english_code_and_what_shows_no_language_have_none(text):
    assert languages(text) == ()


def test_a_text_that_two_languages_fit_equally_is_in_both():
    assert languages("Wie werden die Passwörter verschlüsselt?") == ("german", "dutch")


def test_a_language_is_known_by_the_beginning_and_by_its_share_of_the_whole():
    german = "Die Datei ist zu groß und wird nicht geladen, das ist der Fehler: "
    assert languages(german + "Datei Fehler " * 20) == ("german",)
    assert languages(german + " ".join(f"line{number} ok" for number in range(500))) == ()


def test_function_words_are_spelled_as_texts_are_cut():
    for language, words in FUNCTION_WORDS.items():
        assert all(word == word.lower() for word in words), language
        assert {part for word in words for part in words_of(word)} <= words, language
    assert {"not", "no"} <= FUNCTION_WORDS[ENGLISH]


@pytest.mark.parametrize(
    "query", ["green door", "die casting", "las vegas", "todo list", "a man of war", "tour de france"]
)
def test_words_that_are_english_as_well_do_not_show_a_language(query):
    assert languages(query) == ()
