"""A real Prometheus server reads Recto, loads the rules that are shipped, and raises the alert when prompts overflow.

Durations of the shipped rules are shortened for the test, and nothing else about them.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

import recto
from recto import Session
from recto.errors import WindowOverflow
from recto.health.exporters.prometheus import Metrics
from recto.health.exporters.prometheus_server import serve_metrics

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "deploy" / "prometheus" / "recto-rules.yml"
UNPACKED = ROOT / "build" / "prometheus" / "usr" / "bin"
PATIENCE = 60.0


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if found is None:
        pytest.skip(f"{name} is not here; `make prometheus` fetches the distribution's package")
    return found


def test_the_rules_and_the_example_configuration_are_valid():
    for arguments in (("rules", RULES), ("config", RULES.parent / "prometheus.yml")):
        done = subprocess.run([program("promtool"), "check", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_fire_on_what_they_are_for_and_on_nothing_else(tmp_path):
    """Prometheus's own unit tests of rules: series as they would be read, and what fires after 20 minutes of them."""
    series = {
        'recto_alerts_active{alert="utilization",grade="critical"}': ("1x25", "RectoPromptsTooFull"),
        'recto_alerts_active{alert="evictions",grade="degradation"}': ("2x25", "RectoTooMuchLeaves"),
        'recto_alerts_active{alert="bloat",grade="degradation"}': ("1x25", "RectoToolResultsCrowd"),
        'recto_alerts_active{alert="loop",grade="anomaly"}': ("1x25", "RectoAgentLoops"),
        'recto_alerts_total{alert="fidelity",grade="critical"}': ("0x15 1x10", "RectoFidelityLow"),
        'recto_alerts_total{alert="ratio",grade="degradation"}': ("0x15 1x10", "RectoCompressionWeak"),
        'recto_alerts_total{alert="burn",grade="anomaly"}': ("0x15 1x10", "RectoBurnSpike"),
        "up": ("0x25", "RectoDown"),
        "recto_overflows_total": ("0x15 1x10", "RectoOverflow"),
        "recto_index_failures_total": ("0x15 1x10", "RectoIndexFailing"),
        "recto_index_lag_messages": ("200+10x25", "RectoIndexLagGrowing"),
        'recto_telemetry_dropped_total{sink="log"}': ("0x15 1x10", "RectoTelemetryLost"),
    }
    well = {
        'recto_alerts_active{alert="utilization",grade="critical"}': "0x25",
        'recto_alerts_total{alert="fidelity",grade="critical"}': "3x25",
        "up": "1x25",
        "recto_overflows_total": "7x25",
        "recto_index_failures_total": "0x25",
        "recto_index_lag_messages": "900-10x25",
        'recto_telemetry_dropped_total{sink="log"}': "3x25",
    }
    names = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert {name for _, name in series.values()} == set(names)
    shipped = yaml.safe_load(RULES.read_text())
    for group in shipped["groups"]:
        for rule in group["rules"]:  # which ones fire is asked here; what they say is in other tests
            rule["expr"] = f"count by (job) ({rule['expr']})"
            del rule["annotations"], rule["labels"]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(shipped))

    def case(values: dict[str, str], fires: bool) -> dict:
        labels = {"job": "recto"}
        return {
            "interval": "1m",
            "input_series": [{"series": _labelled(name), "values": told} for name, told in values.items()],
            "alert_rule_test": [
                {"eval_time": "20m", "alertname": name, "exp_alerts": [{"exp_labels": labels}] if fires else []}
                for name in names
            ],
        }

    cases = [case({name: told for name, (told, _) in series.items()}, fires=True), case(well, fires=False)]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": cases}))
    done = subprocess.run(
        [program("promtool"), "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _labelled(series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{job="recto",instance="a:1"{"," if labels else ""}{labels.rstrip("}")}}}'


@pytest.mark.requirement("health.prometheus")
def test_a_prometheus_server_reads_recto_and_alerts_fire_on_an_overload_and_end_with_it(tmp_path):
    metrics = Metrics()
    with serve_metrics(metrics, port=0) as url, prometheus(tmp_path, url) as server, overloadable() as session:
        session.health.watch(metrics)
        wait_until(lambda: value(server, "up") == 1, "Prometheus reads Recto")
        wait_until(lambda: value(server, "recto_overflows_total") == 0, "the counters begin at nothing")
        assert firing(server) == set()
        answered(session, "Read the report and keep it.")
        report = answered(session, "word " * 3_200)
        session.pin(report)
        for question in ("What is in it?", "Who wrote it?", "When?"):
            answered(session, question)
        wait_until(lambda: "RectoPromptsTooFull" in firing(server), "the alert of prompts that stay full fires")
        assert value(server, "recto_utilization_max_ratio") > 0.9
        session.unpin(report)
        session.resume()
        answered(session, "And now?")
        wait_until(lambda: "RectoPromptsTooFull" not in firing(server), "it is over")
        session.append({"role": "user", "content": "word " * 9_000})
        with pytest.raises(WindowOverflow):
            session.prompt()
        wait_until(lambda: "RectoOverflow" in firing(server), "the alert of prompts that do not fit fires")


def overloadable() -> Session:
    """A session with a small window, of which little is kept when it is made smaller."""
    small = {"small": {"window": 4_000, "max_input": 4_000, "max_output": 500, "tokenizer": "o200k"}}
    return recto.open("memory:", model="small", models=small, window={"min_recent_messages": 2, "floor_percent": 70})


def answered(session: Session, question: str) -> int:
    """One turn; the number of its question."""
    asked = session.append({"role": "user", "content": question})
    session.prompt()
    session.append({"role": "assistant", "content": "Done."})
    return asked.seq


def value(server: str, query: str) -> float | None:
    result = ask(server, f"query?query={query}")["result"]
    return float(result[0]["value"][1]) if result else None


def firing(server: str) -> set[str]:
    return {one["labels"]["alertname"] for one in ask(server, "alerts")["alerts"] if one["state"] == "firing"}


def ask(server: str, what: str) -> dict:
    with urllib.request.urlopen(f"{server}/api/v1/{what}", timeout=PATIENCE) as answer:
        return json.load(answer)["data"]


def wait_until(holds, what: str) -> None:
    """Another program decides when: it is asked again and again, within a time that is long for it."""
    pause, ends = threading.Event(), time.monotonic() + PATIENCE
    while True:
        try:
            if holds():
                return
        except (urllib.error.URLError, ConnectionError):
            pass
        assert time.monotonic() < ends, f"not seen in {PATIENCE:g} s: {what}"
        pause.wait(0.05)


@contextmanager
def prometheus(folder: Path, recto: str) -> Iterator[str]:
    """The server, reading Recto five times a second, with the rules that are shipped."""
    rules = re.sub(r"(\n +for: )\d+m", r"\g<1>0s", RULES.read_text())
    rules = re.sub(r"\[\d+m\]", "[30s]", rules)
    (folder / "rules.yml").write_text(rules)
    target = recto.removeprefix("http://").removesuffix("/metrics")
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
                "rule_files": ["rules.yml"],
                "scrape_configs": [{"job_name": "recto", "static_configs": [{"targets": [target]}]}],
            }
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as running:
        try:
            yield f"http://{address}"
        finally:
            running.terminate()
            running.wait(PATIENCE)
