"""Claims: checkable statements of a text are found in any notation, and unsupported ones are removed."""

from __future__ import annotations

import json
import re
import time
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.context.hostile_summaries import SOURCES, TRUE, hostile, reaches

from recto.context.facts.claims import Claim, Evidence, FoldedText, find_claims, fold_words, remove_ungrounded
from recto.text.unicode import visible_text


def found(text):
    return [(claim.kind, claim.text) for claim in find_claims(text)]


def supports(source, kind, text):
    return Evidence([source]).supports(Claim(kind, text, 0, len(text)))


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("It took 42 ms.", [("number", "42")]),
        ("It took 42ms, 80% of $1,234.56.", [("number", "42ms"), ("number", "80%"), ("number", "$1,234.56")]),
        ("v1.2.3 of 2024-05-01 at 10:30", [("number", "v1.2.3"), ("number", "2024-05-01"), ("number", "10:30")]),
        ("about 12 K tokens", [("number", "12 K")]),
        ("forty-two files", [("number", "forty-two")]),
        ("see src/a.py:12 and ./b/c.ts.", [("path", "src/a.py:12"), ("path", "b/c.ts")]),
        ("C:\\Users\\x\\a.py", [("path", "C:\\Users\\x\\a.py")]),
        ("call foo() with --dry-run", [("identifier", "foo()"), ("identifier", "--dry-run")]),
        ("MAX_SIZE in UserStore.load_all", [("identifier", "MAX_SIZE"), ("identifier", "UserStore.load_all")]),
        ("ABC-123, #99, 9f3c2ab7", [("identifier", "ABC-123"), ("number", "#99"), ("identifier", "9f3c2ab7")]),
        ("mail ada@example.org", [("identifier", "ada@example.org")]),
        ("at https://x.example/a?b=1).", [("url", "https://x.example/a?b=1")]),
        ('he said "that is not what I meant"', [("quote", "that is not what I meant")]),
        ("KeyError: no such thing here", [("error", "KeyError: no such thing here")]),
        ("`fatal: not a git repository`", [("error", "fatal: not a git repository")]),
        ("1. one\n2. two\n3) three", []),
        ("A plain sentence, read/write and/or so; e.g. well-known words.", []),
        ("Grüße aus Köln, 你好世界。 हिन्दी में", []),
    ],
)
def test_checkable_claims_are_found(text, claims):
    assert found(text) == claims


@pytest.mark.parametrize(
    ("source", "kind", "claim"),
    [
        ("142 and 4.2 and 42.5", "number", "42"),
        ("lib/src/a.pyc", "path", "src/a.py"),
        ("src/a.py", "path", "/srv/x/src/a.py"),
        ("/srv/x/src/a.py", "path", "/src/a.py"),
        ("mysrc/a.py", "path", "src/a.py"),
        ("a.py.bak", "path", "a.py"),
        ("a.py is there", "path", "a.py:12"),
        ("12,345 tokens", "number", "12 K"),
        ("12345", "number", "12,000"),
        ("1.2.3", "number", "1.2"),
        ("on 2024-05-01", "number", "2024-05-02"),
        ("https://x.example/a", "url", "https://x.example/a/b"),
        ("foobar", "identifier", "foo()"),
        ("ABC-1234", "identifier", "ABC-123"),
        ("the quick red fox", "quote", "the quick brown fox"),
        ("ValueError: bad input", "error", "ValueError: worse input"),
        ("ValueError: bad input in here", "error", "ValueError: bad input in here and forty-two thousand more"),
        ("the port is not what I meant", "quote", "the port is ... 99 ... not what I meant"),
        ("1234567890123", "number", "1234567"),
        ("123456789abcdef01", "number", "12345678"),
    ],
)
def test_a_claim_that_only_resembles_its_source_is_not_supported(source, kind, claim):
    assert not supports(source, kind, claim)


