"""The fidelity command: questions pass or fail by rule and by judge, and no user data is modified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.cli.calling import called_at as run
from tests.cli.calling import own_file

from recto.errors import InputError
from recto.lab.readability import contains_words, parse_cases
from recto.testing import scripted_session

SMALL = ("--model", "gpt-4o", "--window", "5000")
QUESTIONS = """
questions:
  - ask: Which port does the billing server listen on?
    expect: ["8731"]
    evidence: [4]
  - ask: What must never be touched?
    expect: [[migrations, the migrations]]
    weight: 3
"""
BARE = "window: {record_percent: 0, shorten_outputs: false}\n"
UNKNOWN = "  - ask: Who wrote the sonnet?\n    expect: [Shakespeare]\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Creates a folder with a conversation that outgrows its window and states a fact once near its beginning."""
    home = tmp_path_factory.mktemp("home")
    messages = list(scripted_session(exchanges=6))
    begins = next(place for place, message in enumerate(messages) if message["role"] == "user" and place > 1)
    messages[begins:begins] = [
        {"role": "user", "content": "The billing server listens on port 8731, remember that."},
        {"role": "assistant", "content": "Noted."},
    ]
    (home / "questions.yaml").write_text(QUESTIONS.replace("[4]", f"[{begins + 1}]"))
    (home / "more.yaml").write_text(QUESTIONS.replace("[4]", f"[{begins + 1}]") + UNKNOWN)
    (home / "chat.json").write_text(json.dumps(messages))
    # Without a working record, an evicted message is in the prompt only if it is recalled.
    own_file(home).write_text("window: {record_percent: 0, shorten_outputs: false}\n")
    (home / "recorded.yaml").write_text(
        "window: {record_percent: 5, shorten_outputs: false}\nrecall: {enabled: false}\n"
    )
    (home / "forgetful.yaml").write_text(
        "window: {record_percent: 0, shorten_outputs: false}\nrecall: {enabled: false}\n"
    )
    (home / "compact.yaml").write_text(
        "window: {mode: auto_compact, keep_recent_tokens: 500}\nrecall: {enabled: false}\n"
    )
    return home


def fidelity(home: Path, *arguments: str, code: int = 0) -> dict:
    return json.loads(run(home, "lab", "fidelity", "chat.json", *SMALL, *arguments, "--json", code=code))


def test_an_evicted_and_recalled_message_counts_as_readable(home):
    before = sorted(home.rglob("*"))
    found = fidelity(home, "--questions", "questions.yaml")
    assert found["pass"]
    assert found["scores"] == {"base": 1.0}
    assert [row["base"]["where"] for row in found["questions"]] == ["recalled", "prompt"]
    assert all(0 < row["base"]["tokens"] <= 5000 for row in found["questions"])
    assert sorted(home.rglob("*")) == before, "the command must not write any file"
    assert fidelity(home, "--questions", "questions.yaml") == found, "a second run must give the same result"


def test_the_working_record_counts_as_readable_but_its_source_does_not(home):
    found = fidelity(home, "--questions", "questions.yaml", "--against", "recorded.yaml", "--min", "0", "--allow", "1")
    port = found["questions"][0]["candidate"]
    assert port["score"] == pytest.approx(1 / 2)
    assert port["missing"][0].startswith("entry")


def test_a_question_without_evidence_fails_by_its_weight(home):
    found = fidelity(home, "--questions", "more.yaml", code=1)
    assert found["scores"]["base"] == pytest.approx(4 / 5)
    assert found["questions"][2]["base"]["missing"] == ["Shakespeare"]


@pytest.mark.requirement("health.gate")
def test_a_forgetful_candidate_fails_against_the_current_settings(home):
    options = ("--questions", "questions.yaml", "--against", "forgetful.yaml", "--min", "0.5")
    found = fidelity(home, *options, code=1)
    assert found["scores"] == {"base": 1.0, "candidate": pytest.approx(3 / 4)}
    assert found["questions"][0]["candidate"]["where"] == "not"
    shown = run(home, "lab", "fidelity", "chat.json", *SMALL, *options, code=1)
    assert "FAILED candidate" in shown
    assert "8731" in shown


def test_a_summary_counts_as_readable_but_its_source_does_not(home):
    found = fidelity(home, "--questions", "questions.yaml", "--against", "compact.yaml", "--min", "0", "--allow", "1")
    assert found["pass"]
    port = found["questions"][0]["candidate"]
    assert port["score"] == pytest.approx(1 / 2)
    assert port["missing"][0].startswith("entry")


