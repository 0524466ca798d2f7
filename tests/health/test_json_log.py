"""The log: whole lines of JSON, without a word of any message, and never a reason for a turn to fail."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.health.sample_turns import SECRET, SESSION, alert, compaction, event, turn

from recto.config import load
from recto.config.factory import make_sinks
from recto.context.policies.scorers import SCORERS
from recto.engine import projection
from recto.health.exporters.exporter import DECISIONS, FIELDS, POLICIES, event_fields
from recto.health.exporters.json_log import MAX_LINE_BYTES, JsonLog


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_turns_alerts_and_events_each_have_their_line(tmp_path):
    path = tmp_path / "log"
    log = JsonLog(str(path))
    log.turn(SESSION, turn(fidelity=0.8))
    log.alert(alert())
    log.alert(alert(ended=True))
    log.event(compaction())
    log.event(event("window_snapshot", {"seq": 4}))
    log.close()
    told = lines(path)
    assert [(one["what"], one["level"], one["session"]) for one in told] == [
        ("turn", "info", SESSION),
        ("alert", "error", SESSION),
        ("alert", "info", SESSION),
        ("event", "info", SESSION),
    ]
    assert told[0]["time"] == "2026-09-21T14:13:20.123456Z"
    assert (told[0]["tokens"], told[0]["fidelity"], told[0]["ratio"]) == (5_000, 0.8, None)
    assert (told[1]["name"], told[1]["grade"], told[1]["value"], told[1]["ended"]) == (
        "utilization",
        "critical",
        0.97,
        False,
    )
    assert told[3] == {
        "time": "2026-09-21T14:13:20.123456Z",
        "level": "info",
        "what": "event",
        "session": SESSION,
        "kind": "compaction",
        "seq": 12,
        "policy": "compact",
        "tokens_before": 9008,
        "tokens_after": 3564,
        "frees": 6884,
        "indexed": "other",
        "messages": 14,
        "results": 1,
        "tokens_from": 7000,
        "tokens_to": 700,
        "fidelity": 0.91,
    }


def test_no_field_of_an_event_takes_the_place_of_what_stands_in_every_line():
    always = {"time", "level", "what", "session", "kind", "seq", "content", "cut"}
    assert not always & {name for named in FIELDS.values() for name in named}


def test_no_word_of_a_session_is_logged_unless_that_is_asked_for(tmp_path):
    quiet, loud = tmp_path / "quiet", tmp_path / "loud"
    for log in (JsonLog(str(quiet)), JsonLog(str(loud), text=True)):
        log.event(compaction())
        for kind in FIELDS:
            log.event(event(kind, dict.fromkeys(FIELDS[kind], SECRET) | {"reason": SECRET, "text": SECRET}))
        log.close()
    assert len(lines(quiet)) == len(FIELDS) + 1
    assert SECRET not in quiet.read_text()
    assert SECRET in lines(loud)[0]["content"]


names = st.text(max_size=400) | st.text('\n\r\x1b\x85\u2028\u2029\u202e\ud800"\\', max_size=400)


@given(session=names, model=names, says=names)
def test_nothing_that_a_name_holds_can_forge_a_line(tmp_path_factory, session, model, says):
    path = tmp_path_factory.mktemp("log") / "log"
    log = JsonLog(str(path))
    log.turn(session, turn(model=model))
    log.alert(alert(session=session, says=says))
    log.close()
    raw = path.read_bytes()
    assert raw.isascii()
    assert raw.count(b"\n") == 2
    assert not any(byte < 32 and byte != 10 for byte in raw)
    told = lines(path)
    assert [one["session"] for one in told] == [session, session]
    assert log.dropped == 0


@pytest.mark.parametrize("content", ["\U0001f600" * 1_000_000, '"\\' * 10_000, "a" * 12_001])
def test_a_line_has_a_bounded_length_however_much_there_is_to_say(tmp_path, content):
    path = tmp_path / "log"
    log = JsonLog(str(path), text=True)
    log.event(event("compaction", content.encode()))
    log.turn("x" * 100_000, turn(model="\U0001f600" * 400))
    log.close()
    for line in path.read_bytes().splitlines(keepends=True):
        assert len(line) <= MAX_LINE_BYTES
        assert json.loads(line)["cut"] is True


def test_only_its_owner_can_read_the_file(tmp_path):
    path = tmp_path / "log"
    before = os.umask(0)
    try:
        log = JsonLog(str(path))
        log.turn(SESSION, turn())
    finally:
        os.umask(before)
    log.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path):
    path = tmp_path / "log"
    log = JsonLog(str(path))
    log.turn(SESSION, turn(turn=1))
    path.rename(tmp_path / "log.1")
    log.turn(SESSION, turn(turn=2))
    log.close()
    assert [one["turn"] for one in lines(path)] == [2]
    assert [one["turn"] for one in lines(tmp_path / "log.1")] == [1]


def test_a_log_that_cannot_be_written_counts_what_it_lost(tmp_path):
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe")  # nobody reads it, and it must not be waited for
    for where in ("nowhere/log", "link", "pipe", "."):
        log = JsonLog(str(tmp_path / where))
        log.turn(SESSION, turn())
        log.alert(alert())
        assert log.dropped == 2, where
    assert (tmp_path / "real").read_bytes() == b""


def test_after_a_full_disk_the_next_line_begins_on_a_line_of_its_own(tmp_path, monkeypatch):
    path = tmp_path / "log"
    log = JsonLog(str(path))
    real, asked = os.write, []

    def short_of_space(file: int, content: bytes) -> int:
        asked.append(content)
        if len(asked) == 1:
            return real(file, content[:10])
        if len(asked) == 2:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real(file, content)

    monkeypatch.setattr(os, "write", short_of_space)
    for number in range(3):
        log.turn(SESSION, turn(turn=number))
    monkeypatch.undo()
    log.close()
    torn, whole = path.read_bytes().splitlines()
    assert len(torn) == 10
    assert json.loads(whole)["turn"] == 2
    assert log.dropped == 2


def test_lines_go_to_the_standard_error_stream_where_that_is_named(capsys):
    log = JsonLog("stderr")
    log.alert(alert())
    said = capsys.readouterr()
    assert json.loads(said.err)["what"] == "alert"
    assert said.out == ""


def test_the_log_that_the_settings_name_is_written(tmp_path):
    path = tmp_path / "log"
    (log,) = make_sinks(load(environ={}, arguments={"health": {"log": str(path)}}))
    log.event(compaction())
    assert "content" not in lines(path)[0]
    assert make_sinks(load(environ={})) == []


hostile = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["left", "shrunk", "x"]), inner),
    max_leaves=8,
)


@given(kind=st.sampled_from(sorted(FIELDS)), data=st.data())
def test_whatever_an_event_holds_only_numbers_and_known_words_are_told(kind, data):
    named = [*FIELDS[kind], "left", "shrunk", "compression", "reason"]
    about = data.draw(st.dictionaries(st.sampled_from(named), hostile) | hostile)
    for name, fact in event_fields(event(kind, json.dumps(about).encode())).items():
        assert isinstance(fact, int | float) or fact in POLICIES | {"other", "off", "words and vectors"} or name in (
            "before", "after", "component",
        )  # fmt: skip
        json.dumps(fact, allow_nan=False)


@pytest.mark.parametrize(
    "content", [b"", b"[", b"[" * 100_000, b"\xff", b"3", b'{"frees": NaN}', b'{"frees": 1%b}' % (b"0" * 30)]
)
def test_an_event_that_cannot_be_read_tells_nothing(content):
    assert not event_fields(event("compaction", content)).get("frees")


def test_every_decision_and_every_policy_that_exists_is_known_here():
    assert DECISIONS == projection.DECISIONS
    assert {f"evict.{scorer().name}" for scorer in SCORERS.values()} <= POLICIES
