"""The sample session: believable, whole, stored once, and everything that a screen shows is in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Timer
from urllib.request import Request, urlopen

import pytest

from recto.config import load
from recto.config.factory import SystemClock, open_memory, open_session, open_store
from recto.engine.projection import DECISIONS
from recto.engine.prompt_diff import prompt_after
from recto.engine.verification import verify
from recto.engine.window_view import entry_history, window_view
from recto.formats import entry_text, problems
from recto.gateway.api_keys import Keys
from recto.recall.types import HEADER
from recto.sample import MODEL, SESSION, load_sample, sample_week
from recto.sample.script import load_script
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE
from recto.transcript.session_keys import memory_session, pointer_to

NOW = 1_794_700_000_000_000
DAY = 86_400_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store that holds the sample; tests that share it change nothing."""
    made = tmp_path_factory.mktemp("sample")
    with closing(open_store(settings_of(made))) as store:
        assert load_sample(settings_of(made), store, now=NOW)
    return made


def settings_of(folder):
    recall = {"embedder": {"use": "none"}, "background": False}
    given = {"store": str(folder / "a.db"), "session": SESSION, "model": MODEL, "recall": recall}
    return load(environ={}, arguments=given)


@pytest.fixture
def session(folder):
    with open_session(settings_of(folder)) as opened:
        yield opened


def test_no_restore_splits_a_pair_of_the_sample(tmp_path):
    with closing(open_store(settings_of(tmp_path))) as store:
        load_sample(settings_of(tmp_path), store, now=NOW)
    with open_session(settings_of(tmp_path)) as session:
        for decision in [entry.seq for entry in session.read() if entry.kind in DECISIONS]:
            undone = session.restore(decision)
            window = session.window
            assert window.builder.build(window.state).arrangement.omitted == ()
            session.redo(undone.seq)
            assert window.builder.build(window.state).arrangement.omitted == ()


def test_everything_that_a_screen_shows_is_in_it(session):
    kinds = Counter(entry.kind for entry in session.read())
    shown = {
        "context_window_pruned", "tool_results_trimmed", "content_compressed", "compaction", "restored", "pinned",
        "note", "recall_injected", "recall_miss", "checkpoint_saved", "handoff_written", "usage_reported",
        "zone_changed", "memory_proposed",
    }  # fmt: skip
    assert shown <= kinds.keys()
    assert kinds[MESSAGE] > 250
    report = session.report()
    assert report.left_messages > 200
    assert report.cache.picodollars > 0
    assert any(one.undone for one in report.decisions)
    assert max(one.fidelity or 0 for one in report.compressions) > 0.75
    assert session.health.report().alerts
    assert len(session.notes) == 4


def test_a_second_time_adds_nothing(folder):
    with closing(open_store(settings_of(folder))) as store:
        before = {one.session: store.head(one.session) for one in store.sessions()}
        assert not load_sample(settings_of(folder), store, now=NOW + 3 * DAY)
        assert {one.session: store.head(one.session) for one in store.sessions()} == before
        assert before.keys() == {SESSION, memory_session(SESSION)}
        assert verify(store).ok


def test_a_half_done_one_is_gone_on_with(tmp_path):
    """The session is stored whole or not at all; proposals that are missing are made up."""
    store = MemoryStore()
    settings = replace(settings_of(tmp_path), memory=replace(settings_of(tmp_path).memory, folder=str(tmp_path)))
    store.append(SESSION, sample_week(NOW))
    assert not load_sample(settings, store, now=NOW)
    assert len(open_memory(settings, store).proposals()) == len(load_script().proposals)


def test_a_store_that_goes_with_the_process_has_the_session_and_no_memory(tmp_path):
    store = MemoryStore()
    assert load_sample(settings_of(tmp_path), store, now=NOW)
    assert [one.session for one in store.sessions()] == [SESSION]


def test_proposals_wait_and_name_the_message_they_were_learnt_from(folder):
    with closing(open_store(settings_of(folder))) as store:
        waiting = open_memory(settings_of(folder), store).proposals()
        assert {one.memory.text for one in waiting} == {proposal.text for proposal in load_script().proposals}
        assert all(one.memory.sources for one in waiting)


