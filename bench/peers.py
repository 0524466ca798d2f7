"""Measures Recto and its peers: the same sessions, the same driver, the same checks, in one run. `make bench-peers`.

The peers' scripts are run unchanged, each in an environment of its own. This module installs their newest versions,
runs Recto under the same driver, and joins the results: a synthetic corpus that grows to 100,000 messages, and real
sessions (`bench.peers_real`). A peer that cannot be installed, or that fails, is listed with the error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import pages, peers_page, peers_real, provenance
from bench.measure import machine

FOLDER = Path(os.environ.get("RECTO_PEERS", "../shared/bench/peers"))
CACHE = Path.home() / ".cache" / "recto-peers"
OUTPUT = Path("build/peers.json")
REAL = Path("build/peers-real.json")
PAGE = Path("docs/benchmarks-peers.md")
RESULTS = Path("build/peers")
SIZES = (100, 1_000, 10_000, 100_000)
BUDGETS = (128_000, 32_000)
DRIVER_NEEDS = ("bpe-openai", "psutil")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One script, and what it needs."""

    env: str
    script: str
    packages: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        return CACHE / self.env / "bin" / "python"


PEERS = (
    Peer(env="naive", script="peer_naive.py"),
    Peer(env="langchain", script="peer_langchain.py", packages=("langchain", "langchain-core")),
    Peer(env="pydanticai", script="peer_pydantic_ai.py", packages=("pydantic-ai-slim",)),
    Peer(env="llamaindex", script="peer_llama_index.py", packages=("llama-index-core", "aiosqlite")),
    Peer(env="oai", script="peer_openai_agents.py", packages=("openai-agents",)),
    Peer(env="strands", script="peer_strands.py", packages=("strands-agents",)),
    Peer(env="agentfw", script="peer_agent_framework.py", packages=("agent-framework-core",)),
    Peer(env="adk", script="peer_google_adk.py", packages=("google-adk",)),
    Peer(env="headroom", script="peer_headroom.py", packages=("headroom-ai",)),
    Peer(env="lettaold", script="peer_letta.py", packages=("letta==0.16.8", "asyncpg")),
)
RECTO = Peer(env="recto", script=str(Path(__file__).with_name("peer_recto.py")))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("peers", nargs="*", help=f"only these (default: all): {' '.join(p.env for p in PEERS)}")
    parser.add_argument("--full", action="store_true", help="50 turns for every figure where they fit; takes hours")
    parser.add_argument("--docs", action="store_true", help=f"write {PAGE} too")
    parser.add_argument("--real", action="store_true", help=f"only the real sessions; the rest is kept from {OUTPUT}")
    parser.add_argument(
        "--synthetic", action="store_true", help=f"only the synthetic ones; the rest is kept from {REAL}"
    )
    parser.add_argument("--draw", action="store_true", help="nothing is measured, both are kept")
    given = parser.parse_args()
    if not (FOLDER / "common.py").is_file():
        sys.exit(f"There are no peer scripts in '{FOLDER}'. Name the folder that holds them in RECTO_PEERS.")
    unknown = set(given.peers) - {peer.env for peer in PEERS}
    if unknown:
        sys.exit(f"There is no peer '{min(unknown)}'; these are: {' '.join(peer.env for peer in PEERS)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    chosen = [peer for peer in PEERS if not given.peers or peer.env in given.peers]
    report = kept(OUTPUT) if given.real or given.draw else timed(chosen, given.full)
    report["real"] = kept(REAL) if given.synthetic or given.draw else real(chosen)
    draw(report)
    print(f"written to {OUTPUT} and {REAL}")
    if given.docs:
        write(report)


def timed(chosen: list[Peer], full: bool) -> dict:
    """The synthetic corpus."""
    report = {"machine": machine(), "at": now(), "full": full}
    report["peers"] = [measured(peer, full) for peer in (RECTO, *chosen)]
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def real(chosen: list[Peer]) -> dict:
    """The real sessions, with those that can be installed; plain trimming is always among them."""
    everyone = [RECTO, *(peer for peer in PEERS if peer.env == "naive" or peer in chosen)]
    ready, failed = {}, []
    for peer in everyone:
        try:
            install(peer)
            ready[peer.env] = peer.python
        except subprocess.CalledProcessError as error:
            failed.append({"variant": peer.env, "error": what_failed(peer, error)})
    report = {"machine": machine(), "at": now(), **peers_real.measured(FOLDER, RESULTS, ready)}
    report["rows"] += failed
    report["versions"] = {peer.env: versions(peer) for peer in everyone if peer.env in ready}
    REAL.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def kept(file: Path) -> dict:
    """The report of the run before."""
    if not file.is_file():
        sys.exit(f"There is no '{file}' to add to. Run `make bench-peers` first.")
    return json.loads(file.read_text(encoding="utf-8"))


def write(report: dict) -> None:
    """The page, its pictures, and the section of the page of benchmarks."""
    title, _, rest = page(report).partition("\n\n")
    PAGE.write_text(f"{title}\n\n{provenance.block('peers')}\n\n{rest}", encoding="utf-8")
    if not report["real"]["sessions"]:
        return
    peers_page.PICTURES.mkdir(parents=True, exist_ok=True)
    for name, picture in peers_page.pictures(report["real"]).items():
        (peers_page.PICTURES / name).write_text(picture, encoding="utf-8")
    section = peers_page.excerpt(report["real"], "make bench-peers-docs")
    section = f"{provenance.block('peers')}\n\n{section}"
    benchmarks = peers_page.renewed(pages.PAGE.read_text(encoding="utf-8"), section)
    pages.PAGE.write_text(benchmarks, encoding="utf-8")
    pages.mark_stale()


def measured(peer: Peer, full: bool) -> dict:
    """Installs a peer where it is missing and runs its script; its rows, or what went wrong."""
    about = {"peer": peer.env, "versions": {}, "rows": [], "error": ""}
    print(f"{peer.env} …", flush=True)
    try:
        install(peer)
        about["versions"] = versions(peer)
        about["rows"] = rows_of(peer, full)
    except subprocess.CalledProcessError as error:
        about["error"] = what_failed(peer, error)
        print(f"  {about['error']}", flush=True)
    return about


def what_failed(peer: Peer, error: subprocess.CalledProcessError) -> str:
    step = "the script" if peer.script in map(str, error.cmd) else "the installation"
    lines = [line for line in str(error.stderr or error.stdout or "").splitlines() if line.strip()]
    return f"{step} failed: {lines[-1] if lines else f'status {error.returncode}'}"


def install(peer: Peer) -> None:
    """The newest versions there are, or those of before where the package index cannot be asked."""
    uv = [str(Path(sys.executable).with_name("uv"))]
    if not peer.python.exists():
        called([*uv, "venv", "--quiet", str(CACHE / peer.env)])
    into = [*uv, "pip", "install", "--quiet", "--python", str(peer.python)]
    ready = CACHE / peer.env / ".ready"
    try:
        called([*into, "--upgrade", *DRIVER_NEEDS, *peer.packages])
        if peer is RECTO:
            called([*into, "--require-hashes", "-r", "requirements/run.txt"])
    except subprocess.CalledProcessError:
        if not ready.exists():
            raise
    ready.touch()


def versions(peer: Peer) -> dict[str, str]:
    code = "import sys, importlib.metadata as m, json; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    names = [package.partition("==")[0] for package in peer.packages]
    return json.loads(called([str(peer.python), "-c", code, *names]))


def rows_of(peer: Peer, full: bool) -> list[dict]:
    out = (RESULTS / f"{peer.env}.json").resolve()
    out.unlink(missing_ok=True)
    command = [str(peer.python), "-W", "ignore", peer.script, "--out", str(out), *(["--full"] if full else [])]
    called(command, cwd=FOLDER, env=environment(peer))
    rows = json.loads(out.read_text(encoding="utf-8"))
    for row in rows:
        row.pop("raw", None)
    return rows


def environment(peer: Peer) -> dict[str, str]:
    """Without settings of the one who measures; Recto is taken from the checkout, the driver from its folder."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("RECTO_", "PYTHONPATH"))}
    if peer is not RECTO:
        return plain
    return plain | {"PYTHONPATH": os.pathsep.join([str(FOLDER.resolve()), str(Path("src").resolve())])}


def called(command: list[str], **how: object) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, **how).stdout


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to use one peer, and all that was measured of it."""

    peer: str
    name: str
    rows: list[dict]

    def cell(self, budget: int, size: int) -> dict:
        found = (row for row in self.rows if row.get("n") == size and row["budget"] == budget)
        return next(found, {})

    def time(self, budget: int, size: int) -> float | None:
        """Milliseconds per turn: the median, or the first turn where there was time for no other."""
        cell = self.cell(budget, size)
        return cell.get("p50") or cell.get("cold")

    def growth(self, budget: int) -> float | None:
        """How much slower the largest session that was measured is than the smallest."""
        times = [time for size in SIZES if (time := self.time(budget, size))]
        return times[-1] / times[0] if len(times) > 1 else None

    def checks(self, budget: int) -> dict[str, int]:
        """Prompts that were looked at, and how many of them were wrong."""
        found = [row["check"] for row in self.rows if row["budget"] == budget and row.get("check")]
        names = ("n", "over", "orphan_results", "orphan_calls", "empty", "no_user")
        return {name: sum(check[name] for check in found) for name in names}


def variants(report: dict) -> list[Variant]:
    return [
        Variant(peer["peer"], name, [row for row in peer["rows"] if row["variant"] == name])
        for peer in report["peers"]
        for name in dict.fromkeys(row["variant"] for row in peer["rows"])
    ]


HEAD = ("variant", *(f"{size:,}" for size in SIZES), "largest / smallest", "peer / Recto", "bad prompts", "durable")


def lines(report: dict, budget: int) -> list[tuple[str, ...]]:
    """One line for each variant, Recto first."""
    everyone = variants(report)
    recto = next((each for each in everyone if each.peer == RECTO.env), None)
    return [
        (
            each.name,
            *(told(each.cell(budget, size)) for size in SIZES),
            number(each.growth(budget)),
            ratio(each, recto, budget),
            wrongs(each.checks(budget)),
            next((row["durable"] for row in each.rows if "durable" in row), ""),
        )
        for each in everyone
        if any(row.get("n") and row["budget"] == budget for row in each.rows)
    ]


def told(cell: dict) -> str:
    """Milliseconds of a cell, or why there are none."""
    if cell.get("turns"):
        return number(cell["p50"]) + ("" if cell["turns"] >= 50 else f" ({cell['turns']})")
    if cell.get("cold"):
        return f"{number(cell['cold'])} (first)"
    if "killed_s" in cell:
        return f"over {cell['killed_s']} s"
    return "failed" if cell.get("error") else "too slow" if cell.get("skipped") else ""


def ratio(each: Variant, recto: Variant | None, budget: int) -> str:
    """Against Recto's default, at the largest session that both were measured at."""
    if recto is None or each is recto:
        return ""
    for size in reversed(SIZES):
        theirs, ours = each.time(budget, size), recto.time(budget, size)
        if theirs and ours:
            return f"{number(theirs / ours)} at {size:,}"
    return ""


def wrongs(checks: dict[str, int]) -> str:
    """How many of the prompts that were looked at are wrong, and how."""
    if not checks["n"]:
        return ""
    words = {"over": "over", "orphan_results": "result alone", "orphan_calls": "call alone", "no_user": "no user"}
    said = ", ".join(f"{checks[name]} {word}" for name, word in words.items() if checks[name])
    return f"{said or 'none'} of {checks['n']}"


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1g}" if value < 0.01 else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def failures(report: dict) -> Iterable[str]:
    for peer in report["peers"]:
        if peer["error"]:
            yield f"{peer['peer']}: {peer['error']}"
    yield from peers_page.failures(report["real"])


