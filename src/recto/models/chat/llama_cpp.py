"""A chat model in this process: any GGUF file, run by llama.cpp through `xllamacpp`.

The model is loaded when first used and serves one request at a time. A cancelled generation is stopped at the next
piece; until then the model is busy.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakSet, finalize

from recto.context.compaction.protocols import Cancelled, Ending, ModelReply, ModelRequest
from recto.errors import ModelFailed, RectoError
from recto.models.chat.gguf import control_tokens
from recto.models.chat.http import checked, tokens_in
from recto.models.http import LOOK_SECONDS, NO_LONGER_WANTED
from recto.tokens.meter import replace_surrogates

_BATCH = 128
"""Batch size of prompt processing. It can be cancelled after each batch; more is hardly faster without a GPU."""
_LONGEST_SOCKET = 100
"""Longest socket path that every system permits, in bytes."""
_MOST_CONTROL = 512
_SECONDS = 30.0
"""Time limit of the tokenizer, in seconds."""


class Runtime:
    """A loaded model. Not thread-safe."""

    def __init__(self, file: Path, *, context: int, threads: int) -> None:
        """Load the model. Raises `ValueError` if that fails."""
        self._control = _pattern(control_tokens(file))
        self._folder = _private_folder()
        self._tidy = finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._key = secrets.token_hex()
        # Idle threads sleep, because the agent needs the machine too. Read once, when the runtime is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import xllamacpp  # noqa: PLC0415  # imported only when a model is run

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx = context
        params.n_batch = params.n_ubatch = min(_BATCH, context)
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.use_jinja = True
        params.no_extra_bufts = True  # a second copy of the weights, for little gain
        params.cache_ram_mib = params.n_ctx_checkpoints = 0
        params.warmup = params.ui = params.endpoint_slots = False
        params.offline = True
        params.verbosity = -1
        params.hostnames = [self._address]
        params.api_keys = [self._key]
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise ValueError(f"{error}".rstrip(".")) from None

    def close(self) -> None:
        """Free its memory. No other call may follow."""
        self._server = None
        self._tidy()

    def write(self, system: str, text: str, most: int, take: Callable[[dict[str, Any]], bool]) -> None:
        """Generate a completion in pieces, until `take` returns true."""
        messages = [{"role": "system", "content": self._as_text(system)}] if system else []
        messages.append({"role": "user", "content": self._as_text(text)})
        question = {
            "messages": messages,
            "max_tokens": most,
            "temperature": 0,
            "repeat_penalty": 1.15,  # without it a small model repeats itself
            "repeat_last_n": 256,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # progress during prompt processing, so that it can be cancelled there too
            "cache_prompt": False,  # the same request gives the same response, whatever came before
        }
        self._server.handle_chat_completions(question, take)

    def converse(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any], take: Callable[[dict[str, Any]], bool]
    ) -> None:
        """Generate a chat response in pieces, until `take` returns true."""
        question = {
            "repeat_penalty": 1.1,
            **options,
            "messages": [self._harmless(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
            "cache_prompt": True,  # a conversation starts with the prompt of the previous response
        }
        self._server.handle_chat_completions(question, take)

    def _harmless(self, message: Mapping[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if isinstance(content, str):
            return {**message, "content": self._as_text(content)}
        if isinstance(content, list):
            parts = [part if "text" not in part else {**part, "text": self._as_text(part["text"])} for part in content]
            return {**message, "content": parts}
        return dict(message)

    def tokens(self, text: str) -> int:
        """Count the tokens of a text; control tokens in it count as plain text. Raises `ValueError`."""
        return len(self._cut(text, parse_special=False))

    def losses(
        self, messages: Sequence[Mapping[str, Any]], target: str, over: Callable[[], bool], seconds: float
    ) -> list[float]:
        """Return the negative log-likelihood of each token of a response, in nats; gives up when `over` returns true.

        The server has no log-probabilities of prompts. So each token is generated alone behind those before it, forced
        by a bias; its reported probability is that of the model, before the bias. Raises `ValueError`.
        """
        rendered = self._post("/apply-template", {"messages": [self._harmless(message) for message in messages]})
        before = self._cut(str(rendered.get("prompt", "")), parse_special=True)
        losses: list[float] = []
        for place, token in enumerate(response := self._cut(target, parse_special=False)):
            if over():
                raise ValueError(_TOO_LATE)
            question = {
                "prompt": [*before, *response[:place]],
                "n_predict": 1,
                "temperature": 0,
                "n_probs": 1,
                "logit_bias": [[token, 1000.0]],
                "cache_prompt": place > 0,  # the first one starts afresh, so that no earlier call changes the result
            }
            (generated,) = self._post("/completion", question, seconds)["completion_probabilities"]
            if generated["id"] != token:
                raise ValueError("it did not generate the token that it had to")
            losses.append(-float(generated["logprob"]))
        return losses

    def _cut(self, text: str, *, parse_special: bool) -> list[int]:
        """Cut a text into tokens. A rendered prompt has control tokens in it; in all other text they are plain."""
        body = {"content": text, "parse_special": parse_special, "add_special": parse_special}
        tokens: list[int] = self._post("/tokenize", body)["tokens"]
        return tokens

    def _post(self, path: str, body: Mapping[str, Any], seconds: float = _SECONDS) -> dict[str, Any]:
        link = _Link(self._address, seconds)
        try:
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
            link.request("POST", path, json.dumps(body), headers)
            answer: dict[str, Any] = json.loads(link.getresponse().read())
        except (OSError, HTTPException) as error:
            raise ValueError(f"its server did not answer ({type(error).__name__})") from None
        finally:
            link.close()
        if "error" in answer:
            raise ValueError(_refusal(answer["error"]))
        return answer

    @property
    def _address(self) -> str:
        return str(self._folder / "s.sock")

    def _as_text(self, text: str) -> str:
        """Neutralize control tokens in a text by inserting a space into their spelling."""
        return self._control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text) if self._control else text


class _Link(HTTPConnection):
    """HTTP over a Unix domain socket."""

    def __init__(self, address: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._to, self._seconds = address, seconds

    def connect(self) -> None:
        """Connect the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._seconds)
        self.sock.connect(self._to)


