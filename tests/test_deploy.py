"""The deployment files name only files, commands, options, settings and routes that exist.

No container engine runs here: `tools/check_image.py` runs the image and the compose files.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import httpx2
import pytest
import yaml

from recto.cli.main import recto
from recto.config import load
from recto.config.factory import SystemClock, open_store
from recto.config.settings import GatewaySettings
from recto.gateway.api_keys import Key, Keys
from recto.gateway.middleware.auth import TABLE
from recto.models.embedders import ARCTIC

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "container" / "Containerfile").read_text()
COMPOSE = {file.name: yaml.safe_load(file.read_text()) for file in sorted(DEPLOY.glob("compose*.yaml"))}
SERVICES = [(name, service) for file in COMPOSE.values() for name, service in file["services"].items()]
KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "recto.yaml").read_text()))
POD = next(document for document in KUBERNETES if document["kind"] == "Deployment")["spec"]["template"]["spec"]
UNIT = (DEPLOY / "systemd" / "recto.service").read_text()

OPEN = {rule.path for rule in TABLE if rule.need == "open"}


def understood(words: list[str]) -> str:
    """Returns the command that these words call; fails if the command or an option does not exist."""
    context = click.Context(recto)
    command: click.Command = recto
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            known = {option: parameter for parameter in command.params for option in parameter.opts}
            assert word in known, f"{command.name} has no option {word}"
            if not getattr(known[word], "is_flag", False):
                rest.pop(0)
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, f"there is no command {word}"
            command = found
    return command.name or ""


def test_the_image_copies_only_existing_files_and_starts_the_gateway():
    copied = [line.split()[1:-1] for line in CONTAINERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
    command = yaml.safe_load(re.search(r"^CMD (\[.*\])$", CONTAINERFILE, re.MULTILINE)[1])
    assert understood(command) == "serve"
    assert "--first-key" in command
    assert len(re.findall(r"pip install(?! .*(?:--require-hashes|--no-index))", CONTAINERFILE)) == 0
    assert CONTAINERFILE.rindex("USER 10001") > CONTAINERFILE.rindex("FROM ")


def test_the_image_starts_without_settings_from_outside():
    """It has no embedded model, so it needs upstreams; they are disabled while their keys are missing."""
    final = CONTAINERFILE[CONTAINERFILE.rindex("FROM ") :]
    copied = re.search(r"^COPY (deploy/\S+) (\S+)$", final, re.MULTILINE)
    assert copied is not None
    assert f"RECTO_CONFIG={copied[2]}" in final
    settings = load(path=ROOT / copied[1], environ={}, arguments={})
    assert settings.gateway.upstreams
    assert settings.gateway.hosts == ("localhost", "127.0.0.1")
    assert f"VOLUME {Path(settings.store).parent}" in final


def test_the_image_installs_the_packages_of_a_gateway_over_a_database():
    pinned = (ROOT / "requirements" / "server.txt").read_text()
    for package in (
        "psycopg",
        "psycopg-binary",
        "psycopg-pool",
        "starlette",
        "uvicorn",
        "httpx2",
        "onnxruntime",
        "mcp",
    ):
        assert re.search(rf"^{package}==", pinned, re.MULTILINE), package
    assert "--hash=sha256:" in pinned
    extras = re.search(r"(--extra .*) -o requirements/server.txt", (ROOT / "Makefile").read_text())
    assert extras is not None
    assert set(extras[1].split()) - {"--extra"} == {"recall", "gateway", "mcp", "postgres"}


def test_the_image_has_readable_weights_where_the_gateway_looks_for_them():
    fetched = re.search(r"RUN XDG_CACHE_HOME=(\S+) \S+/recto models get (\S+)", CONTAINERFILE)
    assert fetched is not None
    assert fetched[2] == ARCTIC
    assert understood(["models", "get", fetched[2]]) == "get"
    final = CONTAINERFILE[CONTAINERFILE.rindex("FROM ") :]
    assert f"XDG_CACHE_HOME={fetched[1]}" in final
    assert f"COPY --from=installed {Path(fetched[1]).parent}" in final
    assert f"chmod -R a+rX {fetched[1]}" in CONTAINERFILE


def test_files_ignored_by_the_build_are_not_copied_into_the_image():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    copied = [line.split()[1:-1] for line in CONTAINERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
    assert not {name for names in copied for name in names} & set(ignored)
    assert "web/node_modules" in ignored


def environment(service: dict[str, Any]) -> dict[str, str]:
    """Returns the settings of a service as compose sets them if no variable is set."""
    variables = {key: value for key, value in service.get("environment", {}).items() if key.startswith("RECTO_")}
    return {key: re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", value) for key, value in variables.items()}


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_the_environment_of_each_service_names_valid_settings(name, service):
    environ = environment(service)
    if config := environ.pop("RECTO_CONFIG", ""):
        assert any(volume.endswith(f":{config}:ro") for volume in service["volumes"])
    settings = load(environ=environ, arguments={})
    if name.startswith("gateway"):
        assert settings.gateway.hosts == ("localhost", "127.0.0.1")
        assert settings.gateway.access_log == "json"
        assert understood(service["command"]) == "serve"
        assert settings.gateway.drain_seconds < int(service["stop_grace_period"].removesuffix("s"))


@pytest.mark.parametrize(("name", "service"), SERVICES)
def test_no_service_is_reachable_from_outside_by_default(name, service):
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    if "build" in service:
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]


def test_a_single_gateway_needs_only_files_of_the_checkout():
    text = (DEPLOY / "compose.yaml").read_text()
    assert ":?" not in text, "a variable that has to be set"
    file = COMPOSE["compose.yaml"]
    for service in file["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in file["volumes"] or (DEPLOY / source).is_file(), source
        built = service["build"]
        assert (DEPLOY / built["context"] / built["dockerfile"]).is_file()
        assert environment(service)["RECTO_STORE"].startswith("/var/lib/recto/")
    assert COMPOSE["compose.postgres.yaml"]["services"].keys() == {"database", "gateway-1", "gateway-2"}


def test_the_database_is_healthy_only_when_gateways_can_connect_to_it():
    """While PostgreSQL's image creates the database, a temporary server listens on the Unix socket only."""
    test = COMPOSE["compose.postgres.yaml"]["services"]["database"]["healthcheck"]["test"]
    assert test[:4] == ["CMD", "pg_isready", "-h", "localhost"]


