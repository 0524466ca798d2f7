"""`recto config`: the effective settings with their origin, and no secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.cli.calling import called_at, own_file

from recto.config import load

SECRETS = ("sk-embedder", "sk-webhook", "sk-upstream", "T0/B0/hooked", "ada:hunter2", "sk-header", "sk-query")
FILE = {
    "model": "gpt-4o",
    "window": {"mode": "zones"},
    "recall": {"embedder": {"use": "endpoint", "url": "http://ada:hunter2@127.0.0.1:1/v1", "key": "sk-embedder"}},
    "health": {"webhook": {"url": "https://hooks.example.com/services/T0/B0/hooked", "key": "sk-webhook"}},
    "gateway": {
        "upstreams": {
            "main": {
                "url": "https://api.example.com/v1?token=sk-query",
                "key": "sk-upstream",
                "key_env": "API_KEY",
                "headers": {"x-token": "sk-header"},
            }
        }
    },
}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    own_file(tmp_path).write_text(yaml.safe_dump(FILE))
    monkeypatch.setenv("RECTO_WINDOW__MARK", "KEEP")
    monkeypatch.setenv("RECTO_KEY", "rk-of-a-gateway")
    return tmp_path


def test_each_value_has_its_origin(home):
    lines = called_at(home, "--store", "other.db", "config", "--json").splitlines()
    found = {row["key"]: row for row in map(json.loads, lines)}
    assert (found["store"]["value"], found["store"]["origin"]) == ("other.db", "argument")
    assert (found["window.mode"]["value"], found["window.mode"]["origin"]) == ("zones", "file")
    assert found["window.mode"]["where"].endswith("recto.yaml")
    assert (found["window.mark"]["value"], found["window.mark"]["where"]) == ("KEEP", "RECTO_WINDOW__MARK")
    assert found["window.policy"]["origin"] == "default"


def test_no_secret_is_shown_in_any_form(home, monkeypatch):
    for more in ((), ("--json",), ("gateway",), ("gateway.upstreams",), ("recall.embedder.key",), ("health",)):
        shown = called_at(home, "config", *more)
        assert not [secret for secret in SECRETS if secret in shown]
    assert called_at(home, "config", "recall.embedder.key") == "(set)\n"
    assert called_at(home, "config", "compress.model.key") == "(unset)\n"
    assert called_at(home, "config", "health.webhook.url") == "https://hooks.example.com/…\n"
    assert "API_KEY" in called_at(home, "config", "gateway")
    store = "postgresql://recto:sk-store@db:5432/recto?password=sk-query"
    assert called_at(home, "--store", store, "config", "store") == "postgresql://db:5432/recto\n"
    monkeypatch.setenv("RECTO_STORE_KEY", "rk-of-the-store")
    assert called_at(home, "config", "store_key") == "(set)\n"
    assert "rk-of-the-store" not in called_at(home, "config")


def test_the_output_is_a_valid_settings_file(tmp_path):
    own_file(tmp_path).write_text("window: {mode: zones, keep_tools: [run]}\nmodels: {mine: {window: 9000}}\n")
    tree = yaml.safe_load(called_at(tmp_path, "config"))
    for group in ("recall.embedder", "compress.model", "health.webhook"):
        branch = tree
        for name in group.split("."):
            branch = branch[name]
        assert branch.pop("key") == "(unset)"
    assert tree.pop("store_key") == "(unset)"
    assert load(environ={}, arguments=tree) == load(path=own_file(tmp_path))


def test_a_single_setting_is_a_bare_value_and_a_group_is_a_tree(home):
    assert called_at(home, "config", "window.mode") == "zones\n"
    assert called_at(home, "config", "window.trim.keep_newest") == "1\n"
    assert yaml.safe_load(called_at(home, "config", "window.trim"))["window"]["trim"]["keep_newest"] == 1
    assert "Did you mean 'window.mode'" in called_at(home, "config", "window.mod", code=2)


def test_config_path_prints_the_settings_file(home, tmp_path_factory):
    assert called_at(home, "config", "--path") == f"{own_file(home)}\n"
    assert "recto.yaml" in called_at(tmp_path_factory.mktemp("empty"), "config", "--path", code=1)
