"""The files beside the code: rules and a dashboard name only metrics that exist, and a page names them all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.health.sample_turns import SESSION, alert, compaction, turn

from recto.formats import Usage
from recto.gateway.api_keys import Key
from recto.gateway.telemetry import RequestMetrics, RequestRecord
from recto.health.exporters import exporter as facts
from recto.health.exporters import opentelemetry
from recto.health.exporters.json_log import JsonLog
from recto.health.exporters.prometheus import Metrics
from recto.health.metrics import AlertName

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "deploy" / "prometheus" / "recto-rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "recto-dashboard.json"
PAGE = ROOT / "docs" / "telemetry.md"
REFERENCE = ROOT / "docs" / "reference" / "events.md"
NAME = re.compile(r"\brecto_[a-z_]+")


def exported() -> dict[str, set[str]]:
    """Every series that Prometheus stores, by its name and with its labels."""
    metrics = Metrics()
    metrics.watch(JsonLog("stderr"))
    metrics.turn(SESSION, turn())
    requests, key = RequestMetrics(metrics, lambda: 0, known_model=bool), Key(id="0", name="laptop", tenant="acme")
    requests.count(RequestRecord(wire="openai.chat", model="gpt-4o", outcome="ok", key=key))
    requests.count_tokens(key, Usage(prompt=1, output=1, cache_read=1))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return {name: labels for name, labels in found.items() if not name.endswith("_created")}


def families() -> list[str]:
    text = Metrics().exposition()[0].decode()
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    return [name for name in names if not name.endswith("_created")]


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.mark.parametrize("expression", [*[rule["expr"] for rule in rules()], *queries()])
@pytest.mark.requirement("health.prometheus")
def test_every_metric_and_label_that_a_rule_or_a_panel_names_is_exported(expression):
    known = exported()
    plain = expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
    for name in NAME.findall(plain):
        assert name in known, name
    for name, labels in re.findall(r"(\brecto_[a-z_]+)\{([^}]*)\}", plain):
        assert set(re.findall(r"(\w+)=", labels)) <= known[name] | {"job", "instance"}
    grouped = {word.strip() for words in re.findall(r"by \(([^)]*)\)", plain) for word in words.split(",")}
    named = set().union(*(known[name] for name in NAME.findall(plain) if name in known))
    assert grouped <= named | {"job", "instance"}


def test_every_alert_has_a_rule_and_every_rule_says_what_to_do():
    expressions = " ".join(rule["expr"] for rule in rules())
    for name in get_args(AlertName):
        assert f'alert="{name}"' in expressions
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["action"]


def test_every_metric_has_a_panel():
    shown = set(NAME.findall(" ".join(queries())))
    for name in families():
        assert any(one.startswith(name) for one in shown), name


def test_the_dashboard_can_be_loaded_anywhere():
    board = json.loads(DASHBOARD.read_text())
    assert board["schemaVersion"] >= 39
    assert board["id"] is None
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "job", "instance"]
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${datasource}"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", families())
def test_every_metric_is_documented(name):
    assert f"`{name}`" in REFERENCE.read_text(encoding="utf-8")


def test_every_field_of_the_log_and_every_name_for_opentelemetry_is_documented(tmp_path):
    page = PAGE.read_text(encoding="utf-8") + REFERENCE.read_text(encoding="utf-8")
    log = JsonLog(str(tmp_path / "log"))
    log.turn(SESSION, turn())
    log.alert(alert())
    log.event(compaction())
    log.close()
    fields = {field for line in (tmp_path / "log").read_text().splitlines() for field in json.loads(line)}
    for name in sorted(fields | {"content", "cut"}):
        assert f"`{name}`" in page, name
    for kind, named in facts.FIELDS.items():
        assert f"`{kind}`" in page, kind
        for name in named:
            assert f"`{name}`" in page, name
    constants = [value for name, value in vars(opentelemetry).items() if not name.startswith("__")]
    for name in [*constants, *opentelemetry._TURN_ATTRIBUTES]:
        if isinstance(name, str) and name.startswith(("gen_ai.", "recto.")):
            assert f"`{name}`" in page, name