def started(folder: Path) -> tuple[str, str]:
    """Runs the service; returns its output, and its response to a request with the printed address and key."""
    service = COMPOSE["compose.yaml"]["services"]["gateway"]
    environ = {name: value.replace("/var/lib/recto", str(folder)) for name, value in environment(service).items()}
    environ["RECTO_CONFIG"] = str(DEPLOY / "recto.example.yaml")
    environ |= {"RECTO_RECALL__EMBEDDER__USE": "none", "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "from recto.cli.main import main; main()", *service["command"], "--port", "0"]
    printed, answer = "", ""
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            printed += line
            if found := re.match(r"Page: (\S+)/$", line):
                break
        if secret := re.search(r"rk-\S+", printed):
            body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]}
            headers = {"authorization": f"Bearer {secret[0]}"}
            answer = httpx2.post(f"{found[1]}/v1/chat/completions", json=body, headers=headers).text
            listed = httpx2.get(f"{found[1]}/api/v1/sessions", headers=headers)
            assert listed.status_code == 200
        process.terminate()
        rest, complained = process.communicate(timeout=30)
    return printed + rest + complained, answer


def test_the_first_start_prints_a_key_that_works_and_the_next_one_prints_none(tmp_path):
    first, answer = started(tmp_path)
    secrets = re.findall(r"rk-\S+", first)
    assert len(secrets) == 1
    assert "OPENAI_API_KEY" in answer, "the reason why no upstream is called"
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        assert len([line for line in first.splitlines() if variable in line and "disabled" in line]) == 1
    second, _ = started(tmp_path)
    assert "rk-" not in second
    assert "Recto listens on" in second


def test_only_one_of_several_starting_gateways_creates_the_first_key(tmp_path):
    with closing(open_store(load(environ={}, arguments={"store": str(tmp_path / "t.db")}))) as store:
        makers = [Keys(store, SystemClock()) for _ in range(4)]
        for keys in makers:
            assert keys.list() == ()
        made = [keys.add_first(Key(name="first")) for keys in makers]
        assert len([key for key in made if key is not None]) == 1
        assert len(makers[0].list()) == 1
        assert makers[-1].find(made[0][1]) is not None


