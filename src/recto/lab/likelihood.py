"""The likelihood of a recorded response under a model, given a prompt: teacher-forced, token by token.

Two kinds of models return it: an OpenAI-compatible server whose `/completions` answers `echo` with the log-probability
of every prompt token (vLLM and others), and the embedded model. Results are kept as JSON lines, one for each prompt,
under a digest of what was scored, so that an interrupted trial goes on where it ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from recto.config import Settings
from recto.errors import InputError, ModelFailed, SettingsError
from recto.lab.moments import PromptMessage
from recto.models.chat.llama_cpp import EmbeddedModel
from recto.models.http import Endpoint, parsed
from recto.tokens.meter import replace_surrogates

MAX_TARGET = 2_000
"""Characters of a response that are scored: of long files that an agent writes, the beginning."""
_MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of a response: a server returns a few hundred for every token of a prompt."""
_ROLES = {"tool": "user"}
"""Roles that not every template knows."""


class ActionScorer(Protocol):
    """A model that tells how likely it finds a text."""

    @property
    def name(self) -> str:
        """Name of the model, as results are kept under."""
        ...

    def losses(self, prompt: Sequence[PromptMessage], target: str) -> list[float]:
        """Returns the negative log-likelihood of each token of the target, in nats. Raises `ModelFailed`."""
        ...

    def close(self) -> None:
        """Closes connections and frees memory."""
        ...