@pytest.mark.parametrize(
    ("source", "kind", "claim"),
    [
        ("1000", "number", "1,000"),
        ("1,000", "number", "1000"),
        ("1_000", "number", "1000"),
        ("42", "number", "٤٢"),
        ("४२", "number", "42"),
        ("12,000 tokens", "number", "12 K"),
        ("took 42ms", "number", "42"),
        ("between 10-20", "number", "20"),
        ("at 2024-05-01T10:30:00Z", "number", "10:30"),
        ("there are forty-two of them", "number", "forty-two"),
        ("/srv/x/src/a.py", "path", "src/a.py"),
        ("/srv/x/src/a.py", "path", "a.py"),
        ("/srv/x/src/a.py", "path", "x/src/"),
        ("C:\\work\\src\\a.py", "path", "src/a.py"),
        ('{"path":"one\\nsrc/a.py\\n"}', "path", "src/a.py"),
        ("a.py:12", "path", "a.py:12"),
        ("a.py, line 12", "path", "a.py:12"),
        ("foo", "identifier", "foo()"),
        ("call foo(1).", "identifier", "foo"),
        ("class UserStore: def load_all", "identifier", "UserStore.load_all"),
        ("branch ada/abc-123-fix", "identifier", "ABC-123"),
        ("9f3c2ab77e10d4c55d2f0011", "identifier", "9f3c2ab"),
        ("see https://x.example/a/b?c=1.", "url", "https://x.example/a/b?c=1"),
        ("https://x.example/a/b", "url", "https://x.example/a/"),
        ("he said:\n “that  is not\nwhat I meant”", "quote", 'that is not what "I" meant'),
        ("that is not what I meant, not at all then", "quote", "that is not what... not at all then"),
        ("fatal: unable to read 9f3c2ab77e10d4c5", "error", "fatal: unable to read 9f3c2ab7..."),
    ],
)
def test_a_claim_in_another_notation_is_supported(source, kind, claim):
    assert supports(source, kind, claim)


def test_list_lines_are_removed_whole_and_prose_by_the_sentence():
    evidence = Evidence(["run 27 tests in src/a.py"])
    text = (
        "It has 27 tests. It has 99 tests. All in src/a.py.\n\n- good: 27\n- bad: 99. And more.\n- fine. But 99 is not."
    )
    assert remove_ungrounded(text, evidence).text == "It has 27 tests. All in src/a.py.\n\n- good: 27\n- fine."


def test_empty_headings_and_fences_are_removed_too():
    text = "# A\n\n## B\n- 99\n\n## C\n- 27\n\n**Files:**\n- x/y/z.py\n\n```sh\nrun 99\n```\n\nLast: 27"
    assert remove_ungrounded(text, Evidence(["27"])).text == "# A\n\n## C\n- 27\n\nLast: 27"


def test_list_numbers_are_not_claims():
    result = remove_ungrounded("1. one\n2. has 99\n3. three\n\n77. more", Evidence([""]))
    assert result.text == "1. one\n2. three\n\n3. more"
    assert [claim.text for claim in result.invented] == ["99"]


def test_an_honest_text_is_unchanged():
    text = "\n".join(TRUE)
    result = remove_ungrounded(text, Evidence(SOURCES))
    assert result.text == text
    assert result.invented == ()
    assert result.claims > 15


def _real_sources(data):
    file = sorted((data / "agent_sessions").rglob("*.jsonl"))[3]
    messages = [json.loads(line) for line in file.read_text().splitlines()]
    blocks = [block for message in messages for block in message.get("content", ()) if isinstance(block, dict)]
    texts = [str(block.get("text") or block.get("content") or block.get("input")) for block in blocks]
    lines = [line for block in blocks if block.get("type") == "text" for line in block["text"].splitlines()]
    plain = (
        line
        for line in lines
        if 30 < len(line) < 300 and line[0].isalpha() and line.endswith(".") and find_claims(line)
    )
    return texts, list(dict.fromkeys(plain))


def _assert_nothing_invented_reaches(random, sources, true, count):
    evidence, remaining, written = Evidence(sources), 0, 0
    known = "\n".join(sources)
    for _ in range(count):
        summary = hostile(random, true)
        result = remove_ungrounded(summary.text, evidence)
        for plain in summary.planted:
            assert reaches(plain, summary.text), f"the reader does not see {plain} in {summary.text}"
            assert plain in known or not reaches(plain, result.text), (plain, summary.text, result.text)
        assert remove_ungrounded(result.text, evidence).invented == ()
        written += len(summary.true)
        shown = " ".join(result.text.split())
        remaining += sum(line.partition(" ")[2] in shown for line in summary.true)
    assert remaining / written >= 0.9, remaining / written


@pytest.mark.requirement("compress.invents-nothing")
def test_no_invention_of_eight_hundred_hostile_summaries_reaches_the_prompt():
    _assert_nothing_invented_reaches(Random(5), SOURCES, TRUE, 800)


def test_no_invention_of_hostile_summaries_of_a_real_session_reaches_the_prompt(data):
    sources, true = _real_sources(data)
    _assert_nothing_invented_reaches(Random(6), sources, true, 200)


def _recorded_summaries(data, every):
    """Yields recorded summaries with all texts before them in their session."""
    for file in sorted((data / "agent_sessions").rglob("*.jsonl"))[::every]:
        before: list[str] = []
        for line in file.read_text().splitlines():
            message = json.loads(line)
            texts = []
            for block in message.get("content", ()):
                inner = block.get("content")
                parts = [part.get("text", "") for part in inner] if isinstance(inner, list) else [inner or ""]
                texts += [block.get("text") or block.get("thinking") or json.dumps(block.get("input") or ""), *parts]
            if message.get("compact_summary"):
                yield "\n".join(texts), before
            before = [*before, *texts]