def test_questions_are_not_evidence_for_themselves_or_each_other(home, tmp_path):
    questions = [
        {"ask": "Which port does the billing server listen on? Not 4711.", "expect": ["8731"]},
        {"ask": "Which door?", "expect": ["4711"]},
        {"ask": "Is the code 5005?", "expect": ["5005"]},
    ]
    (tmp_path / "q.yaml").write_text(json.dumps({"questions": questions}))
    found = fidelity(home, "--questions", str(tmp_path / "q.yaml"), code=1)
    assert [row["base"]["where"] for row in found["questions"]] == ["recalled", "not", "not"]


class Judge(BaseHTTPRequestHandler):
    """A judge model that knows the port if the prompt contains it, and agrees if both answers are equal."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "answer_a" in body:
            reply = "1" if body.count("It is 8731.") >= 1 else "0"
        else:
            reply = "It is 8731." if "8731" in body else "I do not know."
        answer = json.dumps({"choices": [{"message": {"content": reply}, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        """Suppresses the log output."""


@pytest.fixture
def judge() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Judge) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def test_a_judge_model_finds_the_answerable_questions(home, tmp_path, judge):
    (tmp_path / "q.yaml").write_text("- {ask: 'Which port does the billing server listen on?', answer: '8731'}\n")
    judging = f"compress: {{model: {{use: openai, url: '{judge}', model: judge}}}}\n"
    (tmp_path / "s.yaml").write_text(BARE + judging)
    given = ("lab", "fidelity", "chat.json", *SMALL, "--questions", str(tmp_path / "q.yaml"), "--judge", "--json")
    assert json.loads(run(home, "--config", str(tmp_path / "s.yaml"), *given))["scores"] == {"base": 1.0}
    forgetful = tmp_path / "forgetful.yaml"
    forgetful.write_text((tmp_path / "s.yaml").read_text() + "recall: {enabled: false}\n")
    found = json.loads(run(home, "--config", str(forgetful), *given, code=1))
    assert found["scores"] == {"base": 0.0}


def test_a_real_session_retains_its_task(data, tmp_path):
    file = data / "agent_sessions" / "entireio_cli" / "61cb3ba8-484b-4a21-bf99-34f7dc361170.jsonl"
    own_file(tmp_path).write_text("recall: {embedder: {use: none}}\n")
    run(tmp_path, "import", str(file), "--session", "agent:real:main", "--model", "gpt-4o")
    rows = [
        json.loads(row)
        for row in run(tmp_path, "session", "show", "agent:real:main", "--from", "1", "--json").splitlines()
    ]
    # The first user message is a note of the client; the task is the first message typed by the user.
    task = next(row for row in rows if row["role"] == "user" and row["kind"] == "message" and row["text"][0] != "<")
    questions = [
        {"ask": "What was asked for first?", "expect": [" ".join(task["text"].split()[:4])], "evidence": [task["seq"]]}
    ]
    (tmp_path / "q.json").write_text(json.dumps(questions))
    output = run(tmp_path, "lab", "fidelity", str(file), *SMALL, "--questions", "q.json", "--json")
    assert json.loads(output)["questions"][0]["base"]["where"] == "prompt"


def test_usage_errors_end_with_a_single_line(home, tmp_path):
    run(home, "lab", "fidelity", "chat.json", code=2)
    run(home, "lab", "fidelity", "chat.json", "--questions", "questions.yaml", "--judge", code=2)
    run(home, "lab", "fidelity", "chat.json", "--questions", "questions.yaml", "--session", "agent:x:y", code=2)
    run(home, "lab", "fidelity", "questions.yaml", "--questions", "questions.yaml", code=3)
    (tmp_path / "bad.yaml").write_text("questions: [{ask: x}]")
    assert "question 1" in run(home, "lab", "fidelity", "chat.json", "--questions", str(tmp_path / "bad.yaml"), code=3)


@pytest.mark.parametrize(
    "tree",
    [None, 3, "x", [], {}, {"questions": {}}, [3], [{}], [{"ask": ""}], [{"ask": "x", "expect": [{}]}],
     [{"ask": "x", "expect": [""]}], [{"ask": "x", "evidence": [0]}], [{"ask": "x", "evidence": ["y"]}],
     [{"ask": "x", "expect": ["y"], "wieght": 1}], [{"ask": "x", "expect": ["y"], "weight": -1}]],
)  # fmt: skip
def test_an_invalid_set_of_questions_is_refused(tree):
    with pytest.raises(InputError):
        parse_cases(tree)


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [("8731", "port 8731.", True), ("873", "port 8731.", False), ("Port  8731", "the port\n8731", True),
     ("a.b", "axb", False), ("src/x.py", "see src/x.py:3", True), ("", "x", False), ("x)", "(x)", True)],
)  # fmt: skip
def test_words_match_only_at_word_boundaries(words, text, found):
    assert contains_words(words, text) is found
