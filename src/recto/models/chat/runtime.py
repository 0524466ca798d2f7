"""llama.cpp in this process: one GGUF file loaded, asked in its own chat template, its tokenizer included.

The runtime carries a server. It listens on a socket in a folder that only this user may enter, with a key made for it,
and on no port: nobody else can ask it, or read what it was asked. Only the tokenizer is asked there. Time limits, and
whose turn it is, are not known here.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from weakref import finalize

from recto.models.chat.gguf import control_tokens

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