def test_what_was_taken_back_is_recalled_with_what_took_it_back(session):
    script = load_script()
    question = script.later[0].request.encode()
    asked = next(entry for entry in session.read() if entry.role == "user" and question in entry.content)
    recalled = next(entry for entry in session.read(asked.seq) if entry.kind == "recall_injected")
    pointers = [hit["pointer"] for hit in json.loads(recalled.content)["hits"]]
    took_back = next(entry for entry in session.read() if script.correction.request.encode() in entry.content)
    assert pointer_to(session.key, took_back.seq) in pointers


SCREENS = Path(__file__).parents[2] / "docs" / "screens.md"
PROMISED = {
    "On which day do invoices go out?": (
        "They go out on the 5th",
        "invoices go out on the 1st of each month",
    ),
}
"""What the page says that a question brings back: first what holds, then what was taken back."""


def ask(folder, tmp_path, question, window):
    """The prompt of a question in a copy of the sample, what it quotes, and the entries that were evicted."""
    for file in folder.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    models = {MODEL: {"window": window, "max_input": window}}
    with open_session(replace(settings_of(tmp_path), models=models)) as opened:
        opened.append({"role": "user", "content": question})
        prompt = opened.prompt()
        texts = [str(message["content"]) for message in prompt.messages]
        left = {entry.seq for entry in opened.read()} - opened.window.state.messages.keys()
        return prompt, next((text for text in texts if text.startswith(HEADER)), ""), left


def test_the_questions_that_the_page_names_bring_what_it_promises(folder, tmp_path):
    asked = re.findall(r'ask "([^"]+)"', SCREENS.read_text("utf-8"))
    assert asked == list(PROMISED)
    for question, (holds, taken_back) in PROMISED.items():
        prompt, quoted, left = ask(folder, tmp_path, question, 8_192)
        assert holds in quoted
        assert taken_back in quoted
        by_text = {hit.text: hit for hit in prompt.recalled}
        correction = next(hit for text, hit in by_text.items() if holds in text)
        wrong = next(hit for text, hit in by_text.items() if taken_back in text)
        assert wrong.superseded_by == correction.seq
        assert {correction.seq, wrong.seq} <= left


@pytest.mark.parametrize("window", [3_500, 4_096, 6_000])
def test_in_a_smaller_window_the_correction_comes_and_no_output_fills_the_quotation(folder, tmp_path, window):
    question, (holds, _) = next(iter(PROMISED.items()))
    prompt, quoted, _ = ask(folder, tmp_path, question, window)
    assert holds in quoted
    assert len(prompt.recalled) > 1


def test_the_week_ends_before_today_and_goes_forward(session):
    times = [entry.ts for entry in session.read() if entry.kind != "memory_proposed"]
    assert all(after > before - 5_000_000 for before, after in pairwise(times)), "but for what is stored together"
    assert times[-1] < NOW // DAY * DAY
    assert NOW - times[0] < 6 * DAY


def test_the_last_prompt_is_short_enough_for_a_small_model_to_answer_soon(session):
    prompt = session.prompt()
    assert prompt.tokens < 3_000
    assert problems(prompt.raw, prompt.built.wire) == []


def test_every_change_of_the_story_changes_what_its_file_says():
    files = dict(load_script().files)
    bugs = load_script().bugs
    for bug in (*bugs["monday"], *bugs["tuesday"], *bugs["wednesday"], *bugs["thursday"]):
        assert files[bug.path].count(bug.old) == 1, f"{bug.path}: {bug.old}"
        files[bug.path] = files[bug.path].replace(bug.old, bug.new)
        assert bug.path in bug.reads


def test_nothing_of_this_machine_is_in_it(session):
    said = b"\n".join(entry.content + entry.meta for entry in session.read())
    here = str(Path(__file__).parents[2]).encode()
    for word in (here, b"/home/", b"/root/", b"/tmp/"):
        assert word not in said