def test_honest_summaries_lose_little(data, scale):
    lines = lost = 0
    for summary, sources in _recorded_summaries(data, scale(9, release=1)):
        result = remove_ungrounded(summary, Evidence(sources))
        assert remove_ungrounded(result.text, Evidence(sources)).text == result.text
        lines += sum(bool(line.strip()) for line in summary.splitlines())
        lost += sum(bool(line.strip()) for line in summary.splitlines()) - sum(
            bool(line.strip()) for line in result.text.splitlines()
        )
    assert lines > 300
    assert lost / lines < 0.05


_PIECES = st.sampled_from(
    [
        "42", "27", "src/a.py", "x/y.go", "foo()", "`", "\n", "\n- ", "\n# h\n", " ", ". ", "1. ", "\n9) ", '"', ":",
        "\n```\n",
        "٤٢", "&#52;", "<b>", "<!--", "-->", "\u200b", "\ud800", "KeyError: no", "12 K", "forty-two", "(", ")",
        "\n\n", "|",
        "*", "\\", "A b c d",
    ]
)  # fmt: skip


@settings(max_examples=150)
@given(st.lists(_PIECES, max_size=24).map("".join) | st.text(max_size=80))
def test_a_checked_text_is_unchanged_by_a_second_check(text):
    evidence = Evidence(["27 in src/a.py and foo()"])
    result = remove_ungrounded(text, evidence)
    again = remove_ungrounded(result.text, evidence)
    assert again.invented == ()
    assert again.text == result.text


@settings(max_examples=150)
@given(st.lists(_PIECES, max_size=24).map("".join) | st.text(max_size=80))
def test_claims_are_in_order_and_at_their_positions(text):
    shown = visible_text(text)
    end = 0
    for claim in find_claims(text):
        assert end <= claim.start < claim.end
        assert shown[claim.start : claim.end] == claim.text
        end = claim.end


@settings(max_examples=100)
@given(st.lists(_PIECES, max_size=16).map(" ".join))
def test_a_text_is_its_own_evidence(text):
    evidence = Evidence([text])
    assert [
        claim for claim in find_claims(text) if claim.kind in ("path", "identifier") and not evidence.supports(claim)
    ] == []


_LINES = st.lists(st.sampled_from(["Grüße,", "a_b", "Ⅷ", "\\n", '\\\\"', "x\\", ":", "\n", "İ", "ΟΔΟΣ", "-", "2"]))


@given(_LINES.map("".join) | st.text(max_size=60))
@example('é\n\\nx\\"')
def test_words_are_folded_alike_in_every_script(text):
    unescaped = re.sub(r"\\+(?:[nrt](?![a-z]*[\\:])|[\"'])", " ", text)
    assert fold_words(text) == " ".join(re.sub(r"\W+", " ", unescaped).lower().split())


@given(
    st.lists(st.sampled_from(["Never", "push", "to", "main", "Grüße", "—", "."])).map(" ".join), st.text(max_size=20)
)
def test_a_text_contains_a_sentence_if_it_has_its_words_in_sequence(text, other):
    for sentence in (*text.split(" . "), "push to main", "main push", other):
        contained = f" {fold_words(sentence)} " in f" {fold_words(text)} "
        assert (sentence in FoldedText(text)) is contained


@settings(max_examples=100)
@given(st.text(max_size=100))
def test_visible_text_is_idempotent(text):
    assert visible_text(visible_text(text)) == visible_text(text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "1,",
        "a/",
        "a.",
        "(",
        "'",
        '"',
        "`a",
        "http://",
        "Error: ",
        "\n1. ",
        "-",
        "1\n",
        "ten ",
        "&#38;",
        "<b>",
        "\u0315\u0300",
    ],
)
def test_a_hostile_text_takes_linear_time(piece):
    text = piece * (100_000 // len(piece))
    begun = time.process_time()
    remove_ungrounded(text, Evidence([text]))
    remove_ungrounded(text, Evidence([]))
    assert time.process_time() - begun < 4


def test_sources_are_read_quickly():
    texts = [
        f"line {at}: src/part_{at % 997}/module_{at % 89}.py took {at} ms, see handle_{at % 499}()\n" * 20
        for at in range(2_000)
    ]
    size = sum(map(len, texts))
    begun = time.process_time()
    Evidence(texts)
    assert size / (time.process_time() - begun) > 1_500_000
