"""Promise 20: text from transcripts is shown, and never acts: not on a terminal, in a log, in a table, in a metric.

Hostile texts go through everything that prints or writes them for people. What comes out holds no byte that a terminal
obeys, nothing that turns or hides letters, no line that somebody else began, and no cell that a spreadsheet computes.
The page is held to the same in tests/web/test_hostile_page.py.
"""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.calling import called, own_file
from tests.faults.sitting import DEADLINE, Terminal
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running
from tests.health.sample_turns import alert, event, turn
from tests.hostile_texts import (
    FORMULAS,
    LINES,
    MARKUP,
    ORDERS,
    PIECES,
    TERMINAL,
    TURNED,
    UNSEEN,
    acts,
    acts_in_colour,
    hostile,
    orders,
    spoil,
    storable,
)

import recto
from recto.cli.console import one_line, out, safe
from recto.cli.main import COMMANDS
from recto.health.exporters.json_log import JsonLog
from recto.health.exporters.prometheus import Metrics
from recto.transcript.audit import COLUMNS, table_cells
from recto.tui import display_text
from recto.tui.widgets.header import PLACES

FUNCTION_KEYS = (
    "\x1bOP",
    "\x1bOQ",
    "\x1bOR",
    "\x1bOS",
    "\x1b[15~",
    "\x1b[17~",
    "\x1b[18~",
    "\x1b[19~",
    "\x1b[20~",
    "\x1b[21~",
)
SHARDS = 2
BATCH = 2_000
KEY = "agent:me:main"
NAMED = "agent:me:[bold red]<img src=x onerror=alert(1)>[/] {session} =1+1"
"""A session's name with everything that a name may hold."""
SMALL = {"gpt-4o": {"window": 24_000, "max_input": 24_000, "max_output": 2_000}}


TOLD: dict[str, Any] = {
    "recall": {"embedder": {"use": "none"}, "background": False},
    "compress": {"background": False},
}


def texts(seed: int, count: int) -> Iterator[list[str]]:
    """Hostile texts in batches: every piece alone first, then mixtures."""
    rng = random.Random(seed)
    alone = iter(PIECES)
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        first = list(islice(alone, size))
        yield [*first, *(hostile(rng) for _ in range(size - len(first)))]


def hunt(shown: Callable[[str], str], seed: int, count: int, *, lines: bool = True) -> list[str]:
    """What of so many texts still acts when it is shown; `lines` says whether a text may have several."""
    found: list[str] = []
    for batch in texts(seed, count):
        said = [shown(one) for one in batch]
        found += acts("\n".join(said))
        if not lines and any("\n" in one or "\t" in one for one in said):
            found.append("a line of its own")
        if found:
            break
    return found