@pytest.fixture
def serving(folder, tmp_path):
    """`recto serve --key --sample --open` over a copy of the store, and what it prints until it is up."""
    for file in folder.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    config = tmp_path / "recto.yaml"
    upstream = {"nobody": {"url": "http://127.0.0.1:9", "speaks": ["chat"]}}
    config.write_text(json.dumps({"store": str(tmp_path / "a.db"), "gateway": {"upstreams": upstream}}))
    program = [sys.executable, "-c", "from recto.cli.main import main; main()", "--config", str(config)]
    environ = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    asked = ["serve", "--key", "--sample", "--open", "--port", "0"]
    process = subprocess.Popen([*program, *asked], stdout=subprocess.PIPE, env=environ, text=True)
    late = Timer(120, process.kill)
    late.start()
    printed = {}
    for line in process.stdout:
        name, _, value = line.strip().partition(": ")
        printed[name] = value
        if "/session/context" in line:
            break
    try:
        yield process, printed, tmp_path
    finally:
        late.cancel()
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stdout.close()


def test_the_address_that_is_printed_logs_in_to_the_page_with_the_sample_on_it(serving):
    _, printed, folder = serving
    page, _, fragment = printed["Page"].partition("#")
    key = fragment.partition("key=")[2]
    assert key == printed["Key"]
    assert f"session={SESSION}" in fragment

    def get(path):
        asked = Request(f"{page}api/v1{path}", headers={"Authorization": f"Bearer {key}"})
        with urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    assert get(f"/session/context?session={SESSION}")["left_messages"] > 200
    assert get("/asker")["main"] == "agent:default:main"
    with closing(open_store(settings_of(folder), create=False)) as store:
        assert Keys(store, SystemClock()).list() == (), "a key that is lent is stored nowhere"


def of_user(session, text):
    return next(entry for entry in session.read() if entry.role == "user" and entry_text(entry) == text)


def answered_from(session, text):
    """The blocks of the prompt that a question of the script was answered from."""
    question = of_user(session, text)
    answer = next(entry for entry in session.read(question.seq) if entry.role == "assistant")
    return window_view(session.window, answer.seq - 1).blocks


def test_a_constraint_is_in_the_prompt_after_its_message_was_evicted(session):
    script = load_script()
    said = of_user(session, script.instructions[1].request)
    blocks = answered_from(session, script.later[-1].request)
    assert entry_history(session.window, said.seq).decisions[0].action == "evicted"
    assert said.seq not in {block.seq for block in blocks}
    kept = [block for block in blocks if block.what in ("record", "notes", "summary")]
    assert any("Never run anything against lantern_prod" in block.text for block in kept)


def test_a_wrong_statement_is_recalled_together_with_its_correction(session):
    script = load_script()
    wrong, correction = (of_user(session, text) for text in (script.instructions[0].request, script.correction.request))
    blocks = answered_from(session, script.later[0].request)
    assert not {wrong.seq, correction.seq} & {block.seq for block in blocks}
    [recalled] = [block for block in blocks if block.what == "recalled"]
    assert {wrong.seq, correction.seq} <= set(recalled.sources)
    assert f"superseded by {pointer_to(SESSION, correction.seq)}" in recalled.text
    assert "They go out on the 5th" in recalled.text


def test_a_compaction_is_undone_and_its_messages_are_sent_again_byte_for_byte(session):
    entries = list(session.read())
    compactions = {entry.seq: entry for entry in entries if entry.kind == "compaction"}
    undone = [entry for entry in entries if entry.kind == "restored"]
    [restored] = [entry for entry in undone if json.loads(entry.content)["decision"] in compactions]
    made = compactions[json.loads(restored.content)["decision"]]
    spans = json.loads(made.content)["left"]
    evicted = [entry for entry in entries if any(first <= entry.seq <= last for first, last in spans)]
    messages = [entry.content for entry in evicted if entry.kind == MESSAGE]
    assert len(messages) > 10
    assert not set(messages) & set(prompt_after(session.window, made.seq).messages)
    assert set(messages) <= set(prompt_after(session.window, restored.seq).messages)
    asked = of_user(session, load_script().undo.request)
    assert made.seq < asked.seq < restored.seq
