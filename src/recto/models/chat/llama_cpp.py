"""A model that writes text in this process: any GGUF file, run by llama.cpp through `xllamacpp`.

It is loaded when it is first asked, and answers one question at a time. An answer that nobody wants any more is broken
off; until that has happened the model is busy.
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
from recto.tokens.estimates import replace_surrogates

_BATCH = 128
"""Tokens that are read in one go. After each it can be broken off; more are hardly faster without a graphics card."""
_LONGEST_SOCKET = 100
"""Bytes that the address of a socket may have on every system."""
_MOST_CONTROL = 512
_SECONDS = 30.0
"""How long the tokenizer may take."""


class Runtime:
    """A loaded model. One thread at a time."""

    def __init__(self, file: Path, *, context: int, threads: int) -> None:
        """Loads it. Raises `ValueError` where it cannot be."""
        self._control = _pattern(control_tokens(file))
        self._folder = _private_folder()
        self._tidy = finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._key = secrets.token_hex()
        # Idle threads sleep: the machine is the agent's. It is read once, when the runtime is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        import xllamacpp  # noqa: PLC0415  # only for who runs a model

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx = context
        params.n_batch = params.n_ubatch = min(_BATCH, context)
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.use_jinja = True
        params.no_extra_bufts = True  # a second copy of the weights, for little speed
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
        """Frees its memory; no other call may follow."""
        self._server = None
        self._tidy()

    def write(self, system: str, text: str, most: int, take: Callable[[dict[str, Any]], bool]) -> None:
        """Answers, piece by piece, until `take` says that no other piece shall come."""
        messages = [{"role": "system", "content": self._as_text(system)}] if system else []
        messages.append({"role": "user", "content": self._as_text(text)})
        question = {
            "messages": messages,
            "max_tokens": most,
            "temperature": 0,
            "repeat_penalty": 1.15,  # without it a small model goes round in circles
            "repeat_last_n": 256,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # pieces while the question is read, so that it can be broken off there too
            "cache_prompt": False,  # the same question gives the same answer, whatever was asked before
        }
        self._server.handle_chat_completions(question, take)

    def converse(
        self, messages: Sequence[Mapping[str, Any]], asked: Mapping[str, Any], take: Callable[[dict[str, Any]], bool]
    ) -> None:
        """Answers a conversation, piece by piece, until `take` says that no other piece shall come."""
        question = {
            "repeat_penalty": 1.1,
            **asked,
            "messages": [self._harmless(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
            "cache_prompt": True,  # a conversation begins with what was read for the answer before
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
        """How many tokens a text is; what looks like a control token is text. Raises `ValueError`."""
        link = _Link(self._address)
        try:
            body = json.dumps({"content": text, "parse_special": False})
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
            link.request("POST", "/tokenize", body, headers)
            return len(json.loads(link.getresponse().read())["tokens"])
        except (OSError, HTTPException, KeyError) as error:
            raise ValueError(f"the tokenizer did not answer ({type(error).__name__})") from None
        finally:
            link.close()

    @property
    def _address(self) -> str:
        return str(self._folder / "s.sock")

    def _as_text(self, text: str) -> str:
        """A text in which nothing steers the model: what spells a control token is taken apart by a space."""
        return self._control.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text) if self._control else text


class _Link(HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, address: str) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._to = address

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(self._to)


def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="recto-"))
    if len(os.fsencode(folder)) > _LONGEST_SOCKET - 10:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="recto-", dir="/tmp"))  # made anew, for this user alone
    return folder


def _pattern(control: list[str]) -> re.Pattern[str] | None:
    """What spells a control token, the longest first; those of one character are left alone."""
    spelled = sorted({token for token in control if len(token) > 1}, key=len, reverse=True)[:_MOST_CONTROL]
    return re.compile("|".join(map(re.escape, spelled))) if spelled else None


_T = TypeVar("_T")
USUAL_CONTEXT = 8192
"""Tokens of a question and its answer together, where nobody says otherwise."""
_BUSY = "it is busy with another answer"
_TOO_LATE = "no answer within the time that it may take"
_PARTING = 10.0
"""Seconds that the end of the process waits for an answer to be broken off."""
_ENDINGS: dict[object, Ending] = {"stop": "stop", "length": "length"}


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class EmbeddedModel:
    """One GGUF file. Any number of threads may ask; they are answered one after the other."""

    path: Path = field(kw_only=False)
    name: str
    window: int = USUAL_CONTEXT
    seconds: float = 60.0
    """The longest that one answer may take, loading included; a request may allow less."""
    prepare: Callable[[], object] | None = field(default=None, repr=False)
    """Called before the file is loaded, to check it."""
    _runtime: Runtime | None = field(default=None, init=False, repr=False)
    _turn: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _leave: bool = field(default=False, init=False, repr=False)

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """The answer to a request. Raises `ModelFailed`."""
        call: _Call[ModelReply] = _Call(ends=time.monotonic() + min(request.seconds, self.seconds), cancelled=cancelled)
        return checked(self.name, self._within(call, lambda: self._write(request, call)))

    def converse(
        self,
        messages: Sequence[Mapping[str, Any]],
        asked: Mapping[str, Any],
        take: Callable[[dict[str, Any]], None],
        cancelled: Cancelled | None = None,
    ) -> None:
        """Answers a conversation of Chat messages, handing out each piece as it is written. Raises `ModelFailed`.

        `asked` are members of a Chat request, such as `max_tokens`. `take` is called on another thread.
        """
        call: _Call[None] = _Call(ends=time.monotonic() + self.seconds, cancelled=cancelled)
        refusals: list[str] = []

        def piece(chunk: dict[str, Any]) -> bool:
            if "error" in chunk:
                refusals.append(_refusal(chunk["error"]))
            else:
                take(chunk)
            return bool(refusals) or call.over()

        self._within(call, lambda: self._loaded().converse(messages, asked, piece))
        if refusals or call.over():
            raise ModelFailed(self.name, refusals[0] if refusals else call.why(_TOO_LATE))

    def tokens(self, text: str) -> int:
        """How many tokens the model makes of a text; what looks like a control token is text. Raises `ModelFailed`."""
        call: _Call[int] = _Call(ends=time.monotonic() + self.seconds)
        return self._within(call, lambda: self._loaded().tokens(replace_surrogates(text)))

    def close(self) -> None:
        """Frees its memory, at once or when the answer that is being written is through; the next use loads it anew."""
        self._leave = True
        if self._turn.acquire(blocking=False):
            runtime, self._runtime, self._leave = self._runtime, None, False
            if runtime is not None:
                runtime.close()
            self._turn.release()

    def _within(self, call: _Call[_T], work: Callable[[], _T]) -> _T:
        """What the work gives, on a thread of its own, which is left alone when its time is over."""
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

    def _run(self, call: _Call[_T], work: Callable[[], _T]) -> None:
        try:
            call.found.append(work())
        except BaseException as error:  # noqa: BLE001  # nothing may be lost on a thread that nobody looks at
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

    def _write(self, request: ModelRequest, call: _Call[ModelReply]) -> ModelReply:
        runtime, answer = self._loaded(), _Answer(call)
        runtime.write(
            replace_surrogates(request.system), replace_surrogates(request.text), request.max_tokens, answer.take
        )
        if answer.refusal or answer.broken_off:
            raise ModelFailed(self.name, answer.refusal or call.why(_TOO_LATE))
        return answer.reply()


_RUNNING: set[_Call[Any]] = set()
"""Calls that are not through yet, of all models."""
_LOADED: WeakSet[EmbeddedModel] = WeakSet()
_beginning = threading.Lock()
_parting = threading.Event()


def _begin(call: _Call[Any]) -> None:
    with _beginning:
        if _parting.is_set():
            raise RuntimeError("the process is ending")
        _RUNNING.add(call)


@atexit.register
def _part() -> None:
    """Breaks off what is still being written, and frees all: a process that ends under a runtime at work crashes."""
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
class _Call(Generic[_T]):
    """One use of a model, and what came of it."""

    ends: float
    cancelled: Cancelled | None = None
    given_up: bool = False
    found: list[_T] = field(default_factory=list)
    error: BaseException | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def over(self) -> bool:
        """Whether nobody waits for it any more, or nobody should."""
        return self.given_up or time.monotonic() >= self.ends or self._unwanted

    @property
    def look(self) -> float:
        """Seconds until it should be looked at again."""
        return min(max(self.ends - time.monotonic(), 0.0), LOOK_SECONDS)

    def why(self, otherwise: str) -> str:
        """Why it is over."""
        return NO_LONGER_WANTED if self._unwanted else otherwise

    @property
    def _unwanted(self) -> bool:
        return self.cancelled is not None and self.cancelled.is_set()


class _Answer:
    """What a model writes, taken piece by piece."""

    def __init__(self, call: _Call[ModelReply]) -> None:
        self.refusal = ""
        self.broken_off = False
        self._call = call
        self._pieces: list[str] = []
        self._ended: object = None
        self._usage: object = None

    def take(self, chunk: dict[str, Any]) -> bool:
        """Takes a piece; True where no other shall come."""
        if "error" in chunk:
            self.refusal = _refusal(chunk["error"])
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            self._ended = choice.get("finish_reason") or self._ended
            self._pieces.append(choice.get("delta", {}).get("content") or "")
        self.broken_off = self._call.over()
        return self.broken_off

    def reply(self) -> ModelReply:
        """The whole of it."""
        return ModelReply(
            text="".join(self._pieces),
            ending=_ENDINGS.get(self._ended, "unknown"),
            prompt_tokens=tokens_in(self._usage, "prompt_tokens"),
            answer_tokens=tokens_in(self._usage, "completion_tokens"),
        )


def _refusal(error: object) -> str:
    tree = error if isinstance(error, dict) else {}
    asked, room = tree.get("n_prompt_tokens"), tree.get("n_ctx")
    if isinstance(asked, int) and isinstance(room, int):
        return f"the question has {asked:,} tokens, and there is room for {room:,}"
    return f"it refused ({str(tree.get('message', error))[:200]})"


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