def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="recto-"))
    if len(os.fsencode(folder)) > _LONGEST_SOCKET - 10:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="recto-", dir="/tmp"))  # a new directory that only this user can read
    return folder


def _pattern(control: list[str]) -> re.Pattern[str] | None:
    """Return a pattern of all control token spellings, longest first, without those of one character."""
    spelled = sorted({token for token in control if len(token) > 1}, key=len, reverse=True)[:_MOST_CONTROL]
    return re.compile("|".join(map(re.escape, spelled))) if spelled else None


_T = TypeVar("_T")
USUAL_CONTEXT = 8192
"""Default context length in tokens."""
_BUSY = "it is busy with another answer"
_TOO_LATE = "no answer within the time that it may take"
_PARTING = 10.0
"""Seconds that the process waits at exit for a generation to be cancelled."""
_ENDINGS: dict[object, Ending] = {"stop": "stop", "length": "length"}


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class EmbeddedModel:
    """A model from one GGUF file. Thread-safe: requests are served one after the other."""

    path: Path = field(kw_only=False)
    name: str
    window: int = USUAL_CONTEXT
    seconds: float = 60.0
    """Time limit of one response in seconds, including loading; a request may allow less."""
    prepare: Callable[[], object] | None = field(default=None, repr=False)
    """Called before the file is loaded, to verify it."""
    _runtime: Runtime | None = field(default=None, init=False, repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _leave: bool = field(default=False, init=False, repr=False)

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """Generate the response to a request. Raises `ModelFailed`."""
        call: _ModelUse[ModelReply] = _ModelUse(
            ends=time.monotonic() + min(request.seconds, self.seconds), cancelled=cancelled
        )
        return checked(self.name, self._within(call, lambda: self._write(request, call)))

    def converse(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        take: Callable[[dict[str, Any]], None],
        cancelled: Cancelled | None = None,
    ) -> None:
        """Generate a response to chat messages and pass on each piece as it is generated. Raises `ModelFailed`.

        `options` are fields of a Chat request, such as `max_tokens`. `take` is called on another thread.
        """
        call: _ModelUse[None] = _ModelUse(ends=time.monotonic() + self.seconds, cancelled=cancelled)
        refusals: list[str] = []

        def piece(chunk: dict[str, Any]) -> bool:
            if "error" in chunk:
                refusals.append(_refusal(chunk["error"]))
            else:
                take(chunk)
            return bool(refusals) or call.over()

        self._within(call, lambda: self._loaded().converse(messages, options, piece))
        if refusals or call.over():
            raise ModelFailed(self.name, refusals[0] if refusals else call.why(_TOO_LATE))

    def tokens(self, text: str) -> int:
        """Count the tokens of a text; control tokens in it count as plain text. Raises `ModelFailed`."""
        call: _ModelUse[int] = _ModelUse(ends=time.monotonic() + self.seconds)
        return self._within(call, lambda: self._loaded().tokens(replace_surrogates(text)))

    def losses(self, messages: Sequence[Mapping[str, Any]], target: str) -> list[float]:
        """Return the negative log-likelihood of each token of a response to messages, in nats. Raises `ModelFailed`."""
        call: _ModelUse[list[float]] = _ModelUse(ends=time.monotonic() + self.seconds)
        said = [{**message, "content": replace_surrogates(message["content"])} for message in messages]

        def work() -> list[float]:
            try:
                return self._loaded().losses(said, replace_surrogates(target), call.over, self.seconds)
            except ValueError as error:
                raise ModelFailed(self.name, str(error)) from None

        return self._within(call, work)

    def close(self) -> None:
        """Free its memory, at once or after the current generation; the next use loads it again."""
        self._leave = True
        if self._turn.acquire(blocking=False):
            runtime, self._runtime, self._leave = self._runtime, None, False
            if runtime is not None:
                runtime.close()
            self._turn.release()

    def _within(self, call: _ModelUse[_T], work: Callable[[], _T]) -> _T:
        """Run work on a thread of its own, which is abandoned when its time is over."""
        while call.over() or not self._turn.acquire(timeout=call.look):
            if call.over():
                raise ModelFailed(self.name, call.why(_BUSY if self._turn.locked() else _TOO_LATE))
        try:
            _begin(call)
            threading.Thread(target=self._run, args=(call, work), name="recto-embedded", daemon=True).start()
        except RuntimeError as error:
            _RUNNING.discard(call)
            self._turn.release()
            raise ModelFailed(self.name, f"it could not be begun ({error})") from None
        while not call.done.wait(call.look):
            if call.over():
                call.given_up = True
                raise ModelFailed(self.name, call.why(_TOO_LATE))
        if isinstance(call.error, ModelFailed):
            raise call.error
        if call.error is not None:
            raise ModelFailed(self.name, f"it broke ({type(call.error).__name__})") from call.error
        return call.found[0]

    def _run(self, call: _ModelUse[_T], work: Callable[[], _T]) -> None:
        try:
            call.found.append(work())
        except BaseException as error:  # noqa: BLE001  # an error on a background thread must reach the caller
            call.error = error
        finally:
            self._turn.release()
            call.done.set()
            _RUNNING.discard(call)
            if self._leave:
                self.close()

    def _loaded(self) -> Runtime:
        if self._runtime is None:
            try:
                if self.prepare is not None:
                    self.prepare()
                self._runtime = Runtime(self.path, context=self.window, threads=_cores())
                _LOADED.add(self)
            except (ValueError, ImportError, RectoError) as error:
                raise ModelFailed(self.name, f"it cannot be loaded ({str(error).rstrip('.')})") from None
        return self._runtime

    def _write(self, request: ModelRequest, call: _ModelUse[ModelReply]) -> ModelReply:
        runtime, answer = self._loaded(), _StreamedAnswer(call)
        runtime.write(
            replace_surrogates(request.system), replace_surrogates(request.text), request.max_tokens, answer.take
        )
        if answer.refusal or answer.broken_off:
            raise ModelFailed(self.name, answer.refusal or call.why(_TOO_LATE))
        return answer.reply()


_RUNNING: set[_ModelUse[Any]] = set()
"""Unfinished calls of all models."""
_LOADED: WeakSet[EmbeddedModel] = WeakSet()
_beginning = threading.Lock()
_parting = threading.Event()


def _begin(call: _ModelUse[Any]) -> None:
    with _beginning:
        if _parting.is_set():
            raise RuntimeError("the process is ending")
        _RUNNING.add(call)


@atexit.register
def _part() -> None:
    """Cancel running generations and free all models: exiting while the runtime works would crash the process."""
    ends = time.monotonic() + _PARTING
    with _beginning:
        _parting.set()
        running = list(_RUNNING)
    for call in running:
        call.given_up = True
        call.done.wait(max(ends - time.monotonic(), 0.0))
    for model in list(_LOADED):
        model.close()


@dataclass(slots=True, eq=False, kw_only=True)
class _ModelUse(Generic[_T]):
    """One call of a model and its result."""

    ends: float
    cancelled: Cancelled | None = None
    given_up: bool = False
    found: list[_T] = field(default_factory=list)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def over(self) -> bool:
        """Whether the call was cancelled, abandoned or timed out."""
        return self.given_up or time.monotonic() >= self.ends or self._unwanted

    @property
    def look(self) -> float:
        """Seconds until the next check."""
        return min(max(self.ends - time.monotonic(), 0.0), LOOK_SECONDS)

    def why(self, otherwise: str) -> str:
        """Return the message of a failure: that the call was cancelled, or `otherwise`."""
        return NO_LONGER_WANTED if self._unwanted else otherwise

    @property
    def _unwanted(self) -> bool:
        return self.cancelled is not None and self.cancelled.is_set()


class _StreamedAnswer:
    """Collects the pieces that a model generates."""

    def __init__(self, call: _ModelUse[ModelReply]) -> None:
        self.refusal = ""
        self.broken_off = False
        self._call = call
        self._pieces: list[str] = []
        self._ended: object = None
        self._usage: object = None

    def take(self, chunk: dict[str, Any]) -> bool:
        """Add a piece; returns True to stop the generation."""
        if "error" in chunk:
            self.refusal = _refusal(chunk["error"])
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            self._ended = choice.get("finish_reason") or self._ended
            self._pieces.append(choice.get("delta", {}).get("content") or "")
        self.broken_off = self._call.over()
        return self.broken_off

    def reply(self) -> ModelReply:
        """Return the complete reply."""
        return ModelReply(
            text="".join(self._pieces),
            ending=_ENDINGS.get(self._ended, "unknown"),
            prompt_tokens=tokens_in(self._usage, "prompt_tokens"),
            answer_tokens=tokens_in(self._usage, "completion_tokens"),
        )


def _refusal(error: object) -> str:
    tree = error if isinstance(error, dict) else {}
    prompt_tokens, context = tree.get("n_prompt_tokens"), tree.get("n_ctx")
    if isinstance(prompt_tokens, int) and isinstance(context, int):
        return f"the question has {prompt_tokens:,} tokens, and there is room for {context:,}"
    return f"it refused ({str(tree.get('message', error))[:200]})"


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