def line(text: str) -> str:
    return one_line(text, 90)


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_text_acts_on_a_terminal(shard, scale):
    count = scale(40_000, ci=1_000_000, release=10_000_000) // SHARDS
    assert hunt(safe, shard, count) == []
    assert hunt(line, shard, count // 4, lines=False) == []
    assert hunt(lambda text: display_text.safe_content(text).plain, shard, count // 20) == []
    assert hunt(lambda text: display_text.cell(text).plain, shard, count // 20, lines=False) == []


def only_escapes(text: str) -> str:
    """What one would write without thinking: only the escape character is taken out."""
    return text.replace("\x1b", "")


@pytest.mark.parametrize("careless", [str, only_escapes])
def test_the_hunt_sees_text_that_is_shown_as_it_is(careless):
    found = hunt(careless, 1, 500)
    assert {"U+009B", "U+202E"} <= set(found)
    assert ("U+001B" in found) == (careless is str)
    assert "a line of its own" in hunt(careless, 1, 500, lines=False)


def row(text: str) -> list[str]:
    """A row of an export, with a text wherever one can come from outside."""
    named = dict.fromkeys(("session", "kind", "policy", "reason", "by", "surface", "text"), text)
    return table_cells({"record": "line", **named, "seq": 7, "details": {text: text}, "scores": {text: {text: 1.0}}})


def computed(cell: str) -> bool:
    """Whether a spreadsheet would take a cell for a formula."""
    return cell.lstrip().startswith(tuple("=+-@\t\r\n＝＋－＠"))


@pytest.mark.promise
def test_no_cell_of_a_table_is_a_formula_or_hides_something(scale):
    for batch in texts(3, scale(1_500, ci=30_000, release=1_000_000)):
        for text in batch:
            made = row(text)
            assert acts("".join(made)) == []
            assert "\n" not in "".join(made)
            assert not [cell for cell in made if computed(cell)]


def test_a_table_without_care_is_seen_to_compute():
    assert all(computed(text) for text in FORMULAS if not text.startswith(("'", '"')))


def logged(folder: Path, batch: list[str]) -> bytes:
    """All that a log says of turns, alerts and events with these texts in every place."""
    log = JsonLog(str(folder / "log.jsonl"), text=True)
    for text in batch:
        log.turn(text, turn(model=text))
        log.alert(alert(session=text, says=text, action=text))
        log.event(event("compaction", {"policy": text, "reason": text, text: text}, session=text))
        log.event(event(text, text.encode(errors="replace")))
    log.close()
    assert log.dropped == 0
    return (folder / "log.jsonl").read_bytes()


@pytest.mark.promise
def test_no_text_forges_a_line_of_the_log(tmp_path, scale):
    batches = texts(4, scale(800, ci=10_000, release=500_000))
    for number, batch in enumerate(batches):
        (folder := tmp_path / str(number)).mkdir()
        written = logged(folder, batch)
        assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in set(written))
        rows = [json.loads(one) for one in written.splitlines()]
        assert len(rows) == 4 * len(batch)
        assert {one["what"] for one in rows} == {"turn", "alert", "event"}
        assert not any(one["session"] == "forged" for one in rows)


def test_a_log_that_only_prints_is_seen_to_be_forged():
    naive = [f"info turn {text}" for text in PIECES]
    assert len("\n".join(naive).splitlines()) > len(naive)
    assert acts("\n".join(naive))


def test_no_text_becomes_a_metric_of_its_own_or_a_label():
    metrics = Metrics()
    for batch in texts(5, BATCH):
        for text in batch:
            metrics.turn(text, turn(model=text))
            metrics.alert(alert(session=text, says=text))
            metrics.event(event("compaction", {"policy": text, "frees": 7, "component": text}))
            metrics.event(event("zone_changed", {"after": text}))
            metrics.event(event("budget_violation", {"component": text}))
    said = metrics.exposition()[0].decode()
    assert acts(said) == []
    families = {family.name: family for family in text_string_to_metric_families(said)}
    assert not any("forged" in name for name in families)
    labels = {value for family in families.values() for sample in family.samples for value in sample.labels.values()}
    assert all(label.isascii() and label.isprintable() and len(label) <= 64 for label in labels)
    assert len(labels) < 200


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A home whose store is full of hostile text."""
    home = tmp_path_factory.mktemp("home")
    told, memory = TOLD, {"folder": str(home / "memory")}
    store = str(home / "transcript.db")
    with recto.open(store, session=KEY, model="gpt-4o", models=SMALL, memory=memory, **told) as session:
        spoil(session)
    with recto.open(store, session=NAMED, model="gpt-4o", models=SMALL, memory=memory, **told) as session:
        session.append({"role": "user", "content": "".join(TERMINAL)})
        session.append({"role": "assistant", "content": "".join(MARKUP)})
    settings = {"store": store, "session": KEY, "model": "gpt-4o", "models": SMALL, "memory": memory, **told}
    own_file(home).write_text(json.dumps(settings))
    (home / "odd.jsonl").write_text("\n".join([*TERMINAL, *MARKUP]))
    (home / "chat.json").write_text(json.dumps([{"role": "user", "content": one} for one in storable()]))
    (home / "questions.json").write_text(json.dumps([{"ask": MARKUP[0] + TERMINAL[8], "expect": [TERMINAL[0] + "x"]}]))
    return home


def said_at(home: Path, *arguments: str) -> str:
    """What a command says at that home, however it ends; never a traceback."""
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        patched.setenv("HOME", str(home))
        patched.setattr(out, "width", 160)
        done = called(*arguments)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


PRINTING: dict[str, list[tuple[str, ...]]] = {
    "acp": [("acp", TERMINAL[8].replace("\x00", ""))],
    "audit": [("audit",), ("audit", "--text"), ("audit", "--all"), ("audit", "--csv", "--text", "--all")],
    "checkpoint": [("checkpoint",)],
    "compact": [("compact", MARKUP[3] + TERMINAL[8].replace("\x00", ""))],
    "config": [("config",), ("config", TERMINAL[8])],
    "consolidate": [("consolidate", "--dry-run")],
    "context": [("context", "list"), ("context", "detail"), ("context", "detail", "--session", NAMED)],
    "doctor": [("doctor",)],
    "facts": [("facts",), ("facts", "--all")],
    "grep": [
        ("grep", "e", "-C", "2"),
        ("grep", "-E", ".", "-n", "500"),
        ("grep", TERMINAL[8]),
        ("grep", "-E", "(\x1b"),
    ],
    "health": [("health",), ("health", "--session", NAMED)],
    "hook": [("hook", "install", "claude-code", "--print"), ("hook", "install", TERMINAL[8])],
    "import": [("import", "odd.jsonl"), ("import", "odd.jsonl", "--keep-going", "--session", NAMED)],
    "index": [("index",), ("index", "--session", TERMINAL[8])],
    "keys": [("keys", "add", MARKUP[3]), ("keys", "add", TERMINAL[8]), ("keys", "list"), ("keys", "revoke", "x\x1b]")],
    "lab": [
        *(("lab", "fidelity", "odd.jsonl"), ("lab", "fidelity", "odd.jsonl", "--questions", "questions.json")),
        *(("lab", "replay", "odd.jsonl", "--window", "16k"), ("lab", "replay", "chat.json", "--window", "16k")),
        ("lab", "tune", "odd.jsonl", "--window", "16k"),
        ("lab", "tune", "chat.json", "--window", "16k", "-o", TERMINAL[1]),
        ("lab", "compare", "odd.jsonl", "--window", "16k"),
        ("lab", "compare", TERMINAL[8], "--window", "16k"),
        ("lab", "trial", "odd.jsonl", "--window", "16k", "--moments", "1", "--json", "--with-names"),
        ("lab", "trial", TERMINAL[8], TERMINAL[21], "--window", "16k"),
        ("lab", "mine", "odd.jsonl", "--window", "16k", "--mode", "zones", "--with-content"),
        ("lab", "mine", TERMINAL[8], "--with-content"),
    ],
    "judge": [("judge", "2", "helpful"), ("judge", TERMINAL[8], "helpful"), ("judge", "2", TERMINAL[8])],
    "mcp": [("mcp", "--session", NAMED, "add", "cursor", "--print"), ("mcp", "add", TERMINAL[8])],
    "memory": [("memory", "list"), ("memory", "proposals"), ("memory", "check"), ("memory", "show", "\x9b2J")],
    "note": [("note", "list"), ("note", "add", "bugs", TERMINAL[8])],
    "pin": [("pin", "2"), ("pin", "2", "--session", TERMINAL[8])],
    "plugin": [
        ("plugin", "record", "pi", "--session", KEY),
        ("plugin", "install", "pi"),
        ("plugin", "uninstall", TERMINAL[8]),
    ],
    "read": [("read", f"recto://{KEY}/1"), ("read", f"recto://{KEY}/{TERMINAL[8]}"), ("read", TERMINAL[8])],
    "recall": [
        *(("recall", "question"), ("recall", "question", "--explain"), ("recall", TERMINAL[8] + TERMINAL[21])),
        *(("recall", "--file", "x.py"), ("recall", "--file", TERMINAL[8]), ("recall", "--command", TERMINAL[8])),
        *(("recall", "--error", "error"), ("recall", "--number", "question"), ("recall", "--command", "bash")),
    ],
    "restore": [("restore", "1"), ("restore", "999999")],
    "resume": [("resume",), ("resume", "--session", NAMED)],
    "run": [("run", TERMINAL[8].replace("\x00", ""))],
    "session": [
        *(("session", "ls"), ("session", "ls", "--limit", "1"), ("session", "ls", "--after", TERMINAL[8])),
        *(("session", "show"), ("session", "show", "--last", "1000"), ("session", "show", NAMED, "--full")),
        *(("session", "show", "--from", "1", "--full"), ("session", "fork", KEY, "agent:me:copy [red]")),
        *(("session", "fork", TERMINAL[1], "agent:me:x"), ("session", "rm", TERMINAL[8], "--reason", "x")),
        *(("session", "rename", KEY, MARKUP[3]), ("session", "rename", KEY, TERMINAL[8])),
    ],
    "store": [("store", "erase", TERMINAL[8]), ("store", "copy", TERMINAL[8] + "/" + TERMINAL[21])],
    "unpin": [("unpin", "2"), ("unpin", "2", "--session", TERMINAL[8])],
    "verify": [("verify",), ("verify", "--session", TERMINAL[1])],
    "watch": [("watch", "--once", "--yes")],
}
"""How each command is asked that can show a text from outside."""
DRAWING = {"chat", "tui"}
"""Commands that somebody sits before: they are asked in a terminal, below."""
SILENT = {"completion", "demo", "models", "serve", "trust"}
"""Commands that show nothing of a transcript. `session export` writes the exact bytes, for files."""


def test_every_command_that_shows_text_is_asked():
    assert set(COMMANDS) == set(PRINTING) | DRAWING | SILENT


@pytest.mark.parametrize("command", PRINTING)
def test_no_command_prints_what_a_terminal_obeys(home, command):
    for arguments in PRINTING[command]:
        said = said_at(home, *arguments)
        if "--csv" in arguments:
            said = said.replace("\r\n", "\n")  # as rows end there
        assert acts(said) == [], arguments
        assert said.strip(), arguments


@pytest.mark.parametrize("mistake", [("audit", "--since"), ("import",), ("note", "add"), ("--config",), ()])
def test_no_mistake_is_told_in_a_way_that_acts(home, mistake):
    for text in (TERMINAL[8], TERMINAL[21], TERMINAL[28], LINES[2]):
        assert acts(said_at(home, *mistake, text)) == []


def test_a_proposal_is_shown_with_what_it_hides(home):
    rows = [json.loads(one) for one in said_at(home, "memory", "proposals", "--json").splitlines()]
    assert rows
    for one in rows:
        assert acts(said_at(home, "memory", "show", one["id"])) == []


def test_an_export_for_spreadsheets_holds_no_formula(home):
    rows = list(csv.DictReader(said_at(home, "audit", "--csv", "--text", "--all").splitlines()))
    assert len(rows) > 20
    assert {len(one) for one in rows} == {len(COLUMNS)}
    found = [cell for one in rows for cell in one.values()]
    assert not [cell for cell in found if computed(cell)]
    assert any("=1+1" in cell for cell in found), "they are there, behind a sign that makes them text"


def test_without_the_protection_the_same_commands_are_seen_to_act(home, monkeypatch):
    for name, module in list(sys.modules.items()):
        if name.startswith("recto.") and getattr(module, "safe", None) is safe:
            monkeypatch.setattr(module, "safe", str)
    assert "U+001B" in acts(said_at(home, "session", "show", "--from", "1", "--full"))
    assert "U+202E" in acts(said_at(home, "session", "show", "--last", "400"))


def in_a_terminal(home: Path, *arguments: str) -> str:
    """What a command writes when somebody sits at a terminal."""
    with Terminal(home, *arguments) as terminal:
        said = terminal.until()
        assert terminal.running.wait(DEADLINE) == 0
    return said


@pytest.mark.parametrize("arguments", [("session", "show", "--last", "400", "--full"), ("audit", "--text")])
def test_somebody_at_a_terminal_gets_colours_and_nothing_else(home, arguments):
    said = in_a_terminal(home, *arguments)
    assert "\x1b[" in said, "colours are ours"
    assert acts_in_colour(said) == []
    assert "\u241b]52" in said, "the command is there to be read"


@contextmanager
def answering(folder: Path, answer: str, **more: Any) -> Iterator[Running]:
    """A gateway over the store in a folder, before a model that says this."""
    with (
        running(ScriptedUpstream(lambda asked: Says(answer))) as upstream,
        gateway(folder, upstream.url, **more) as made,
    ):
        yield made


def test_the_full_screen_draws_hostile_text_and_obeys_none_of_it(home):
    with (
        answering(home, "Nothing.", **TOLD, model="gpt-4o", models=SMALL) as made,
        Terminal(home, "tui", "--url", made.url, "--key", made.secret, "--session", KEY) as terminal,
    ):
        terminal.until(KEY)
        for keys, place in zip(FUNCTION_KEYS, PLACES, strict=True):
            terminal.types(keys)
            terminal.until("\u241b" if place.name == "transcript" else place.title)
        terminal.types("\x11")
        terminal.until()
    assert orders(terminal.drawn) == []


def test_an_answer_in_the_chat_is_drawn_and_not_obeyed(home, tmp_path):
    with answering(tmp_path, " ".join((*TERMINAL, *TURNED, "and that was all")), model="gpt-4o") as made:
        asked = ("chat", "--url", made.url, "--key", made.secret)
        with Terminal(home, *asked) as terminal:
            terminal.until("\u203a ")
            terminal.types("hello\r")
            terminal.until("and that was all")
            terminal.until("\u203a ")
            terminal.types("\x04")
            terminal.until()
        program = [sys.executable, "-c", "from recto.cli.main import main; main()", *asked]
        piped = subprocess.run(program, input="hello\n", capture_output=True, text=True, cwd=home, check=True)
    assert orders(terminal.drawn) == []
    assert "and that was all" in piped.stdout
    assert acts(piped.stdout + piped.stderr) == []


def test_the_look_for_orders_sees_them():
    assert len(orders("".join((*TERMINAL, *TURNED, *UNSEEN)))) == len(ORDERS)