def test_the_example_settings_are_valid():
    example = load(path=DEPLOY / "recto.example.yaml", environ={}, arguments={})
    assert set(example.gateway.upstreams) == {"openai", "anthropic"}


def test_the_pods_run_commands_that_exist_with_settings_that_exist(tmp_path):
    config = next(document for document in KUBERNETES if document["kind"] == "ConfigMap")["data"]["recto.yaml"]
    (tmp_path / "recto.yaml").write_text(config)
    settings = load(path=tmp_path / "recto.yaml", environ={}, arguments={})
    [schema], [gateway] = POD["initContainers"], POD["containers"]
    assert understood(schema["args"]) == "upgrade"
    assert understood(gateway["args"]) == "serve"
    for probe in ("readinessProbe", "livenessProbe"):
        probe_request = gateway[probe]["httpGet"]
        assert probe_request["path"] in OPEN
        assert probe_request["httpHeaders"][0]["value"] in settings.gateway.hosts
    assert POD["terminationGracePeriodSeconds"] > settings.gateway.drain_seconds
    assert POD["securityContext"]["runAsNonRoot"]
    assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in (schema, gateway))
    mounted = {volume["name"] for volume in POD["volumes"]}
    assert {mount["name"] for mount in gateway["volumeMounts"]} == mounted


def test_the_service_unit_starts_the_gateway():
    words = shlex.split(re.search(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)[1])
    assert understood(words[1:]) == "serve"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_accepts_the_service_unit(tmp_path):
    unit = tmp_path / "recto.service"
    unit.write_text(UNIT.replace("/opt/recto/bin/recto", shutil.which("true") or "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


NGINX = (DEPLOY / "nginx" / "recto.conf").read_text()
CADDY = (DEPLOY / "caddy" / "Caddyfile").read_text()


def written(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    assert found is not None, pattern
    return int(found[1])


def test_the_proxies_forward_streams_and_wait_longer_than_the_gateway():
    gateway = GatewaySettings()
    assert "proxy_buffering off;" in NGINX
    assert "proxy_request_buffering off;" in NGINX
    assert "proxy_next_upstream off;" in NGINX
    assert written(NGINX, r"proxy_read_timeout (\d+)s;") > gateway.upstream_seconds
    assert written(NGINX, r"client_max_body_size (\d+)m;") * 2**20 >= gateway.upload_bytes
    assert written(NGINX, r"server 127\.0\.0\.1:(\d+);") == gateway.port
    assert "flush_interval -1" in CADDY
    for timeout in ("response_header_timeout", "read_timeout"):
        assert written(CADDY, rf"{timeout} (\d+)s") > gateway.upstream_seconds
    assert written(CADDY, r"reverse_proxy 127\.0\.0\.1:(\d+)") == gateway.port
    assert written(CADDY, r"max_size (\d+)MB") * 10**6 >= gateway.upload_bytes


def test_the_proxies_replace_the_addresses_that_clients_claim():
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in NGINX  # not $proxy_add_x_forwarded_for
    assert "trusted_proxies static" not in CADDY
    for text in (NGINX, CADDY):
        assert text.count("{") == text.count("}")


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_nginx_accepts_the_sample(tmp_path):
    sample = re.sub(r"ssl_certificate.*;|listen .*;| ssl;", "", NGINX).replace(
        "server_name", "listen 8080; server_name"
    )
    whole = tmp_path / "nginx.conf"
    whole.write_text(f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; {sample} }}")
    done = subprocess.run(["nginx", "-t", "-c", str(whole)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("caddy"), reason="caddy is not installed")
def test_caddy_accepts_the_sample():
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(DEPLOY / "caddy" / "Caddyfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_release_workflow_calls_existing_make_targets_and_stores_no_secret():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    targets = [
        word for step in steps for word in step.get("run", "").split() if step.get("run", "").startswith("make ")
    ]
    assert {"check", "test", "release"} <= set(targets)
    for target in set(targets) - {"make"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "secrets." not in text
    assert workflow["permissions"] == {}
