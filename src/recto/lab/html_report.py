"""What a replay came to, as one page that needs nothing else: no script, no font, no picture from anywhere.

A pure function of the outcomes: the same ones give the same bytes. Names of files and settings come from outside, and
are text on the page whatever they hold.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib import resources
from itertools import groupby

from recto.lab import report as figures
from recto.lab.backtest import Backtest
from recto.lab.report import ReportMeasure, compact, money, percent, whole
from recto.lab.results import Curve, VariantOutcome, VariantSummary, best, dollars, standings, told
from recto.text.unicode import one_line
from recto.version import __version__

_LONGEST_NAME = 80
_ROW = 46
_BAR = 15
_WIDE, _HIGH = 1000.0, 100.0
"""The units of a curve's drawing; it is stretched to whatever room there is."""
_ABOVE = 1.12
"""How far above the ceiling a curve's drawing goes, and below how far where prompts go over it."""
_FAR_ABOVE = 1.6


def text(given: str, longest: int = _LONGEST_NAME) -> str:
    """A text as it may stand on a page, in an element or an attribute: one line, nothing hidden, nothing obeyed."""
    return escape(one_line(given, longest), quote=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar."""

    value: float
    kind: str
    """The class it is drawn in."""
    says: str
    """What it is, for who points at it or cannot see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row: a name, what it comes to, and its parts."""

    name: str
    says: str
    segments: Sequence[Segment]


def bars(title: str, rows: Sequence[Bar], *, full: float | None = None) -> str:
    """Bars below each other, as wide as there is room; `full` is what the whole width stands for."""
    whole = full or max((sum(part.value for part in row.segments) for row in rows), default=0) or 1
    drawn = "".join(_bar(row, place * _ROW, whole) for place, row in enumerate(rows))
    told = "; ".join(f"{row.name}: {row.says}" for row in rows)
    return (
        f'<svg class="bars" role="img" width="100%" height="{_ROW * len(rows)}" aria-label="{text(title)}">'
        f"<title>{text(title)}</title><desc>{text(told, 2_000)}</desc>{drawn}</svg>"
    )


def _bar(row: Bar, top: int, whole: float) -> str:
    parts = [f'<rect class="track" x="0" y="{top + 21}" width="100%" height="{_BAR}" rx="3"/>']
    at = 0.0
    for part in (part for part in row.segments if part.value > 0):
        width = 100 * part.value / whole
        parts.append(
            f'<rect class="{part.kind}" x="{at:.3f}%" y="{top + 21}" width="{width:.3f}%" height="{_BAR}" rx="2">'
            f"<title>{text(f'{row.name}: {part.says}')}</title></rect>"
        )
        at += width
    name = f'<text class="name" x="0" y="{top + 14}">{text(row.name, 34)}</text>'
    says = f'<text class="says" x="100%" y="{top + 14}" text-anchor="end">{text(row.says)}</text>'
    return name + says + "".join(parts)


def legend(kinds: Sequence[tuple[str, str]]) -> str:
    """What each class stands for."""
    items = "".join(f'<li><span class="swatch {kind}"></span>{text(name)}</li>' for kind, name in kinds)
    return f'<ul class="legend">{items}</ul>'


def curve(name: str, one: Curve, top: float) -> str:
    """The sizes of a session's prompts, with the ceiling; what goes over it in a colour of its own."""
    points = [(at, size) for at, size in enumerate(one.tokens) if size is not None]
    steps = max(len(one.tokens) - 1, 1)

    def placed(size: float) -> float:
        return _HIGH * (1 - min(size, top) / top)

    line = [(_WIDE * at / steps, placed(min(size, one.room))) for at, size in points]
    over = [(_WIDE * at / steps, placed(max(size, one.room))) for at, size in points]
    ceiling = placed(one.room)
    drawn = _area("within", line, _HIGH) + _line("within", line)
    if any(size > one.room for _, size in points):
        drawn += _area("beyond", over, ceiling)
    drawn += f'<line class="ceiling" x1="0" x2="{_WIDE:.0f}" y1="{ceiling:.2f}" y2="{ceiling:.2f}"/>'
    says = f"largest {compact(one.largest)} of {compact(one.room)}"
    title = f"{name}: prompt size over {one.turns:,} turns, {says}"
    return (
        f'<figure class="curve"><figcaption><span class="name">{text(name, 34)}</span>'
        f'<span class="says">{text(says)}</span></figcaption>'
        f'<svg role="img" viewBox="0 0 {_WIDE:.0f} {_HIGH:.0f}" preserveAspectRatio="none"'
        f' aria-label="{text(title, 200)}">'
        f"<title>{text(title, 200)}</title>{drawn}</svg></figure>"
    )


def height_of(curves: Sequence[Curve]) -> float:
    """How many tokens the height of curves beside each other stands for; what goes far beyond is cut off."""
    room = max(one.room for one in curves)
    largest = max(one.largest for one in curves)
    return float(min(max(largest * 1.05, room * _ABOVE), room * _FAR_ABOVE))


def _area(kind: str, points: Sequence[tuple[float, float]], floor: float) -> str:
    """What is between a floor and a line."""
    if not points:
        return ""
    first, last = _spread(points)[0][0], _spread(points)[-1][0]
    return f'<polygon class="{kind}" points="{first:.1f},{floor:.2f} {_listed(points)} {last:.1f},{floor:.2f}"/>'


def _line(kind: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="{kind}" points="{_listed(points)}"/>' if points else ""


def _listed(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.2f}" for x, y in _spread(points))


def _spread(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """A single turn is as wide as the drawing."""
    return points if len(points) > 1 else [(0.0, points[0][1]), (_WIDE, points[0][1])]


DOCTYPE = "<!doctype html>"
"""How a page begins."""
_GLANCE = (
    figures.OVER,
    figures.REFUSED,
    figures.TOKENS,
    figures.DOLLARS,
    figures.SHARE,
    figures.DECISIONS,
    figures.REGRET,
    figures.MISSED,
    figures.SURVIVAL,
)
_SENT = (figures.TOKENS, figures.CACHE_READ, figures.CACHE_WRITE, figures.DOLLARS, figures.LARGEST)
_STEADY = (figures.SHARE, figures.BREAKS, figures.DECISIONS, figures.TURNS)
_NEEDED = (
    figures.FETCHED,
    figures.FETCHED_MET,
    figures.REFERRED,
    figures.REFERRED_MET,
    figures.REGRET,
    figures.MISSED,
    figures.REGRET_RATE,
)
_SURVIVED = (figures.USED, figures.THERE, figures.SURVIVAL)
_EACH = (figures.TURNS, figures.OVER, figures.REFUSED, figures.TOKENS, figures.DOLLARS, figures.SHARE, figures.MISSED)
_MOST_ROWS = 2_000
"""Rows of single files on the page: more would make it slow."""
_FACTS = (
    ("cheapest, in dollars", figures.DOLLARS, False),
    ("fewest tokens sent", figures.TOKENS, False),
    ("steadiest, by tokens unchanged", figures.SHARE, True),
    ("fewest needs missed", figures.MISSED, False),
)
_WORDS = {
    "Way": "a mode with its policy, or a baseline: “none” sends the whole history each time, “trim” leaves out the "
    "oldest messages until the rest fits.",
    "Over, refused": "prompts that were longer than the window allows, and turns for which what must not leave did "
    "not fit, so that there was an error instead of a prompt.",
    "Unchanged": "the share of all tokens that stood at the beginning of a prompt exactly as in the prompt before. "
    "A provider's cache can serve these. A break is a prompt that changed something of the one before.",
    "Fetched again": "tool calls of the recording that asked for what an earlier call had brought, when its result no "
    "longer stood whole in the prompt. Met: the result was in the prompt all the same, because it was recalled.",
    "Referred": "names, paths, numbers and the like that an answer or a question took from messages that had left. "
    "Met: recalled, in a summary, in a handoff, or in what stands in place of a shortened result.",
    "Missed": "regret that nothing in the prompt met. The recording cannot ask back, so every one of these is a need "
    "that the agent would have had to meet by asking again.",
    "Survival": "of the names and numbers that answers used and that were known from before, the share that stood "
    "somewhere in the prompt.",
}
_ICON = (
    '<svg viewBox="0 0 32 32" aria-hidden="true"><rect class="back" x="3" y="4" width="13" height="24" rx="2"/>'
    '<rect class="front" x="16" y="4" width="13" height="24" rx="2"/>'
    '<path class="lines" d="M19 10h7M19 15h7M19 20h4" stroke-width="2" stroke-linecap="round"/></svg>'
)


def page(outcomes: Sequence[VariantOutcome], *, files: int, asked: Mapping[str, str]) -> str:
    """The whole page. `asked` is what holds for every way, by name: the window, the model."""
    sums = standings(outcomes)
    style = resources.files("recto.lab").joinpath("html_report.css").read_text(encoding="utf-8")
    allowed = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    title = (
        f"Replay: {files:,} {'file' if files == 1 else 'files'} in {len(sums):,} {'way' if len(sums) == 1 else 'ways'}"
    )
    parts = (
        f'<header><p class="mark">{_ICON}Recto</p><h1>{text(title)}</h1>{_about(sums, asked)}</header>',
        _facts(sums),
        _section("At a glance", _against(sums), _table(sums, _GLANCE, changes=True)),
        _tokens(sums),
        _sizes(outcomes),
        _needs(sums),
        f'<div class="pair">{_survival(sums)}{_steadiness(sums)}</div>',
        _files(outcomes, files),
        _section("What the words mean", "", _words()),
        f"<footer>Made by <code>recto replay</code>, Recto {text(__version__)}. Nothing on this page runs or is "
        "fetched from anywhere.</footer>",
    )
    return (
        f'{DOCTYPE}\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{text(title)}</title><style>{style}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _about(sums: Sequence[VariantSummary], asked: Mapping[str, str]) -> str:
    turns = max((one.result.turns for one in sums), default=0)
    said = " · ".join([f"{turns:,} turns in each way", *(f"{name} {value}" for name, value in asked.items())])
    return f'<p class="about">{text(said, 400)}</p>'


def _section(title: str, lead: str, *parts: str) -> str:
    said = f'<p class="lead">{text(lead, 600)}</p>' if lead else ""
    return f"<section><h2>{text(title)}</h2>{said}{''.join(parts)}</section>"


def _facts(sums: Sequence[VariantSummary]) -> str:
    """Which way is best in what; ways that went over the window are not asked."""
    fitting = [one for one in sums if not one.result.over]
    found = []
    for name, measure, most in _FACTS:
        one = best(fitting, measure.name, most=most)
        if one is not None:
            value = measure.text(told(one.result))
            found.append(
                f'<div><dt>{text(name)}</dt><dd class="value">{text(value)}</dd><dd>{text(one.way.name)}</dd></div>'
            )
    return f'<dl class="facts">{"".join(found)}</dl>' if found else ""


def _against(sums: Sequence[VariantSummary]) -> str:
    baseline = next((one.way.name for one in sums if one.way.is_baseline), None)
    return "" if baseline is None else f"Below each figure: the difference to “{baseline}”."


def _table(sums: Sequence[VariantSummary], measures: Sequence[ReportMeasure], *, changes: bool = False) -> str:
    heads = "".join(f'<th scope="col">{text(measure.title)}</th>' for measure in measures)
    rows = "".join(
        f'<tr><th scope="row">{_breakable(one.way.name)}</th>'
        + "".join(_cell(measure, one.result, one.against if changes else None) for measure in measures)
        + "</tr>"
        for one in sums
    )
    return (
        f'<div class="scroll"><table><thead><tr><th scope="col">way</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _breakable(name: str) -> str:
    """A name that may go on in the next line where people would break it."""
    return text(name).replace("_", "_<wbr>").replace("-", "-<wbr>")


def _cell(measure: ReportMeasure, result: Backtest, against: Backtest | None) -> str:
    mine = told(result)
    value = text(measure.text(mine))
    if measure.name in ("over", "refused") and mine[measure.name]:
        value = f'<span class="alarming">{value}</span>'
    if against is None:
        return f"<td>{value}</td>"
    theirs = told(against)
    kind = {True: "good", False: "bad", None: "same"}[measure.is_better(mine, theirs)]
    return f'<td>{value}<small class="{kind}">{text(measure.change(mine, theirs))}</small></td>'


def _as_table(inside: str) -> str:
    return f"<details><summary>As a table</summary>{inside}</details>"


def _tokens(sums: Sequence[VariantSummary]) -> str:
    sent = [
        Bar(
            name=one.way.name,
            says=compact(one.result.tokens),
            segments=[
                Segment(value=tokens, kind=kind, says=f"{whole(tokens)} {name}")
                for kind, name, tokens in (
                    ("cached", "read from the cache", one.result.cache_read),
                    ("written", "written to the cache", one.result.cache_write),
                    ("plain", "plain input", one.result.tokens - one.result.cache_read - one.result.cache_write),
                )
            ],
        )
        for one in sums
    ]
    kinds = (("cached", "read from the cache"), ("written", "written to the cache"), ("plain", "plain input"))
    named = legend(_drawn(kinds, sent))
    return _section(
        "Tokens and dollars",
        "All prompts together, with unchanged beginnings served by the provider's cache. Answers are not counted: they "
        "are the recording's in every way.",
        f'<div class="plots"><div><h3>Tokens sent</h3>{bars("Tokens sent, by way", sent)}{named}</div>'
        f"<div><h3>Dollars</h3>{_dollars(sums)}</div></div>",
        _as_table(_table(sums, _SENT)),
    )


def _drawn(kinds: Sequence[tuple[str, str]], rows: Sequence[Bar]) -> list[tuple[str, str]]:
    """Those that are to be seen."""
    seen = {part.kind for row in rows for part in row.segments if part.value}
    return [one for one in kinds if one[0] in seen]


def _dollars(sums: Sequence[VariantSummary]) -> str:
    spent = [(one.way.name, dollars(one.result)) for one in sums]
    rows = [
        Bar(
            name=name,
            says=money(value),
            segments=[Segment(value=value, kind="dollars", says=f"{money(value)} dollars")],
        )
        for name, value in spent
        if value is not None
    ]
    if len(rows) < len(spent):
        return (
            '<p class="lead">Prices are not known: name a model with <code>--model</code>; '
            "<code>recto models</code> lists those that have prices.</p>"
        )
    return bars("Dollars, by way", rows)


def _sizes(outcomes: Sequence[VariantOutcome]) -> str:
    """The longest sessions, each with every way beside the others and on one scale."""
    drawn = sorted((one for one in outcomes if one.curve is not None), key=lambda one: one.place)
    sessions = [list(group) for _, group in groupby(drawn, key=lambda one: one.place)]
    sessions.sort(key=lambda group: -max(one.curve.turns for one in group if one.curve))
    if not sessions:
        return ""
    named = legend([("within", "prompt"), ("ceiling", "what the window allows"), ("beyond", "over it")])
    return _section(
        "Prompt size over turns",
        "The longest sessions, from their first turn to their last. Where a curve falls, something left or was "
        "shortened.",
        named,
        *(_session(group) for group in sessions),
    )


def _session(group: Sequence[VariantOutcome]) -> str:
    curves = [(one.way.name, one.curve) for one in group if one.curve is not None]
    top = height_of([one for _, one in curves])
    drawn = "".join(curve(name, one, top) for name, one in curves)
    rows = "".join(
        f'<tr><th scope="row">{_breakable(name)}</th>'
        f"<td>{one.turns:,}</td><td>{whole(one.largest)}</td><td>{whole(one.room)}</td></tr>"
        for name, one in curves
    )
    table = (
        '<div class="scroll"><table><thead><tr><th scope="col">way</th><th scope="col">turns</th>'
        '<th scope="col">largest prompt</th><th scope="col">what the window allows</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    turns = max(one.turns for _, one in curves)
    return (
        f'<div class="session"><h3>{text(group[0].file)}</h3><p class="about">{turns:,} turns</p>'
        f'<div class="curves">{drawn}</div>{_as_table(table)}</div>'
    )


def _needs(sums: Sequence[VariantSummary]) -> str:
    rows = []
    for one in sums:
        result = one.result
        parts = (
            ("fetched", "fetched again, missed", result.fetched_again - result.fetched_met),
            ("fetched-met", "fetched again, met", result.fetched_met),
            ("referred", "referred to, missed", result.referred - result.referred_met),
            ("referred-met", "referred to, met", result.referred_met),
        )
        segments = [Segment(value=value, kind=kind, says=f"{whole(value)} {name}") for kind, name, value in parts]
        rows.append(Bar(name=one.way.name, says=f"{whole(result.missed)} missed", segments=segments))
    kinds = [
        ("fetched", "fetched again, missed"),
        ("fetched-met", "fetched again, met"),
        ("referred", "referred to, missed"),
        ("referred-met", "referred to, met"),
    ]
    return _section(
        "Regret, and what met it",
        "What turns of the recording needed after it had left the prompt or was shortened. Pale: it stood in the "
        "prompt all the same, recalled or in a summary.",
        f'<div class="plots"><div>{bars("Regret by kind, by way", rows)}{legend(_drawn(kinds, rows))}</div></div>',
        _as_table(_table(sums, _NEEDED)),
    )


def _survival(sums: Sequence[VariantSummary]) -> str:
    rows = [
        Bar(
            name=one.way.name,
            says=percent(one.result.survival),
            segments=[
                Segment(value=one.result.survival, kind="there", says=f"{percent(one.result.survival)} still there")
            ],
        )
        for one in sums
    ]
    return _section(
        "Entity survival",
        "Names, paths and numbers that answers used and that were known from before: how many of them stood somewhere "
        "in the prompt.",
        f'<div class="plots"><div>{bars("Entity survival, by way", rows, full=1.0)}</div></div>',
        _as_table(_table(sums, _SURVIVED)),
    )


def _steadiness(sums: Sequence[VariantSummary]) -> str:
    rows = [
        Bar(
            name=one.way.name,
            says=f"{percent(one.result.share)}, {whole(one.result.breaks)} breaks",
            segments=[Segment(value=one.result.share, kind="unchanged", says=f"{percent(one.result.share)} unchanged")],
        )
        for one in sums
    ]
    return _section(
        "Prefix stability",
        "The share of all tokens that stood unchanged at the beginning of a prompt: a provider's cache can serve them.",
        f'<div class="plots"><div>{bars("Unchanged tokens, by way", rows, full=1.0)}</div></div>',
        _as_table(_table(sums, _STEADY)),
    )


def _files(outcomes: Sequence[VariantOutcome], files: int) -> str:
    if files < 2:
        return ""
    heads = "".join(f'<th scope="col">{text(measure.title)}</th>' for measure in _EACH)
    rows = "".join(
        f'<tr><th scope="row">{_breakable(one.file)}</th><td class="words">{text(one.way.name)}</td>'
        + "".join(_cell(measure, one.result, None) for measure in _EACH)
        + "</tr>"
        for one in outcomes[:_MOST_ROWS]
    )
    table = (
        f'<div class="scroll"><table><thead><tr><th scope="col">file</th><th scope="col">way</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    more = len(outcomes) - _MOST_ROWS
    lead = f"The first {_MOST_ROWS:,} rows; {more:,} more are in the JSON." if more > 0 else ""
    return _section("Each file", lead, f"<details><summary>{files:,} files</summary>{table}</details>")


def _words() -> str:
    told_of = "".join(f"<div><dt>{text(word)}</dt><dd>{text(means, 600)}</dd></div>" for word, means in _WORDS.items())
    return f'<dl class="words-list">{told_of}</dl>'
