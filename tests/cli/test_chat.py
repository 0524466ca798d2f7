"""`recto chat` in a pseudo-terminal and in pipes, through a gateway to a scripted model."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import StreamingResponse
from tests.cli.calling import called_at, own_file
from tests.cli.terminals import Terminal, terminal
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.cli._chat_input import SlashCompleter
from recto.cli._conversation import ChatClient, start_conversation
from recto.cli._slash_commands import COMMANDS, Quit, parse_command
from recto.cli.console import out
from recto.errors import InputError, RequestRefused
from recto.gateway.client import GatewayClient
from recto.transcript.entries import MESSAGE

RECTO = str(Path(sys.executable).parent / "recto")
MAIN = "agent:default:main"
ESCAPE = "\x1b]52;c;aGk=\x07 \x9b31m \u202eevil\u202c"
STALL = "hang"
ACTIVE_SEQUENCES = (b"\x1b]52", b"\x1b]52;c", b"\xc2\x9b", b"\x07", "\u202e".encode())


def echo_reply(request: Asked) -> Says:
    last = str(request.messages[-1]["content"]) if request.messages else ""
    return Says(text=f"You said: {last[:80]!r}." + (ESCAPE if "escape" in last else ""))


class Provider(ScriptedUpstream):
    """An upstream that starts some answers and then stalls."""

    def stall(self, request: Asked) -> StreamingResponse | None:
        if STALL not in str(request.messages[-1].get("content")):
            return None

        async def pieces():
            delta = {"index": 0, "delta": {"role": "assistant", "content": "Once upon a time"}}
            yield f"data: {json.dumps({'id': 'c1', 'object': 'chat.completion.chunk', 'choices': [delta]})}\n\n"
            await asyncio.Event().wait()

        return StreamingResponse(pieces(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def echo_gateway(tmp_path_factory) -> Iterator[Running]:
    """A gateway with a small window in front of the echoing provider."""
    provider = Provider(answer=echo_reply)
    provider.fail = provider.stall
    small = {"gpt-4o": {"window": 6_000, "max_output": 1_000}}
    with (
        running(provider),
        gateway(tmp_path_factory.mktemp("chat"), provider.url, models=small, model="gpt-4o") as made,
    ):
        yield made


@pytest.fixture
def environ(echo_gateway, tmp_path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "RECTO_KEY": echo_gateway.secret}


def stored(echo_gateway: Running, session: str, kind: str = MESSAGE) -> list[dict[str, Any]]:
    return [json.loads(entry.content) for entry in echo_gateway.store.read(session) if entry.kind == kind]


def texts(echo_gateway: Running, session: str) -> list[str]:
    return [str(message["content"]) for message in stored(echo_gateway, session)]


def chat(echo_gateway: Running, session: str, *more: str) -> list[str]:
    return ["chat", "--url", echo_gateway.url, "--session", session, *more]


def test_in_a_pipe_each_line_is_a_message_and_answers_are_plain_text(echo_gateway, tmp_path, monkeypatch):
    monkeypatch.setenv("RECTO_KEY", echo_gateway.secret)
    output = called_at(tmp_path, *chat(echo_gateway, "agent:default:pipe"), typed="Hello.\n\n/etc/hosts is a file\n")
    assert output == "You said: 'Hello.'.\nYou said: '/etc/hosts is a file'.\n"
    assert texts(echo_gateway, "agent:default:pipe")[::2] == ["Hello.", "/etc/hosts is a file"]


def test_an_escape_sequence_split_over_chunks_is_neutralised_in_a_pipe(echo_gateway, tmp_path, monkeypatch):
    monkeypatch.setenv("RECTO_KEY", echo_gateway.secret)
    output = called_at(tmp_path, *chat(echo_gateway, "agent:default:odd"), typed="an escape, please\n").encode()
    assert not [sequence for sequence in ACTIVE_SEQUENCES if sequence in output]
    assert "␛]52;c;aGk=␇".encode() in output


def test_json_output_has_one_object_per_answer(echo_gateway, tmp_path, monkeypatch):
    monkeypatch.setenv("RECTO_KEY", echo_gateway.secret)
    lines = called_at(tmp_path, *chat(echo_gateway, "agent:default:json", "--json"), typed="One.\nTwo.\n").splitlines()
    first, second = map(json.loads, lines)
    assert (first["message"], second["answer"]) == ("One.", "You said: 'Two.'.")
    assert first["session"] == "agent:default:json"
    assert 0 < first["tokens"] < second["tokens"] < second["room"]
    assert second["usage"]["completion_tokens"] == 7


def test_chat_without_a_url_starts_a_gateway_over_the_store_of_the_settings(echo_gateway, tmp_path, monkeypatch):
    provider = echo_gateway.gateway.upstreams.by_name["main"].url
    upstreams = {"main": {"url": provider, "speaks": ["chat"], "key": "sk-upstream"}}
    settings = {"model": "gpt-4o", "gateway": {"upstreams": upstreams}, "recall": {"embedder": {"use": "none"}}}
    own_file(tmp_path).write_text(json.dumps(settings))
    monkeypatch.delenv("RECTO_KEY", raising=False)
    assert "You said: 'Hi.'" in called_at(tmp_path, "chat", "--session", "agent:other:main", typed="Hi.\n")
    assert "agent:other:main" in called_at(tmp_path, "session", "ls")


@pytest.mark.parametrize(
    ("url", "key", "code", "says"),
    [("", "rk-wrong", 2, "key"), ("http://127.0.0.1:9", "rk-any", 4, "does not answer")],
    ids=["a wrong key", "unreachable"],
)
def test_a_gateway_error_is_one_line_and_an_exit_code(echo_gateway, tmp_path, url, key, code, says):
    output = called_at(tmp_path, "chat", "--url", url or echo_gateway.url, "--key", key, code=code, typed="Hi.\n")
    assert says in output
    assert len(output.splitlines()) == 1


@pytest.fixture
def chat_terminal(echo_gateway, environ) -> Iterator[tuple[Terminal, str]]:
    session = f"agent:default:terminal-{len(list(echo_gateway.store.sessions()))}"
    with terminal(RECTO, *chat(echo_gateway, session), environ=environ) as shown:
        shown.until("nothing was said yet")
        yield shown, session


def test_an_answer_is_streamed_the_gauge_is_updated_and_commands_are_answered(echo_gateway, chat_terminal):
    shown, _ = chat_terminal
    shown.type("Hello, with an escape.\r")
    shown.until("You said: 'Hello, with an escape.'.")
    gauge = shown.until("gpt-4o")
    assert " tokens (" in gauge
    assert "green" in gauge
    shown.type("/context list\r")
    assert "history" in shown.until("reserve")
    shown.until("gpt-4o")
    shown.type("/contxt\r")
    assert "did you mean /context?" in shown.until("A message may begin")
    shown.until("gpt-4o")
    shown.type("\x04")
    assert shown.ended() == 0
    assert not [sequence for sequence in ACTIVE_SEQUENCES if sequence in bytes(shown.received)]


def test_ctrl_c_cancels_an_answer_and_not_the_program(echo_gateway, chat_terminal):
    shown, session = chat_terminal
    shown.type(f"{STALL} now\r")
    shown.until("Once upon a time")
    shown.type("\x03")
    shown.until("cancelled")
    shown.until("gpt-4o")
    shown.type("And now?\r")
    shown.until("You said: 'And now?'.")
    shown.until("gpt-4o")
    shown.type("/quit\r")
    assert shown.ended() == 0
    (cut,) = stored(echo_gateway, session, "reply_cut")
    assert cut["messages"][0]["content"] == "Once upon a time"


def test_several_lines_are_one_message_however_they_are_typed_or_pasted(echo_gateway, chat_terminal):
    shown, session = chat_terminal
    shown.type("one\x1b\rtwo\x0athree\\\rfour\x1b[200~five\nsix\x1b[201~\r")
    shown.until("You said:")
    shown.until("gpt-4o")
    shown.type("half a line\x03")
    shown.until("Ctrl-D or /quit")
    shown.until("gpt-4o")  # before that, Enter would be a new line
    shown.type("/quit\r")
    assert shown.ended() == 0
    assert texts(echo_gateway, session)[0] == "one\ntwo\nthree\nfourfive\nsix"
    assert len(stored(echo_gateway, session)) == 2


def run_commands(echo_gateway: Running, session: str, *lines: str) -> str:
    """Runs slash commands in a session and returns what they print."""

    async def all_of_them() -> None:
        client = GatewayClient(echo_gateway.url, echo_gateway.secret)
        try:
            talk = await start_conversation(client, session, "gpt-4o")
            for line in lines:
                command, argument = parse_command(line)
                await command.run(talk, argument)
        finally:
            await client.close()

    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(printed):
        patched.setattr(out, "width", 160)
        asyncio.run(all_of_them())
    return printed.getvalue()


@pytest.fixture(scope="module")
def long(echo_gateway) -> str:
    """A session whose older part was evicted from the prompt."""
    session = "agent:default:long"
    key = next(entry for entry in echo_gateway.gateway.keys.list() if entry.name == "test")
    with echo_gateway.gateway.sessions.use(key, session, "gpt-4o") as open_session:
        for turn in range(40):
            open_session.append({"role": "user", "content": f"We chose port {4000 + turn} for service {turn}."})
            open_session.prompt()
            open_session.append({"role": "assistant", "content": f"Noted: service {turn}. " + "It is so. " * 60})
    return session


def test_commands_print_data_from_the_gateway(echo_gateway, long):
    printed = run_commands(
        echo_gateway, long, "/context", "/context detail", "/recall port of service 3", "/read 1", "/health"
    )
    assert "messages evicted" in printed
    assert "context_window_pruned" in printed
    assert "We chose port 4003 for service 3." in printed
    assert "We chose port 4000 for service 0." in printed


def test_pins_notes_restores_and_checkpoints_are_stored(echo_gateway, long):
    printed = run_commands(
        echo_gateway, long, "/pin 1 2", "/unpin 2", "/note constraints Never use port 80.", "/restore"
    )
    assert "pinned: entry 1, entry 2" in printed
    assert "entry 2 may leave again" in printed
    assert "is undone" in printed
    assert "port 80" in str(stored(echo_gateway, long, "note"))
    assert "version 1" in run_commands(echo_gateway, long, "/checkpoint")


def test_only_a_proposal_that_was_shown_in_full_can_be_approved(echo_gateway, long):
    key = next(entry for entry in echo_gateway.gateway.keys.list() if entry.name == "test")
    with echo_gateway.gateway.sessions.use(key, long, "gpt-4o") as open_session:
        open_session.memory.propose("preference", "Answer in plain words.")
        open_session.memory.propose("preference", "Never mention the weather.")
    listed = run_commands(echo_gateway, long, "/memory")
    place = next(
        digit for digit in "12" if f"│ {digit} │" in listed and "plain" in listed.split(f"│ {digit} │")[1][:120]
    )
    printed = run_commands(echo_gateway, long, "/memory", f"/memory approve {place}")
    assert "Say it again" in printed
    assert "remembered" not in printed
    assert "remembered: " in run_commands(echo_gateway, long, "/memory", f"/memory {place}", f"/memory approve {place}")
    assert "rejected: " in run_commands(echo_gateway, long, "/memory", "/memory reject 1 not now")
    assert "Nothing waits" in run_commands(echo_gateway, long, "/memory")


def test_the_user_can_switch_to_another_session_and_another_model(echo_gateway, long):
    printed = run_commands(echo_gateway, long, "/session elsewhere", "/model other", "/sessions", "/help")
    assert "session agent:default:elsewhere: nothing was said in it yet" in printed
    assert "model other; there are also gpt-4o" in printed
    assert all(command.usage in printed for command in COMMANDS.values())


@pytest.mark.parametrize(
    ("line", "says"),
    [("/pin x", "number of an entry"), ("/note nothing", "Kinds are"), ("/recal x", "did you mean /recall"),
     ("/memory approve 9", "number of a proposal"), ("/", "/help lists them"), ("/recall", "say what to look for")],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_cure(echo_gateway, long, line, says):
    with pytest.raises(InputError, match=says):
        run_commands(echo_gateway, long, line)


def test_a_command_that_the_gateway_rejects_raises_its_error(echo_gateway, long):
    with pytest.raises(RequestRefused):
        run_commands(echo_gateway, long, "/read 999999")
    with pytest.raises(Quit):
        run_commands(echo_gateway, long, "/quit")


def test_commands_and_their_arguments_are_completed(echo_gateway, long):
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    async def offered(talk: ChatClient, typed: str) -> list[str]:
        completer = SlashCompleter(talk)
        found = completer.get_completions_async(Document(typed), CompleteEvent())
        return [completion.text async for completion in found]

    async def all_of_them() -> list[list[str]]:
        client = GatewayClient(echo_gateway.url, echo_gateway.secret)
        try:
            talk = await start_conversation(client, long, "gpt-4o")
            return [await offered(talk, typed) for typed in ("/con", "/session agent:default:l", "/note con", "Hello")]
        finally:
            await client.close()

    commands, names, kinds, nothing = asyncio.run(all_of_them())
    assert commands == ["/context list", "/context detail", "/context"]
    assert long in names
    assert kinds == ["constraints"]
    assert nothing == []


def test_missing_screen_packages_are_named(echo_gateway, tmp_path, monkeypatch):
    from recto.cli import _common

    monkeypatch.setattr(_common, "find_spec", lambda name: None)
    for command in ("chat", "tui"):
        assert "pip install 'recto-ai[screens,gateway]'" in called_at(tmp_path, command, code=2)


def test_chat_without_a_model_explains_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = called_at(tmp_path, "chat", code=2, typed="hello\n")
    assert "no provider is configured" in shown
    assert "recto models get smollm2" in shown
    assert "compress.model" not in shown
