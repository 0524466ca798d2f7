"""Likelihood of recorded responses: from a server or the embedded model, cached, resumable, and never invented."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from tests.models.serving import Server, serving

from recto.config import load
from recto.errors import InputError, ModelFailed, SettingsError
from recto.lab.likelihood import KeptScores, Score, echoed_losses, make_scorer, score_key
from recto.lab.moments import EQUAL, WHOLE, ArmPrompt, Moment, PromptMessage
from recto.lab.trial import loss_differences, score_moments, summarize_trial

TOKEN = re.compile(r" ?[\w/.]+|\S|\s")
TARGET = "cat src/part_0.py"


def echo(handler, body):
    """Responds like a server with echo and logprobs: a token that occurs earlier in the prompt is likelier."""
    seen: set[str] = set()
    tokens, values = ["<s>"], [None]  # some tokenizers add a token before the prompt
    for found in TOKEN.finditer(body["prompt"]):
        word = found[0].strip()
        tokens.append(found[0])
        values.append(-0.5 if word in seen else -3.0)
        seen.add(word)
    logprobs = {"tokens": [*tokens, " ok"], "text_offset": "not used", "token_logprobs": [*values, -0.1]}
    handler.give({"choices": [{"text": body["prompt"] + " ok", "logprobs": logprobs}]})


def answering(**logprobs):
    return lambda handler, body: handler.give({"choices": [{"logprobs": logprobs}]})


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        server.answers.append(echo)
        yield server


@pytest.fixture
def scorer_of(server: Server):
    """Returns a factory of scorers for the server; the scorers are closed afterwards."""
    with ExitStack() as stack:

        def make(**more):
            model = {"use": "openai", "url": server.url, "model": "tiny", "key": "secret-key", **more}
            settings = load(environ={}, arguments={"compress": {"model": model}})
            return stack.enter_context(closing(make_scorer(settings)))

        yield make


def moment(run="a", call=1, extra="", target=TARGET):
    whole = (PromptMessage("user", f"Look at src/part_0.py {extra}"), PromptMessage("tool", "done"))
    return Moment(
        run=run,
        call=call,
        window=8_000,
        target=target,
        referents=frozenset(),
        old=frozenset(),
        arms=(
            ArmPrompt(arm=EQUAL, tokens=1, messages=whole[1:]),
            ArmPrompt(arm=WHOLE, tokens=2, messages=whole),
            ArmPrompt(arm="zones", tokens=0, refused=True),
        ),
    )


def test_each_token_of_the_response_is_scored_behind_the_prompt(server, scorer_of):
    losses = scorer_of().losses([PromptMessage("tool", "see src/part_0.py")], TARGET)
    assert losses == [3.0, 0.5]
    (body,) = server.asked
    assert body["prompt"] == "<|im_start|>user\nsee src/part_0.py<|im_end|>\n<|im_start|>assistant\ncat src/part_0.py"
    assert (body["model"], body["echo"], body["temperature"]) == ("tiny", True, 0)
    assert server.paths == ["/v1/completions"]
    assert server.headers[0]["Authorization"] == "Bearer secret-key"


def test_an_interrupted_trial_resumes_and_gives_the_same_result(server, scorer_of, tmp_path):
    moments = [moment(run, call, f"{run}{call}") for run in "abc" for call in (1, 2)]
    complete = score_moments(scorer_of(), moments, KeptScores())
    total_requests = len(server.asked)
    assert len(complete) == 12
    assert total_requests == 7, "equal prompts of different moments are scored once"

    server.asked.clear()
    file = tmp_path / "scores.jsonl"
    score_moments(scorer_of(), moments[:2], KeptScores(file))
    with file.open("ab") as stream:
        stream.write(b'{"key": "half a li')
    assert len(server.asked) == 3
    resumed = score_moments(scorer_of(), moments, KeptScores(file))
    assert len(server.asked) == total_requests
    assert resumed == complete
    score_moments(scorer_of(), moments, KeptScores(file))
    assert len(server.asked) == total_requests
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == total_requests


def test_cached_scores_contain_no_text_of_the_prompt_or_the_response(server, scorer_of, tmp_path):
    file = tmp_path / "scores.jsonl"
    score_moments(scorer_of(), [moment()], KeptScores(file))
    assert "part_0" not in file.read_text()
    assert "Look" not in file.read_text()


def test_a_changed_prompt_response_or_model_is_scored_again(server, scorer_of, tmp_path):
    file = tmp_path / "scores.jsonl"
    for changed in (moment(), moment(extra="more"), moment(target="ls src/part_0.py")):
        before = len(server.asked)
        score_moments(scorer_of(), [changed], KeptScores(file))
        assert len(server.asked) > before
    before = len(server.asked)
    score_moments(scorer_of(model="other"), [moment()], KeptScores(file))
    assert len(server.asked) == before + 2


@pytest.mark.parametrize(
    "content", [b"no line of ours", b"[1, 2]\n", b'{"key": 1}\n', b'{"a": 1}\nhalf', b"\xff\xfe\n"]
)
def test_a_file_of_another_kind_is_refused_and_left_unchanged(tmp_path, content):
    file = tmp_path / "notes.txt"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"notes\.txt"):
        KeptScores(file)
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    "changed", [{"tokens": 0}, {"nats": -1.0}, {"nats": float("nan")}, {"tokens": "3"}, {"run": None}, {"more": 1}]
)
def test_an_impossible_cached_score_is_refused(tmp_path, changed):
    score = {"key": "k", "run": "a", "call": 1, "window": 8, "arm": "x", "model": "m", "tokens": 3, "nats": 1.5}
    file = tmp_path / "scores.jsonl"
    file.write_text(json.dumps(score) + "\n" + json.dumps(score | changed) + "\n")
    with pytest.raises(InputError, match="line 2"):
        KeptScores(file)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda handler, body: handler.give(b"<html>"), "not JSON"),
        (lambda handler, body: handler.give([]), "no log-probabilities"),
        (lambda handler, body: handler.give({"choices": [{"text": "x", "logprobs": None}]}), "no log-probabilities"),
        (lambda handler, body: handler.give({"choices": "x"}), "no log-probabilities"),
        (lambda handler, body: handler.give({"error": {"message": "no \x1b[31m echo"}}, 400), "no  ?.*echo"),
        (answering(tokens=["a"], token_logprobs=[None, -1.0]), "not as many tokens"),
        (answering(tokens=None, token_logprobs=[None, -1.0]), "not as many tokens"),
        (answering(tokens=["a", 1], token_logprobs=[None, -1.0]), "no texts"),
        (answering(tokens=[], token_logprobs=[]), "do not spell"),
        (answering(tokens=[" ok"], token_logprobs=[-1.0]), "do not spell"),
        (answering(tokens=["x", TARGET[1:], "."], token_logprobs=[None, -1.0, -1.0]), "do not spell"),
        (answering(tokens=[TARGET, "."], token_logprobs=[-1.0, -1.0]), "did not echo the prompt"),
        (answering(tokens=["x" + TARGET, "."], token_logprobs=[-1.0, -1.0]), "did not echo the prompt"),
        (answering(tokens=["x", TARGET, "."], token_logprobs=[None, None, -1.0]), "one of its log-probabilities"),
        (answering(tokens=["x", TARGET, "."], token_logprobs=[None, 0.7, -1.0]), "one of its log-probabilities"),
        (answering(tokens=["x", TARGET], token_logprobs=[None, float("nan")]), "one of its log-probabilities"),
        (answering(tokens=["x", TARGET], token_logprobs=[None, float("-inf")]), "one of its log-probabilities"),
        (answering(tokens=["x", TARGET], token_logprobs=[None, "-1"]), "one of its log-probabilities"),
    ],
)
def test_a_hostile_response_gives_no_score(server, scorer_of, tmp_path, answer, reason):
    server.answers[:] = [answer]
    failures: list[ModelFailed] = []
    file = tmp_path / "scores.jsonl"
    assert score_moments(scorer_of(), [moment()], KeptScores(file), on_failure=failures.append) == []
    assert len(failures) == 1  # without the whole history, which is scored first, no other request is sent
    assert re.search(reason, failures[0].detail)
    assert "secret-key" not in str(failures[0])
    assert not file.exists()


def test_a_moment_whose_whole_history_cannot_be_scored_is_left_out_and_the_next_is_scored(server, scorer_of):
    refuse = lambda handler, body: handler.give({"error": {"message": "too long"}}, 400)  # noqa: E731
    server.answers[:] = [refuse, echo]
    failures: list[ModelFailed] = []
    scores = score_moments(scorer_of(), [moment("a"), moment("b")], KeptScores(), on_failure=failures.append)
    assert [(score.run, score.arm) for score in scores] == [("b", WHOLE), ("b", EQUAL)]
    assert len(failures) == 1


def test_losses_are_compared_with_the_whole_history_at_the_same_moment(server, scorer_of):
    moments = [moment(run, 1, run) for run in "abcd"]
    scores = score_moments(scorer_of(), moments, KeptScores())
    differences = loss_differences(scores)
    assert list(differences) == [(8_000, EQUAL)]
    assert [loss.loss for losses in differences[8_000, EQUAL].values() for loss in losses] == [1.25] * 4
    assert loss_differences([score for score in scores if score.arm != WHOLE]) == {}
    assert summarize_trial([], scores) == []


def test_a_blank_response_is_not_scored(server, scorer_of):
    assert score_moments(scorer_of(), [moment(target=" \n")], KeptScores()) == []
    assert server.asked == []


def test_the_key_of_a_score_depends_on_everything_scored():
    prompt = [PromptMessage("user", "a")]
    keys = {score_key("m", prompt, "x"), score_key("n", prompt, "x"), score_key("m", prompt, "y")}
    keys |= {score_key("m", [PromptMessage("tool", "a")], "x"), score_key("m", [*prompt, *prompt], "x")}
    assert len(keys) == 5
    assert Score(key="k", run="a", call=1, window=8, arm="x", model="m", tokens=4, nats=2.0).mean == 0.5


@pytest.mark.parametrize("use", ["none", "anthropic"])
def test_a_model_without_log_probabilities_is_refused_with_the_setting(use):
    settings = load(environ={})
    model = replace(settings.compress.model, use=use, model="any", key="k")
    with pytest.raises(SettingsError, match=r"compress\.model\.use.*echo and logprobs"):
        make_scorer(replace(settings, compress=replace(settings.compress, model=model)))


def test_tokens_before_the_response_and_generated_tokens_are_not_counted():
    values = [None, -1.0, -2.0, -4.0]
    answer = {"choices": [{"logprobs": {"tokens": ["<s>", "ab", "cd", "ef"], "token_logprobs": values}}]}
    assert echoed_losses(answer, "bcd") == [2.0]
    assert echoed_losses(answer, "cd") == [2.0]
    assert echoed_losses(answer, "cdef") == [2.0, 4.0]
