"""The deployment files name what is there: files, commands, options, settings, routes. No container engine runs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from recto.cli.main import recto
from recto.config import load
from recto.gateway.middleware.auth import TABLE

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text()
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "recto.yaml").read_text()))
POD = next(one for one in KUBERNETES if one["kind"] == "Deployment")["spec"]["template"]["spec"]
UNIT = (DEPLOY / "systemd" / "recto.service").read_text()

OPEN = {rule.path for rule in TABLE if rule.need == "open"}


def understood(words: list[str]) -> str:
    """The command that these words call; fails where it or an option is not there."""
    context = click.Context(recto)
    command: click.Command = recto
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            known = {option for given in command.params for option in given.opts}
            assert word in known, f"{command.name} has no option {word}"
            rest.pop(0)
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, f"there is no command {word}"
            command = found
    return command.name or ""


def test_the_image_is_made_of_files_that_are_in_the_checkout_and_starts_the_gateway():
    copied = [line.split()[1:-1] for line in CONTAINERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
    command = yaml.safe_load(re.search(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[1])
    assert understood(command) == "serve"
    assert "--require-hashes" in CONTAINERFILE
    assert CONTAINERFILE.rindex("USER 10001") > CONTAINERFILE.rindex("FROM ")


def test_the_image_installs_what_a_gateway_over_a_database_needs():
    pinned = (ROOT / "requirements" / "server.txt").read_text()
    for package in ("psycopg", "psycopg-binary", "psycopg-pool", "starlette", "uvicorn", "httpx2", "onnxruntime"):
        assert re.search(rf"^{package}==", pinned, re.MULTILINE), package
    assert "--hash=sha256:" in pinned


def test_what_the_services_are_told_in_their_environment_are_settings():
    for name, service in COMPOSE["services"].items():
        given = {key: value for key, value in service.get("environment", {}).items() if key.startswith("RECTO_")}
        environ = {key: re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", value) for key, value in given.items()}
        if config := environ.pop("RECTO_CONFIG", ""):
            assert any(volume.endswith(f":{config}:ro") for volume in service["volumes"])
        settings = load(environ=environ, arguments={})
        if name.startswith("gateway"):
            assert settings.store.startswith("postgresql://")
            assert settings.gateway.hosts == ("localhost",)
        if "command" in service:
            assert understood(service["command"]) == "add"


def test_nothing_of_the_services_can_be_reached_from_outside_by_itself():
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        if "build" in service:
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]


def test_the_settings_of_the_examples_are_settings():
    example = load(path=DEPLOY / "recto.example.yaml", environ={}, arguments={})
    assert set(example.gateway.upstreams) == {"openai", "anthropic"}


def test_the_pods_run_commands_that_exist_with_settings_that_exist(tmp_path):
    config = next(one for one in KUBERNETES if one["kind"] == "ConfigMap")["data"]["recto.yaml"]
    (tmp_path / "recto.yaml").write_text(config)
    settings = load(path=tmp_path / "recto.yaml", environ={}, arguments={})
    [schema], [gateway] = POD["initContainers"], POD["containers"]
    assert understood(schema["args"]) == "upgrade"
    assert understood(gateway["args"]) == "serve"
    for probe in ("readinessProbe", "livenessProbe"):
        asked = gateway[probe]["httpGet"]
        assert asked["path"] in OPEN
        assert asked["httpHeaders"][0]["value"] in settings.gateway.hosts
    assert POD["terminationGracePeriodSeconds"] > settings.gateway.drain_seconds
    assert POD["securityContext"]["runAsNonRoot"]
    assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in (schema, gateway))
    mounted = {volume["name"] for volume in POD["volumes"]}
    assert {mount["name"] for mount in gateway["volumeMounts"]} == mounted


def test_the_service_unit_starts_the_gateway():
    words = shlex.split(re.search(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)[1])
    assert understood(words[1:]) == "serve"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_service_unit_is_understood_by_systemd(tmp_path):
    unit = tmp_path / "recto.service"
    unit.write_text(UNIT.replace("/opt/recto/bin/recto", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
