"""A session is renamed, forked, exported and erased through the inspection API."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from tests.gateway.inspecting import MAIN, world

from recto.config import load
from recto.config.loader import read_layers
from recto.engine.erasure import read_erasures
from recto.engine.verification import verify
from recto.gateway.api_keys import Key
from recto.gateway.inspection import queries

COPY = "agent:books:copy"


@pytest.fixture
def made(tmp_path):
    with world(tmp_path) as made:
        for who in ("anna", "bert"):
            made.talk(who, MAIN, 2)
        yield made


def listed(made, who: str = "anna") -> dict[str, str]:
    return {item["session"]: item["title"] for item in made.get("/sessions", who=who)["sessions"]}


def erase(made, who: str = "anna", **body):
    return made.ask(who, "POST", "/session/erase", session=MAIN, body={"confirm": MAIN, "reason": "asked for"} | body)


def test_a_renamed_session_has_its_title_in_the_list_and_in_its_overview(made):
    assert listed(made)[MAIN] == "canarynorth asks for shelf 0 of the library"
    stored = made.post("/session/rename", {"title": "Library"}, session=MAIN)
    assert stored["kind"] == "session_renamed"
    assert listed(made) == {MAIN: "Library"}
    assert made.get("/session", session=MAIN)["title"] == "Library"
    assert listed(made, "bert")[MAIN].startswith("canarysouth")
    [renamed] = made.store.tail(f"tenant:north/{MAIN}", 1)
    assert renamed.metadata["asked_by"].startswith("anna")


def test_a_title_in_two_lines_is_refused(made):
    answer = made.ask("anna", "POST", "/session/rename", session=MAIN, body={"title": "a\nb"})
    assert (answer.status_code, answer.json()["error"]["code"]) in {(422, "not_possible"), (400, "bad_parameter")}
    assert listed(made)[MAIN].startswith("canarynorth")


def test_a_fork_is_a_session_of_the_same_tenant_with_a_title_of_its_own(made):
    done = made.post("/session/fork", {"name": COPY, "title": "Another way", "at": 2}, session=MAIN)
    assert done == {"session": COPY, "source": MAIN, "entries": 2}
    assert listed(made)[COPY] == "Another way"
    assert COPY not in listed(made, "bert")
    assert made.store.head(COPY).seq == 0
    again = made.ask("anna", "POST", "/session/fork", session=MAIN, body={"name": COPY})
    assert again.status_code == 422


@pytest.mark.parametrize("name", ["agent:books:memory", "agent:other:memory"])
def test_a_fork_never_becomes_the_memory_of_an_agent(made, name):
    answer = made.ask("anna", "POST", "/session/fork", session=MAIN, body={"name": name})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "reserved")
    assert name not in listed(made)


@pytest.mark.parametrize("name", ["tenant:south/a", "recto:keys", " a", MAIN])
def test_a_fork_has_a_name_that_its_tenant_may_use(made, name):
    before = [(summary.session, summary.entries) for summary in made.store.sessions()]
    assert made.ask("anna", "POST", "/session/fork", session=MAIN, body={"name": name}).status_code == 422
    assert [(summary.session, summary.entries) for summary in made.store.sessions()] == before


def test_an_export_in_parts_is_the_file_that_recto_imports(made, tmp_path):
    lines, start, through = [], 1, None
    while start:
        part = made.get(
            "/session/export", session=MAIN, limit=3, **{"from": start}, **({"through": through} if through else {})
        )
        if through is None:
            made.post("/session/rename", {"title": "Meanwhile"}, session=MAIN)
        lines, start, through = lines + part["lines"], part["next"], part["through"]
    file = tmp_path / "session.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    key = f"tenant:north/{MAIN}"
    assert [json.loads(line)["seq"] for line in lines[1:]] == list(range(1, through + 1))
    assert json.loads(lines[0])["heads"] == {key: [through, made.store.pick(key, [through])[0].hash.hex()]}
    assert "canarysouth" not in file.read_text(encoding="utf-8")


def test_an_erased_session_is_gone_and_a_record_names_who_erased_it_and_why(made):
    assert erase(made).json()["session"] == MAIN
    assert listed(made) == {}
    assert made.ask("anna", "GET", "/session", session=MAIN).status_code == 404
    [erasure] = read_erasures(made.store)[f"tenant:north/{MAIN}"]
    assert (erasure.by.split(" (")[0], erasure.reason, erasure.is_finished) == ("anna", "asked for", True)
    assert MAIN in listed(made, "bert")
    assert verify(made.store, None).ok
    assert not made.indexer.index.sessions("tenant:north/")


def test_an_open_session_starts_empty_after_it_was_erased(made):
    made.get("/session", session=MAIN)
    erase(made)
    made.talk("anna", MAIN, 1)
    overview = made.get("/session", session=MAIN)
    assert overview["entries"] == made.store.head(f"tenant:north/{MAIN}").seq
    assert overview["messages"] == 2


@pytest.mark.parametrize("body", [{"confirm": "agent:books"}, {"confirm": MAIN.upper()}])
def test_nothing_is_erased_without_the_name_of_the_session(made, body):
    assert erase(made, **body).status_code == 422
    assert MAIN in listed(made)
    assert not read_erasures(made.store)


def test_the_right_to_change_is_no_right_to_erase(made):
    key = Key(name="changes", tenant="north", agent="books", rights=frozenset({"ask", "read", "change"}))
    _, made.secrets["changes"] = made.access.add(key)
    assert made.post("/session/rename", {"title": "Library"}, who="changes", session=MAIN)
    assert erase(made, "changes").status_code == 403
    assert listed(made) == {MAIN: "Library"}


def test_a_session_in_use_by_a_request_is_not_erased(made, monkeypatch):
    monkeypatch.setattr("recto.gateway.session_pool._ERASE_PATIENCE", 0)
    with made.sessions.use(made.keys["anna"], MAIN):
        answer = erase(made)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "in_use")
    assert MAIN in listed(made)
    assert erase(made).status_code == 200


def test_a_gateway_removes_nothing_from_a_database(made, monkeypatch):
    monkeypatch.setattr(type(made.store), "is_local", False)
    assert erase(made).status_code == 409
    assert MAIN in listed(made)
    assert not read_erasures(made.store)


def test_keys_are_listed_with_limits_and_use_and_without_secrets_to_their_tenant_alone(made):
    key = Key(name="limited", tenant="north", agent="books", rights=frozenset({"ask"}), tokens_per_day=1_000)
    added, secret = made.access.add(key)
    made.access.revoke(made.keys["asks"].id)
    answer = made.ask("anna", "GET", "/keys")
    rows = {row["name"]: row for row in answer.json()["keys"]}
    assert rows.keys() == {"anna", "look", "asks", "limited"}
    assert (rows["limited"]["id"], rows["limited"]["tokens_per_day"], rows["limited"]["tokens_today"]) == (
        added.id,
        1_000,
        0,
    )
    assert (rows["asks"]["state"], rows["anna"]["state"]) == ("revoked", "live")
    assert not any(secret in answer.text for secret in (secret, *filter(None, made.secrets.values())))
    assert made.ask("look", "GET", "/keys").status_code == 403


def test_settings_are_listed_with_their_sources_for_keys_without_a_tenant(made, tmp_path):
    assert made.get("/settings") == {"settings": []}, "anna's key belongs to a tenant"
    assert made.ask("look", "GET", "/settings").status_code == 403
    file = tmp_path / "recto.yaml"
    file.write_text("window:\n  mode: zones\nstore_key: secret-of-the-store\n")
    environ = {"RECTO_MODEL": "gpt-4o"}
    layers = read_layers(path=file, environ=environ, arguments={"gateway": {"port": 0}})
    settings = load(path=file, environ=environ, arguments={"gateway": {"port": 0}})
    inspection = queries.Inspection(made.sessions, settings, layers)
    call = SimpleNamespace(key=Key(name="operator"))
    listed = {item.key: item for item in queries.settings(inspection, call).settings}
    assert (listed["window.mode"].origin, listed["window.mode"].where) == ("file", f"{file}, line 2")
    assert (listed["model"].value, listed["model"].where) == ("gpt-4o", "RECTO_MODEL")
    assert listed["gateway.port"].origin == "argument"
    assert listed["window.ceiling_percent"].origin == "default"
    assert listed["store_key"].value == "(set)"
