"""Recto in Hermes: every prompt fits, and the history of the agent is never rewritten.

Written by `recto plugin install hermes`; `recto plugin uninstall hermes` removes it.

Recto sees each request before it is sent, stores what is new in it, and returns the working set to send in its place.
The agent's own list stays whole, so Hermes has nothing to compact. Where Recto fails, Hermes compacts as without it.
"""

from __future__ import annotations

import json
import logging
import queue
import subprocess
import threading
from typing import Any

from agent.context_compressor import ContextCompressor

PROGRAM = ["recto"]  # the command that starts Recto
SECONDS = 30
WINDOW = 128_000
"""The window until Hermes names that of the model."""
WIRES = {
    "chat_completions": ("openai.chat", "messages", ""),
    "anthropic_messages": ("anthropic.messages", "messages", "system"),
    "codex_responses": ("openai.responses", "input", "instructions"),
}
"""For each mode of Hermes the format, and the members with the messages and with system text beside them."""
ANSWER_SIZES = ("max_tokens", "max_completion_tokens", "max_output_tokens")
log = logging.getLogger("recto")


class Recto:
    """A process of Recto that answers requests, one line each. After it has failed it is not asked again."""

    def __init__(self) -> None:
        self.windows: dict[str, int] = {}
        """The window of each session's model."""
        self.usages: dict[str, dict[str, int]] = {}
        self.failed: set[str] = set()
        """Sessions whose last prompt Recto could not fit."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._is_gone = False

    def __deepcopy__(self, memo: object) -> Recto:
        return self  # Hermes copies an engine for each agent; they share the process

    def ask(self, **request: Any) -> dict[str, Any] | None:  # noqa: ANN401  # JSON
        """Return the answer; None where Recto fails."""
        with self._lock:
            if self._is_gone:
                return None
            try:
                answer: dict[str, Any] = json.loads(self._exchange(json.dumps(request)))
            except (OSError, TypeError, ValueError, queue.Empty) as error:
                log.warning("Recto does not answer (%r); Hermes compacts by itself", error)
                self._end()
                return None
        if "error" in answer:
            log.warning("Recto: %s", answer["error"])
            return None
        return answer

    def _exchange(self, line: str) -> bytes:
        process = self._process or self._start()
        if process.stdin is None:
            raise OSError("it has no input")
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        return self._lines.get(timeout=SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [*PROGRAM, "plugin", "engine", "hermes"]
        process = subprocess.Popen(  # noqa: S603  # the command is the user's own
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        self._process = process
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        for line in process.stdout or ():
            self._lines.put(line)
        self._lines.put(b"")

    def _end(self) -> None:
        self._is_gone = True
        if self._process is not None:
            self._process.kill()


class RectoEngine(ContextCompressor):
    """Hermes' own compressor, which is idle as long as Recto fits the prompts."""

    def __init__(self, recto: Recto) -> None:
        super().__init__(model="", quiet_mode=True, config_context_length=WINDOW)
        self.recto = recto
        self.session = ""

    @property
    def name(self) -> str:
        """The value of `context.engine` in Hermes' settings."""
        return "recto"

    def on_session_start(self, session_id: str, **more: Any) -> None:  # noqa: ANN401  # Hermes'
        """Remember the session, and how large its window is."""
        super().on_session_start(session_id, **more)
        self.session = session_id
        self.recto.windows[session_id] = self.context_length

    def update_model(self, model: str, context_length: int, *others: Any, **more: Any) -> None:  # noqa: ANN401
        """Take over the window of another model."""
        super().update_model(model, context_length, *others, **more)
        if self.session:
            self.recto.windows[self.session] = context_length

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether Hermes has to compact: only where Recto could not fit the last prompt."""
        return self.session in self.recto.failed and super().should_compress(prompt_tokens)

    def compress(
        self,
        messages: list[dict[str, Any]],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[dict[str, Any]]:
        """Compact: by the user's command Recto does; unasked, a provider has refused the prompt, and Hermes does."""
        if force and self.session not in self.recto.failed:
            compacted = self.recto.ask(op="compact", session=self.session, focus=focus_topic or "")
            if compacted is not None:
                return messages
        return super().compress(messages, current_tokens, focus_topic, force, memory_context)  # type: ignore[no-any-return]


class Requests:
    """What Hermes calls for each request to a model."""

    def __init__(self, recto: Recto) -> None:
        self.recto = recto

    def fit(
        self,
        *,
        request: dict[str, Any],
        session_id: str = "",
        turn_id: str = "",
        model: str = "",
        api_mode: str = "",
        **_: object,
    ) -> dict[str, Any] | None:
        """Return the request with the working set in the place of the whole history."""
        wire, place, beside = WIRES.get(api_mode, ("", "", ""))
        if not session_id or not isinstance(request.get(place), list):
            return None
        answer = self.recto.ask(
            op="fit",
            session=session_id,
            turn=turn_id,
            wire=wire,
            model=model,
            window=self.recto.windows.get(session_id),
            answer=next((request[name] for name in ANSWER_SIZES if request.get(name)), None),
            system=request.get(beside),
            messages=request[place],
            tools=request.get("tools"),
        )
        if answer is None:
            self.recto.failed.add(session_id)
            return None
        self.recto.failed.discard(session_id)
        return {"request": {**request, place: answer["messages"]}, "source": "recto"}

    def count(self, *, session_id: str = "", usage: dict[str, int] | None = None, **_: object) -> None:
        """Keep what the provider counted, for the answer that ends the turn."""
        if usage and usage.get("prompt_tokens"):
            counted = {"prompt_tokens": usage["prompt_tokens"], "completion_tokens": usage.get("output_tokens", 0)}
            self.recto.usages[session_id] = counted

    def store(
        self,
        *,
        session_id: str = "",
        turn_id: str = "",
        conversation_history: list[dict[str, Any]] | None = None,
        **_: object,
    ) -> None:
        """Store the answer that ends a turn; every other message is in the next request."""
        last = conversation_history[-1] if conversation_history else {}
        text = last.get("api_content") or last.get("content")
        if last.get("role") == "assistant" and isinstance(text, str) and text:
            message, usage = {"role": "assistant", "content": text}, self.recto.usages.pop(session_id, None)
            self.recto.ask(op="heard", session=session_id, turn=turn_id, message=message, usage=usage)

    def learn(self, *, session_id: str = "", error: dict[str, Any] | None = None, **_: object) -> None:
        """Take over the limits that a provider names when it refuses a prompt."""
        if error and session_id in self.recto.windows:
            self.recto.ask(op="overflowed", session=session_id, error=str(error.get("message")))


def register(context: Any) -> None:  # noqa: ANN401  # Hermes' own
    """Register the engine, and what Hermes calls for each request."""
    recto = Recto()
    requests = Requests(recto)
    context.register_context_engine(RectoEngine(recto))
    context.register_middleware("llm_request", requests.fit)
    context.register_hook("post_api_request", requests.count)
    context.register_hook("post_llm_call", requests.store)
    context.register_hook("api_request_error", requests.learn)
