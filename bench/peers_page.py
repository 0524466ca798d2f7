"""Renders the results of `bench.peers_real` as tables, pictures and text; every figure and verdict comes from them.

Peers that are better than Recto are named together with their flaws. The reason is known for some of the measures, and
is given only where Recto is not first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from bench import peers_sessions
from bench.peer_judging import WRONG
from bench.peer_means import MOST
from bench.peers_real import BUDGETS
from bench.plots import Bar, Mark, Row, bars
from bench.prefix import MODEL

OURS = ("recto-sliding_window", "recto-no-recall", "recto-zones")
"""Recto's default, which is the one that is compared, and other ways to use it."""
PICTURES = Path("docs/pictures")
SECTION = "Beside the peers"
WIDTH = 118
WHY = {
    "growth": "At every turn of the user Recto searches the whole transcript.",
    "dollars": "The cheaper ones send less, or evict so much at once that the prefix changes less often. Their "
    "summaries are a short fixed text here, which costs nothing to write.",
    "milliseconds": "Recto syncs every message to disk and indexes it before it answers, and searches at every turn of "
    "the user.",
}
"""By measure: what makes the difference."""
NAMED = 3
"""Rows that are named as better, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Something that rows can be put in order by."""

    name: str
    title: str
    of: Callable[[dict], float | None]
    said: Callable[[dict], str]
    most_is_best: bool = False
    logarithmic: bool = False

    def place(self, row: dict) -> float:
        """The smaller, the better; whoever has no figure is last."""
        value = self.of(row)
        return float("inf") if value is None else -value if self.most_is_best else value


def reached(row: dict) -> float | None:
    return of_needed(row, "reached")


def present(row: dict) -> float | None:
    return of_needed(row, "whole")


def of_needed(row: dict, name: str) -> float | None:
    """Of the evidence and the files together."""
    needed = row["files"]["messages"] + row["questions"]["messages"]
    return (row["files"][name] + row["questions"][name]) / needed if needed else None


def held(row: dict) -> float:
    return row["held"] / max(row["said"], 1)


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def share_of(needed: dict, name: str) -> str:
    return percent(needed[name] / needed["messages"]) if needed["messages"] else ""


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def milliseconds(value: float) -> str:
    return f"{value:.1g}" if value < 0.01 else f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def dollars(row: dict) -> str:
    return f"{row['picodollars'] / 1e12:.2f}"


MEASURES = (
    Measure(
        name="validity",
        title="Prompts that a provider would refuse",
        of=lambda row: row["wrong"].get("unsound", 0) / row["calls"],
        said=lambda row: percent(row["wrong"].get("unsound", 0) / row["calls"]),
    ),
    Measure(
        name="budget",
        title="Prompts over the budget, counted exactly",
        of=lambda row: row["wrong"].get("over", 0) / row["calls"],
        said=lambda row: percent(row["wrong"].get("over", 0) / row["calls"]),
    ),
    Measure(
        name="presence",
        title="What was needed and is in the prompt, bad prompts included",
        of=present,
        said=lambda row: percent(present(row)),
        most_is_best=True,
    ),
    Measure(
        name="recoverability",
        title="What was needed: in a prompt that can be sent, or found by the peer's own search",
        of=reached,
        said=lambda row: percent(reached(row)),
        most_is_best=True,
    ),
    Measure(
        name="exactness",
        title="What can be read back exactly",
        of=held,
        said=lambda row: percent(held(row)),
        most_is_best=True,
    ),
    Measure(
        name="growth",
        title="How much slower turns become once the window is full",
        of=lambda row: row["growth_when_full"],
        said=lambda row: times(row["growth_when_full"]),
        logarithmic=True,
    ),
    Measure(
        name="dollars",
        title="Dollars for the input, at cache prices",
        of=lambda row: row["picodollars"] / 1e12,
        said=dollars,
    ),
    Measure(
        name="milliseconds",
        title="Milliseconds per turn, median",
        of=lambda row: row["p50"],
        said=lambda row: milliseconds(row["p50"]),
        logarithmic=True,
    ),
)
HEAD = (
    "variant",
    "ms p50",
    "ms p99",
    "growth",
    "growth when full",
    "unchanged prefix",
    "M tokens sent",
    "dollars",
    "bad prompts",
)
BACK = (
    "variant",
    "evidence in the prompt",
    "its lines",
    "reached",
    "reading on",
    "files in the prompt",
    "reached",
    "reading on",
    "read back exactly",
    "from",
    "own search",
    "durable",
)
SUMMARY = (
    "variant",
    "refused or invalid",
    "over budget",
    "needed, in the prompt",
    "needed, reached",
    "exactly back",
    "growth",
    "dollars",
    "ms p50",
)


def rows_at(report: dict, budget: int) -> list[dict]:
    return [row for row in report["rows"] if row.get("budget") == budget]


def line(row: dict) -> tuple[str, ...]:
    return (
        row["variant"],
        milliseconds(row["p50"]),
        milliseconds(row["p99"]),
        times(row["growth"]),
        times(row["growth_when_full"]),
        percent(row["unchanged"] / max(row["tokens"], 1)),
        f"{row['tokens'] / 1e6:.1f}",
        dollars(row),
        wrongs(row),
    )


