"""What happens to a session and is told: entries and their kinds, alerts, log lines, metrics, what a webhook gets."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from math import nan
from pathlib import Path
from typing import Any, get_args

from prometheus_client import CollectorRegistry

from recto.config import Settings
from recto.engine.audit import TOPICS
from recto.formats import Usage
from recto.gateway.api_keys import Key
from recto.gateway.telemetry import RequestMetrics, RequestRecord
from recto.health.alerts import ALERT_KINDS as ALERTS
from recto.health.exporters.exporter import COMPONENTS, DECISIONS, FIELDS, POLICIES, ZONES
from recto.health.exporters.json_log import JsonLog
from recto.health.exporters.prometheus import Metrics
from recto.health.exporters.webhook import CONTENT_TYPE, cloud_event
from recto.health.metrics import Alert, TurnHealth
from recto.transcript.audit import Topic
from recto.transcript.entries import Entry, Role
from reference.event_words import KINDS as WORDS
from reference.event_words import TOPICS as TOPIC_WORDS
from reference.markdown import cell, code, fence, page, table
from reference.reading import attribute_texts

_ABOUT = """What Recto writes down and tells: the entries of a transcript, alerts, lines of the log, metrics, and what a
webhook is sent. How each is switched on: [telemetry](../telemetry.md). How turns are measured: [health](../health.md).
How decisions are read back: [audit](../audit.md)."""
_TURN = TurnHealth(
    turn=12, seq=48, ts=1_790_000_000_123_456, model="gpt-4o", tokens=5_120, room=7_500, utilization=0.97, evicted=4,
    freed=900, burn=800, burn_usual=700.0, ratio=2.5, fidelity=0.9, bloat=0.2, loop=1, prefix=0.8, recall_hits=1,
    recall_misses=1, regret=1, index_lag=0, protected=0.2, estimate_error=0.1, cache_read=100, cache_write=10,
)  # fmt: skip
_ALERT = Alert(
    name="utilization", grade="critical", session="agent:default:main", turn=12, ts=1_790_000_000_123_456, value=0.97,
    threshold=0.9, says=ALERTS["utilization"].says.format(x=0.97, turns=3), action=ALERTS["utilization"].action,
    ended=False,
)  # fmt: skip


class _Behind:
    """A replica that is known to be there, and of which nothing else is."""

    behind = nan


def written() -> str:
    """The whole page."""
    return page(
        "Events reference",
        _ABOUT,
        "## Entries",
        f"A transcript is made of entries. The role is {_names(get_args(Role))}; an `event` is Recto's own.",
        table(("field", "means"), _fields(Entry)),
        "## Kinds of events",
        "`kind` is `message` for messages and one of these for events. Kinds that are not known here, of a newer Recto"
        " or of another program, are kept and left alone. The last column has what logs and spans tell of it: numbers"
        " and words of Recto's own, never text of messages.",
        *_kinds(),
        "## Decisions",
        f"{_names(sorted(DECISIONS))} are decisions: each took something out of the prompt or made it shorter, and can"
        " be undone. Beside the fields above they tell `messages` (how many left), `results` (how many shrank),"
        " `kept` (how many are in the prompt afterwards), and where something was written `tokens_from`, `tokens_to`"
        " and `fidelity`.",
        f"Policies: {_names(sorted(POLICIES))}. Zones: {_names(sorted(ZONES))}. Components of a budget:"
        f" {_names(sorted(COMPONENTS))}. Whatever else is there is exported as `other`.",
        "## Alerts",
        table(("alert", "grade", "threshold", "says", "what to do"), _alerts()),
        "## Log lines",
        "One JSON object a line, where `health.log` says. Fields by what a line is about: those of a turn are its"
        " [measures](../health.md#metrics); events have those of their kind above, and with `health.log_text`"
        " also `content`. `cut` is true where something was shortened.",
        table(("`what`", "fields"), _lines()),
        _levels(),
        "## Metrics",
        "At the gateway's `/metrics`, and by `recto.health.exporters.prometheus_server.serve_metrics`.",
        table(("metric", "kind", "labels", "tells"), _metrics()),
        "## Webhook",
        f"Where `health.webhook.url` says, by POST as `{CONTENT_TYPE}`. `type` is `recto.alert.ended` when it is over.",
        fence("json", json.dumps(cloud_event(_ALERT), indent=2)),
    )


def _names(names: Any) -> str:  # noqa: ANN401  # any order of names
    return ", ".join(code(name) for name in names)


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    texts = attribute_texts(kind)
    for one in fields(kind):
        yield code(one.name), cell(texts.get(one.name, ""))


def _kinds() -> Iterator[str]:
    """A table for each topic; a kind that nobody has put into words is an error here."""
    unsaid = set(TOPICS) ^ set(WORDS)
    if unsaid:
        raise SystemExit(f"these events are in the code or in {__name__}, and not in both: {', '.join(sorted(unsaid))}")
    for topic in get_args(Topic):
        rows = [_kind(kind) for kind in sorted(TOPICS) if TOPICS[kind] == topic]
        if rows:
            yield f"### {TOPIC_WORDS[topic]}"
            yield table(("kind", "says", "in logs and spans"), rows)


def _kind(kind: str) -> tuple[str, str, str]:
    says, more = WORDS[kind]
    return code(kind), f"{cell(says)} [More](../{more}).", _names(FIELDS.get(kind, ()))


def _levels() -> str:
    """What the log says of how bad each is."""
    found: dict[str, list[str]] = {}
    for line in _logged():
        if line["what"] == "event" and line["level"] != "info":
            found.setdefault(line["level"], []).append(line["kind"])
    told = "; ".join(f"{code(level)} for {_names(sorted(kinds))}" for level, kinds in sorted(found.items()))
    return (
        f"The level is {told}; for alerts `error` where they are critical, else `warning`; and `info` for all others."
    )


def _logged() -> list[dict[str, Any]]:
    """A line of each sort, as the log writes it."""
    with tempfile.TemporaryDirectory() as folder:
        log = JsonLog(f"{folder}/log")
        log.turn("agent:default:main", _TURN)
        log.alert(_ALERT)
        for kind in TOPICS:
            log.event(_event(kind))
        log.close()
        return [json.loads(line) for line in Path(folder, "log").read_text().splitlines()]


def _event(kind: str) -> Entry:
    return Entry(
        id="1", ts=0, role="event", content=b"{}", kind=kind, session="agent:default:main", seq=1, prev=b"", hash=b""
    )


def _lines() -> Iterator[tuple[str, str]]:
    lines = {line["what"]: line for line in _logged()}
    always = [name for name in lines["event"] if all(name in line for line in lines.values())]
    yield "all", _names(always)
    for what, line in lines.items():
        yield code(what), _names(name for name in line if name not in always)


def _alerts() -> Iterator[tuple[str, str, str, str, str]]:
    usual = Settings().health.alerts
    for name, one in ALERTS.items():
        threshold = f"{'below' if one.low else 'above'} {code(f'health.alerts.{name}')} ({getattr(usual, name):g})"
        says = one.says.replace("{x:.0%}", "N %").replace("{x:.1f}", "N").replace("{turns}", "N")
        yield code(name), one.grade, threshold, cell(says), cell(one.action)


def _metrics() -> Iterator[tuple[str, str, str, str]]:
    """Every family that is exposed after one of everything has happened, so that each has its labels."""
    registry = CollectorRegistry()
    metrics = Metrics(registry=registry)
    metrics.watch(JsonLog("stderr"))
    metrics.turn("agent:default:main", _TURN)
    requests = RequestMetrics(metrics, lambda: 0, known_model=lambda model: True)
    requests.watch(_Behind())  # type: ignore[arg-type]  # only this of a replica is looked at
    key = Key(id="0", name="laptop", tenant="acme")
    requests.count(RequestRecord(wire="openai.chat", model="gpt-4o", outcome="ok", gateway_seconds=0.01, key=key))
    requests.count_tokens(key, Usage(prompt=1, output=1, cache_read=1))
    for family in sorted(registry.collect(), key=lambda one: one.name):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield code(name), family.type, _names(sorted(labels)), cell(family.documentation)
