"""Budget warnings: system messages that tell the model its token usage are used as readings."""

from __future__ import annotations

import pytest

import recto
from recto.context.window.budget import BudgetWarning, read_warning

USAGE = "<system_warning>Token usage: {used}/{window}; {left} remaining</system_warning>"


def usage(used, window=200_000):
    return USAGE.format(used=used, window=window, left=window - used)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (usage(35_000), BudgetWarning(35_000, 200_000)),
        (f"{usage(35_000)}\nand later\n{usage(36_000)}", BudgetWarning(36_000, 200_000)),
        ("<system-reminder>Token usage: 42,184/200,000; 157,816 remaining</system-reminder>", (42_184, 200_000)),
        ("<system-reminder>\nToken usage: 1200/200000\n</system-reminder>", (1_200, 200_000)),
        ("Be brief. <budget:token_budget>190000</budget:token_budget>", BudgetWarning(0, 190_000)),
        ("Token usage: 35000/200000; 165000 remaining", None),
        ("<system_warning>Token usage: 300000/200000; 0 remaining</system_warning>", None),
        ("<system_warning>Token usage: 1/2</system-reminder>", None),
        ("<budget:token_budget>many</budget:token_budget>", None),
        ("", None),
    ],
)
def test_the_last_warning_of_a_text_is_read(text, found):
    assert read_warning(text) == found


def conversation(session, warning, role="user"):
    session.append({"role": "user", "content": "Read the ledger."})
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    inside = warning if role == "tool" else ""
    session.append({"role": "tool", "tool_call_id": "c1", "content": "page " * 2_000 + inside})
    if role != "tool":
        session.append({"role": role, "content": warning})


@pytest.mark.requirement("pressure.warnings")
def test_a_reading_uses_the_size_in_a_system_warning_and_names_its_source():
    with recto.open("memory:", model="claude-sonnet-4-5") as session:
        conversation(session, usage(5_000), role="system")
        reading = session.prompt().reading
        assert (reading.tokens, reading.source) == (5_000, "warning")
        session.append({"role": "user", "content": "And the next page? " * 20})
        later = session.prompt().reading
        assert later.source == "warning"
        assert 5_050 < later.tokens < 5_400


@pytest.mark.requirement("pressure.warnings")
def test_a_smaller_window_in_a_warning_bounds_the_reading():
    with recto.open("memory:", model="claude-sonnet-4-5") as session:
        conversation(session, usage(5_000, window=50_000), role="system")
        reading = session.prompt().reading
        assert (reading.tokens, reading.room, reading.utilization) == (5_000, 50_000, 0.1)


@pytest.mark.requirement("pressure.warnings")
@pytest.mark.parametrize("role", ["tool", "assistant"])
def test_a_warning_in_tool_output_or_in_an_answer_is_ignored(role):
    with recto.open("memory:", model="claude-sonnet-4-5") as session:
        conversation(session, usage(5_000), role=role)
        assert session.prompt().reading.source == "estimated"


@pytest.mark.requirement("pressure.warnings")
def test_an_implausible_warning_is_ignored():
    with recto.open("memory:", model="claude-sonnet-4-5") as session:
        conversation(session, usage(150_000), role="system")
        assert session.prompt().reading.source == "estimated"


def test_a_provider_report_overrides_an_earlier_warning():
    with recto.open("memory:", model="claude-sonnet-4-5") as session:
        conversation(session, usage(5_000), role="system")
        session.observe(session.prompt().messages, {"input_tokens": 4_000, "output_tokens": 3})
        session.append({"role": "assistant", "content": "Done."})
        session.append({"role": "user", "content": "And now?"})
        reading = session.prompt().reading
        assert reading.source == "reported"
        assert 4_000 < reading.tokens < 4_200


def test_a_reopened_session_still_uses_the_warning(tmp_path):
    with recto.open(tmp_path / "a.db", model="claude-sonnet-4-5") as session:
        for number in range(160):
            session.append({"role": "user", "content": f"Question {number}"})
            session.append({"role": "assistant", "content": "Yes."})
        session.append({"role": "system", "content": usage(5_000)})
        for number in range(200):
            session.append({"role": "user", "content": f"Question {number}"})
            session.append({"role": "assistant", "content": "Yes."})
            reading = session.prompt().reading
    with recto.open(tmp_path / "a.db", model="claude-sonnet-4-5") as session:
        reopened = session.prompt().reading
    assert (reopened.tokens, reopened.source) == (reading.tokens, reading.source)
    assert reopened.source == "warning"


@pytest.mark.requirement("pressure.warnings")
def test_a_pressure_monitor_reads_warnings_in_the_measured_messages():
    monitor = recto.PressureMonitor(200_000, model="claude-sonnet-4-5")
    messages = [
        {"role": "user", "content": "page " * 2_000},
        {"role": "user", "content": usage(5_000)},
        {"role": "assistant", "content": "Done."},
    ]
    reading = monitor.measure(messages)
    assert reading.source == "warning"
    assert 5_000 < reading.tokens < 5_050
    assert monitor.measure(messages, reported=4_000).source == "reported"