def back_line(row: dict) -> tuple[str, ...]:
    asked, files = row["questions"], row["files"]
    return (
        row["variant"],
        share_of(asked, "whole"),
        share_of(asked, "lines"),
        share_of(asked, "reached"),
        share_of(asked, "read_on"),
        share_of(files, "whole"),
        share_of(files, "reached"),
        share_of(files, "read_on"),
        percent(held(row)),
        row["by"],
        row["search"] or "none",
        row["durable"],
    )


def summary_line(row: dict) -> tuple[str, ...]:
    return (row["variant"], *(measure.said(row) for measure in MEASURES))


def wrongs(row: dict) -> str:
    """How many prompts are bad, and in which ways; one may be bad in several."""
    kinds = ", ".join(f"{row['wrong'][name]} {word}" for name, word in WRONG.items() if row["wrong"].get(name))
    bad = row["wrong"].get("bad", 0)
    return f"{bad} of {row['calls']:,}: {kinds}" if bad else f"none of {row['calls']:,}"


def failures(report: dict) -> list[str]:
    return [f"{row['variant']}, real sessions: {row['error']}" for row in report["rows"] if "error" in row]


def verdict(rows: Sequence[dict]) -> list[str]:
    """Where Recto's default is first and where it is not, with those who are better and what is wrong with them."""
    ours = next((row for row in rows if row["variant"] == OURS[0]), None)
    if ours is None:
        return []
    others = [row for row in rows if row["variant"] not in OURS]
    without = next((row for row in rows if row["variant"] == OURS[1]), None)
    first, behind = [], []
    for measure in MEASURES:
        better = [row for row in others if measure.place(row) < measure.place(ours)]
        if better:
            behind.append(lost(measure, ours, without, sorted(better, key=measure.place)))
        else:
            alone = all(measure.place(row) > measure.place(ours) for row in others)
            first.append(f"{measure.name} ({measure.said(ours)}{'' if alone else ', with others'})")
    said = [f"First of {len(others) + 1} on: {', '.join(first) or 'nothing'}."]
    return [*said, "", *(f"- {each}" for each in behind)] if behind else said


def lost(measure: Measure, ours: dict, without: dict | None, better: Sequence[dict]) -> str:
    """What is lost and to whom, which of the better ones made no bad prompt, and why it is so where that is known."""
    names = [f"{row['variant']} {measure.said(row)} ({flaw(row)})" for row in better[:NAMED]]
    more = f" and {len(better) - NAMED} more" if len(better) > NAMED else ""
    sound = [row["variant"] for row in better if not row["wrong"].get("bad")]
    rest = f"Without a bad prompt among them: {', '.join(sound)}." if sound else "Each of them made bad prompts."
    place = f"{measure.said(ours)}{f' ({measure.said(without)} without recall)' if without else ''}"
    said = f"Not first on **{measure.name}**: {place}, better are {', '.join(names)}{more}. {rest}"
    return f"{said} {WHY[measure.name]}" if measure.name in WHY else said


def flaw(row: dict) -> str:
    bad = row["wrong"].get("bad", 0)
    return f"{percent(bad / row['calls'])} of its prompts bad" if bad else "no bad prompt"


def pictures(report: dict) -> dict[str, str]:
    """By file name. Rows are in the order of the first budget, best first; a row is coloured by its prompts."""
    found = {}
    for measure in MEASURES:
        by_name = [{row["variant"]: row for row in rows_at(report, budget)} for budget in BUDGETS]
        order = sorted(by_name[0].values(), key=measure.place)
        rows = [
            Row(
                label=row["variant"],
                bars=[bar_of(measure, at.get(row["variant"])) for at in by_name],
                ours=row["variant"] in OURS,
            )
            for row in order
        ]
        best = "the most is best" if measure.most_is_best else "the least is best"
        scale = ", logarithmic" if measure.logarithmic else ""
        note = f"Real sessions; {best}{scale}. Blue: Recto. Grey: no bad prompts. Brown: some of its prompts are bad."
        panels = [f"{budget:,} tokens" for budget in BUDGETS]
        found[f"peers-{measure.name}.svg"] = bars(measure.title, note, panels, rows, logarithmic=measure.logarithmic)
    return found


def bar_of(measure: Measure, row: dict | None) -> Bar:
    if row is None or measure.of(row) is None:
        return Bar(value=None, text="not measured")
    mark: Mark = "ours" if row["variant"] in OURS else "flawed" if row["wrong"].get("bad") else "sound"
    return Bar(value=measure.of(row), text=measure.said(row), mark=mark)


def table(head: Sequence[str], lines: Iterable[Sequence[str]], words: Sequence[str]) -> list[str]:
    rule = "|".join("---" if name in words else "--:" for name in head)
    return [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(each)} |" for each in lines)]