def make_scorer(settings: Settings) -> ActionScorer:
    """Creates the scorer for the model of `compress.model`. Raises `SettingsError`."""
    from recto.config.factory import make_chat_model  # noqa: PLC0415  # only with a model

    chosen = settings.compress.model
    if chosen.use not in ("openai", "embedded"):
        reason = "log-probabilities come from 'openai' (any server with /completions, echo and logprobs) or 'embedded'"
        raise SettingsError("compress.model.use", reason)
    model = make_chat_model(settings)
    if isinstance(model, EmbeddedModel):
        return EmbeddedScorer(model=model)
    endpoint = Endpoint(url=chosen.url, path="/completions", setting="compress.model", key=chosen.key)
    return CompletionsScorer(name=chosen.model, endpoint=endpoint, seconds=chosen.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionsScorer:
    """A server that returns log-probabilities of the prompt. The prompt is written as ChatML."""

    name: str
    endpoint: Endpoint
    seconds: float

    def losses(self, prompt: Sequence[PromptMessage], target: str) -> list[float]:
        """Returns the negative log-likelihood of each token of the target. Raises `ModelFailed`."""
        body = {
            "model": self.name,
            "prompt": chatml(prompt) + target,
            "max_tokens": 1,
            "temperature": 0,
            "echo": True,
            "logprobs": 1,
        }
        answer = self.endpoint.post(body, seconds=self.seconds, most=_MAX_ANSWER)
        if not isinstance(answer, bytes):
            raise ModelFailed(self.name, answer.reason)
        try:
            return echoed_losses(parsed(answer), target)
        except ValueError as error:
            detail = self.endpoint.complaint(answer)
            raise ModelFailed(self.name, f"{error} ({detail})" if detail else str(error)) from None

    def close(self) -> None:
        """Closes its connections."""
        self.endpoint.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedScorer:
    """The model in this process, with its own template."""

    model: EmbeddedModel

    @property
    def name(self) -> str:
        """Name of the weights."""
        return self.model.name

    def losses(self, prompt: Sequence[PromptMessage], target: str) -> list[float]:
        """Returns the negative log-likelihood of each token of the target. Raises `ModelFailed`."""
        return self.model.losses([{"role": _ROLES.get(role, role), "content": text} for role, text in prompt], target)

    def close(self) -> None:
        """Frees its memory."""
        self.model.close()


def chatml(prompt: Sequence[PromptMessage]) -> str:
    """Writes a prompt as ChatML, up to where the assistant begins."""
    said = "".join(
        f"<|im_start|>{_ROLES.get(role, role)}\n{replace_surrogates(text)}<|im_end|>\n" for role, text in prompt
    )
    return f"{said}<|im_start|>assistant\n"


def echoed_losses(answer: object, target: str) -> list[float]:
    """Reads the losses of the tokens that spell the end of an echoed prompt.

    Offsets are not used: servers count a token that they put before the prompt, and half a character, in several ways.

    Raises:
        ValueError: The answer has no log-probabilities, or none that can be true.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    logprobs = choice.get("logprobs") if isinstance(choice, dict) else None
    if not isinstance(logprobs, dict):
        raise ValueError("the answer has no log-probabilities; the server must support echo with logprobs")
    tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
        raise ValueError("it has not as many tokens as log-probabilities")
    if not all(isinstance(token, str) for token in tokens):
        raise ValueError("its tokens are no texts")
    # one token may have been generated behind the prompt
    spelled = next((some for some in (tokens[:-1], tokens) if "".join(some).endswith(target)), None)
    if spelled is None:
        raise ValueError("the tokens that it echoed do not spell the response")
    ends = list(accumulate(map(len, spelled)))
    start = ends[-1] - len(target)
    begins = [0, *ends[:-1]]
    losses = [_loss(value) for begin, value in zip(begins, values, strict=False) if begin >= start]
    if not losses or not start:
        raise ValueError("it did not echo the prompt before the response")
    return losses


def _loss(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value > 1e-6:
        raise ValueError("one of its log-probabilities is none")
    return max(-float(value), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The likelihood of one response given one prompt. Holds nothing of either."""

    key: str
    """A digest of the model, the prompt and the response."""
    run: str
    call: int
    window: int
    arm: str
    model: str
    tokens: int
    """Tokens of the response, as the model cuts it."""
    nats: float
    """Its negative log-likelihood."""

    @property
    def mean(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens


class KeptScores:
    """Scores in a file, one JSON object a line, appended as they are made. Without a file they are only in memory."""

    def __init__(self, file: Path | None = None) -> None:
        """Reads a file. Raises `InputError` if it is of something else."""
        self._file = file
        self._scores: dict[str, Score] = {}
        if file is not None and file.exists():
            self._read(file)

    def __contains__(self, key: str) -> bool:
        return key in self._scores

    def __getitem__(self, key: str) -> Score:
        return self._scores[key]

    def add(self, score: Score) -> None:
        """Keeps a score. It is on the disk when this returns."""
        if self._file is not None:
            with self._file.open("ab") as stream:
                stream.write(json.dumps(asdict(score)).encode() + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
        self._scores[score.key] = score

    def _read(self, file: Path) -> None:
        raw = file.read_bytes()
        complete = raw[: raw.rfind(b"\n") + 1]
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                score = _parsed_score(json.loads(line))
            except (ValueError, TypeError, RecursionError):
                raise InputError(f"'{file}', line {number}: this is no kept score; name another file") from None
            self._scores[score.key] = score
        if len(complete) < len(raw):  # the last line was being written when the trial was interrupted
            if not self._scores:
                raise InputError(f"'{file}' holds no kept scores; name another file")
            os.truncate(file, len(complete))


def _parsed_score(tree: Any) -> Score:  # noqa: ANN401  # whatever the line holds
    score = Score(**tree)
    texts = (score.key, score.run, score.arm, score.model)
    counts = (score.call, score.window, score.tokens)
    if not all(isinstance(text, str) for text in texts) or not all(type(count) is int for count in counts):
        raise ValueError
    if score.tokens < 1 or not isfinite(score.nats) or score.nats < 0:
        raise ValueError
    return score


def score_key(model: str, prompt: Sequence[PromptMessage], target: str) -> str:
    """Returns a digest of what is scored: another prompt or another model is another score."""
    packed = json.dumps([model, prompt, target]).encode()
    return sha256(packed).hexdigest()[:32]