def draw(report: dict) -> None:
    console = Console()
    for budget in BUDGETS:
        table = Table(title=f"budget {budget:,} tokens: ms per turn by messages in the session", title_justify="left")
        for place, name in enumerate(HEAD):
            table.add_column(name, justify="right" if 0 < place <= len(SIZES) + 2 else "left")
        for line in lines(report, budget):
            table.add_row(*line)
        console.print(table)
    draw_real(report["real"], console)
    for failure in failures(report):
        print(failure)


def draw_real(report: dict, console: Console) -> None:
    for budget in peers_real.BUDGETS:
        rows = peers_page.rows_at(report, budget)
        for head, of in ((peers_page.HEAD, peers_page.line), (peers_page.BACK, peers_page.back_line)):
            table = Table(title=f"budget {budget:,} tokens, real sessions", title_justify="left")
            for name in head:
                table.add_column(name)
            for row in rows:
                table.add_row(*of(row))
            console.print(table)
        for said in peers_page.verdict(rows):
            console.print(said, markup=False)


def page(report: dict) -> str:
    about = report["machine"]
    text = [
        "# Beside the peers",
        "",
        "Written by `make bench-peers-docs`, never edited by hand. Milliseconds per turn: an exchange is appended and",
        "the prompt is built; no model is called. All peers run on the same corpus, with the same driver, in one run.",
        "Recto stores every message durably before it answers; the last column shows which peers do. It also indexes",
        "messages and searches them at every turn of the user, which no peer here does; `recto-no-recall` runs",
        "without that.",
        "",
        "Peers that write to disk are timed by the clock while a median turn takes less than 25 ms, so that the disk",
        "counts; other work on the machine counts too. All others are timed by CPU time.",
        "",
        "Figures are medians. `(n)`: only n turns fitted into the time of a cell. `(first)`: the first turn. `too",
        "slow`: not tried, because a smaller session already took too long. *largest / smallest*: how much slower the",
        "largest session is than the smallest. *peer / Recto*: compared with Recto's default at the largest session",
        "that both were measured at. *bad prompts*: over the budget by exact count, a tool result without its call, a",
        "call without its result, or no user message.",
        "",
        f"{about['cores']} cores, Python {about['python']}, {about['system']}, {report['at']}.",
    ]
    for budget in BUDGETS:
        text += ["", f"## Budget of {budget:,} tokens", "", f"| {' | '.join(HEAD)} |"]
        text += [f"|---|{'--:|' * (len(SIZES) + 2)}---|---|"]
        text += [f"| {' | '.join(line)} |" for line in lines(report, budget)]
    text += peers_page.page(report["real"])
    text += ["", "## Versions", ""]
    text += [
        f"- {', '.join(f'{name} {version}' for name, version in peer['versions'].items())}"
        for peer in report["peers"]
        if peer["versions"]
    ]
    failed = list(failures(report))
    text += ["", "## Not measured", "", *(f"- {failure}" for failure in failed)] if failed else []
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    main()