def page(report: dict) -> list[str]:
    """The section of the page of the peers, or nothing where there were no sessions."""
    if not report["sessions"]:
        return []
    text = ["", "## Real sessions", "", *said_of(report)]
    for budget in BUDGETS:
        rows = rows_at(report, budget)
        text += ["", f"### Real sessions at a budget of {budget:,} tokens", "", *verdict(rows), ""]
        text += table(HEAD, map(line, rows), ("variant", "bad prompts"))
        text += ["", *table(BACK, map(back_line, rows), ("variant", "from", "own search", "durable"))]
    text += ["", "### Real sessions in pictures"]
    for measure in MEASURES:
        text += ["", f"![{measure.title}](pictures/peers-{measure.name}.svg)"]
    text += ["", "### Which sessions", ""]
    names = ("name", "kind", "messages", "calls", "tokens", "files", "questions", "evidence")
    cells = (
        [f"{each[name]:,}" if isinstance(each[name], int) else each[name] for name in names]
        for each in report["sessions"]
    )
    return text + table(names, cells, ("name", "kind"))


def said_of(report: dict) -> list[str]:
    """What was done and what the columns mean, a paragraph each."""
    calls = sum(each["calls"] for each in report["sessions"])
    paragraphs = (
        f"{len(report['sessions'])} real sessions with {calls:,} model calls, the same for all. At every call the "
        "peer's own context management builds the prompt. No model is called: summaries are a short fixed text, "
        "and the cost of writing them is not in the figures. Tokens are counted with o200k, contents only, "
        "without thinking. Where a peer is set in messages or items, it gets the budget divided by their mean "
        "size in these sessions. Recto runs as installed without extras: recall searches by words, not by "
        f"meaning. Measured {report['at']}.",
        "*ms*: one turn, which appends the new messages and builds the prompt. Several peers run at once, one per "
        "core, so compare times within this run only; they are taken as above. *growth*: the last tenth of a "
        "session's turns over the first tenth; *when full*: the same for the turns after the session outgrew the "
        "window. *unchanged prefix*: share of the tokens sent that begin the previous prompt unchanged. "
        f"*dollars*: what all prompts cost as input at the cache prices of {MODEL}. A peer that sends little pays "
        "little, so read the dollars beside the bad prompts. *bad prompts*: over the budget, a tool result "
        "without its call, a call without its result, no user message, an empty prompt, or an error. Some calls "
        "in these sessions never got a result; a peer that sends them unchanged has a *call alone*.",
        "*evidence*: the messages that answer a question, by the labels of the data sets, at the moment it is "
        "asked; *its lines*: the share of their lines that is in the prompt. *files*: when an agent returns to a "
        "file that it had read, the newest output of reading it, in the prompt that led there. *reached*: it is "
        f"in that prompt and the prompt is not bad, or it is among the first {MOST} hits of the peer's own search "
        "for the question or for the name of the file. *reading on*: the same with the neighbour on each side of "
        "a hit, such as a call with its result; Recto's pointers lead there. *read back exactly*: the share of "
        "all messages that the peer still has, character by character, and *from* where. The caller's own list "
        "does not count as a store: it is gone when the process ends. Headroom's own search is what the markers "
        "in its prompt lead to.",
        "Not run: search by meaning, which needs a model (LlamaIndex's vector memory, Letta's server, other "
        "memory services of ADK); the substring search in user messages of OpenAI Agents; Strands' offloading of "
        "tool results, which works only where Strands runs the tools; checkpointers and session files of "
        "frameworks whose scripts here keep a list.",
        f"The sessions: one in {peers_sessions.EVERY_AGENT} of the coding agents' sessions with "
        f"{peers_sessions.LONG:,} tokens or more, longest first; one in {peers_sessions.EVERY_TALK} of BEAM's "
        f"conversations; one in {peers_sessions.EVERY_CHAT} of LongMemEval's questions, with all chats of its "
        "haystack. Questions are asked one after the other at the end.",
    )
    return "\n\n".join(fill(paragraph, WIDTH, break_on_hyphens=False) for paragraph in paragraphs).splitlines()


def excerpt(report: dict, command: str) -> str:
    """The section of the page of benchmarks: one table and where the rest is."""
    budget = BUDGETS[0]
    rows = rows_at(report, budget)
    calls = sum(each["calls"] for each in report["sessions"])
    text = [
        f"By `{command}`: {len(report['sessions'])} real sessions, {calls:,} calls, a budget of {budget:,} tokens.",
        "What the columns mean, the other budget, pictures and synthetic sessions of up to 100,000 messages:",
        "[benchmarks-peers.md](benchmarks-peers.md).",
        "",
        *table(SUMMARY, map(summary_line, rows), ("variant",)),
        "",
        *verdict(rows),
    ]
    return "\n".join(text)


def renewed(benchmarks: str, section: str) -> str:
    """The page of benchmarks with this section in the place of the one it had, or at its end."""
    whole = f"## {SECTION}\n\n{section}\n"
    there = re.compile(rf"^## {SECTION}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    if there.search(benchmarks) is None:
        return f"{benchmarks.rstrip()}\n\n{whole}"
    return there.sub(lambda _: f"{whole}\n", benchmarks).rstrip() + "\n"
