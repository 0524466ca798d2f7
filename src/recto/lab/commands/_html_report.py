"""Renders a replay as one self-contained HTML page, with inline SVG and without scripts or external resources.

A pure function of the outcomes: the same outcomes give the same bytes. File names and settings are untrusted and always
escaped.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib import resources
from itertools import groupby
from math import isfinite

from recto.lab import report as figures
from recto.lab.backtest import Backtest
from recto.lab.report import ReportMeasure, full_number, money, percent, short_number
from recto.lab.results import Curve, VariantOutcome, VariantSummary, best, dollars, measures_of, summarize
from recto.text.unicode import one_line
from recto.version import __version__

_LONGEST_NAME = 80
_ROW = 46
_BAR = 15
_WIDTH, _HEIGHT = 1000.0, 100.0
"""View box of a curve, which is stretched to the available space."""
_HEADROOM = 1.12
"""Height of a curve's plot relative to the input budget, and below the most when prompts exceed it."""
_MAX_HEADROOM = 1.6


def html_text(value: str, longest: int = _LONGEST_NAME) -> str:
    """Escapes a text for an element or attribute: one line, no control characters."""
    return escape(one_line(value, longest), quote=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar."""

    value: float
    kind: str
    """Its CSS class."""
    label: str
    """Tooltip and text for screen readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A row: name, label and segments."""

    name: str
    label: str
    segments: Sequence[Segment]


def bars(title: str, rows: Sequence[Bar], *, full: float | None = None) -> str:
    """Renders horizontal bars; `full` is the value of the full width, by default the largest bar."""
    total = full or max((sum(part.value for part in row.segments) for row in rows), default=0) or 1
    rendered = "".join(_bar(row, place * _ROW, total) for place, row in enumerate(rows))
    description = "; ".join(f"{row.name}: {row.label}" for row in rows)
    return (
        f'<svg class="bars" role="img" width="100%" height="{_ROW * len(rows)}" aria-label="{html_text(title)}">'
        f"<title>{html_text(title)}</title><desc>{html_text(description, 2_000)}</desc>{rendered}</svg>"
    )


def _bar(row: Bar, top: int, total: float) -> str:
    parts = [f'<rect class="track" x="0" y="{top + 21}" width="100%" height="{_BAR}" rx="3"/>']
    x = 0.0
    for part in (part for part in row.segments if part.value > 0):
        width = 100 * part.value / total
        parts.append(
            f'<rect class="{part.kind}" x="{x:.3f}%" y="{top + 21}" width="{width:.3f}%" height="{_BAR}" rx="2">'
            f"<title>{html_text(f'{row.name}: {part.label}')}</title></rect>"
        )
        x += width
    name = f'<text class="name" x="0" y="{top + 14}">{html_text(row.name, 34)}</text>'
    label = f'<text class="says" x="100%" y="{top + 14}" text-anchor="end">{html_text(row.label)}</text>'
    return name + label + "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalRow:
    """A row: name, label, and a value with its interval."""

    name: str
    label: str
    value: float
    low: float
    high: float


def intervals(title: str, rows: Sequence[IntervalRow], *, margin: float = 0.0) -> str:
    """Renders values with their intervals on one scale, with lines at 0 and at the margin on both sides."""
    known = [end for row in rows for end in (row.low, row.high, row.value) if isfinite(end)]
    reach = max([abs(end) for end in known] + [margin * 1.2]) or 1.0
    height = _ROW * len(rows)

    def x_of(value: float) -> float:
        return 50 + 50 * min(max(value / reach, -1.0), 1.0)

    scale = (("zero", 0.0), *((("margin", margin), ("margin", -margin)) if margin else ()))
    rendered = []
    for place, row in enumerate(rows):
        top, left, right = place * _ROW, x_of(row.low), x_of(row.high)
        rendered += [
            f'<line class="{kind}" x1="{x_of(at):.2f}%" x2="{x_of(at):.2f}%" y1="{top + 18}" y2="{top + 40}"/>'
            for kind, at in scale
        ]
        rendered.append(
            f'<text class="name" x="0" y="{top + 14}">{html_text(row.name, 34)}</text>'
            f'<text class="says" x="100%" y="{top + 14}" text-anchor="end">{html_text(row.label)}</text>'
            f'<rect class="spread" x="{left:.2f}%" y="{top + 26}" width="{max(right - left, 0.2):.2f}%" height="5">'
            f"<title>{html_text(f'{row.name}: {row.label}')}</title></rect>"
            f'<rect class="unchanged" x="{x_of(row.value) - 0.4:.2f}%" y="{top + 21}" width="0.8%" height="{_BAR}"/>'
        )
    description = "; ".join(f"{row.name}: {row.label}" for row in rows)
    return (
        f'<svg class="bars" role="img" width="100%" height="{height}" aria-label="{html_text(title)}">'
        f"<title>{html_text(title)}</title><desc>{html_text(description, 2_000)}</desc>{''.join(rendered)}</svg>"
    )


def legend(kinds: Sequence[tuple[str, str]]) -> str:
    """Renders the legend of the CSS classes."""
    items = "".join(f'<li><span class="swatch {kind}"></span>{html_text(name)}</li>' for kind, name in kinds)
    return f'<ul class="legend">{items}</ul>'


def curve(name: str, data: Curve, max_tokens: float) -> str:
    """Renders the prompt sizes of a session and the input budget; what exceeds it has its own colour."""
    points = [(at, size) for at, size in enumerate(data.tokens) if size is not None]
    steps = max(len(data.tokens) - 1, 1)

    def y_of(size: float) -> float:
        return _HEIGHT * (1 - min(size, max_tokens) / max_tokens)

    line = [(_WIDTH * at / steps, y_of(min(size, data.input_budget))) for at, size in points]
    over = [(_WIDTH * at / steps, y_of(max(size, data.input_budget))) for at, size in points]
    ceiling = y_of(data.input_budget)
    shapes = _area("within", line, _HEIGHT) + _line("within", line)
    if any(size > data.input_budget for _, size in points):
        shapes += _area("beyond", over, ceiling)
    shapes += f'<line class="ceiling" x1="0" x2="{_WIDTH:.0f}" y1="{ceiling:.2f}" y2="{ceiling:.2f}"/>'
    label = f"largest {short_number(data.largest)} of {short_number(data.input_budget)}"
    title = f"{name}: prompt size over {data.turns:,} turns, {label}"
    return (
        f'<figure class="curve"><figcaption><span class="name">{html_text(name, 34)}</span>'
        f'<span class="says">{html_text(label)}</span></figcaption>'
        f'<svg role="img" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" preserveAspectRatio="none"'
        f' aria-label="{html_text(title, 200)}">'
        f"<title>{html_text(title, 200)}</title>{shapes}</svg></figure>"
    )


def scale_top(curves: Sequence[Curve]) -> float:
    """Returns the number of tokens at the top of plots side by side; larger prompts are cut off."""
    input_budget = max(data.input_budget for data in curves)
    largest = max(data.largest for data in curves)
    return float(min(max(largest * 1.05, input_budget * _HEADROOM), input_budget * _MAX_HEADROOM))


def _area(kind: str, points: Sequence[tuple[float, float]], floor: float) -> str:
    """Renders the area between a line and a floor."""
    if not points:
        return ""
    first, last = _spread(points)[0][0], _spread(points)[-1][0]
    return f'<polygon class="{kind}" points="{first:.1f},{floor:.2f} {_coordinates(points)} {last:.1f},{floor:.2f}"/>'


def _line(kind: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="{kind}" points="{_coordinates(points)}"/>' if points else ""


def _coordinates(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.2f}" for x, y in _spread(points))


def _spread(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Stretches a single turn over the full width."""
    return points if len(points) > 1 else [(0.0, points[0][1]), (_WIDTH, points[0][1])]


DOCTYPE = "<!doctype html>"
"""The first line of every page."""
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
"""Rows of single files on the page; more would make it slow."""
_FACTS = (
    ("cheapest, in dollars", figures.DOLLARS, False),
    ("fewest tokens sent", figures.TOKENS, False),
    ("steadiest, by tokens unchanged", figures.SHARE, True),
    ("fewest needs missed", figures.MISSED, False),
)
_GLOSSARY = {
    "Way": "a mode with its policy, or a baseline: “none” sends the whole history each time, “trim” leaves out the "
    "oldest messages until the rest fits.",
    "Over, refused": "prompts that were longer than the window allows, and turns for which what must not leave did "
    "not fit, so that there was an error instead of a prompt.",
    "Unchanged": "the share of all tokens that stood at the beginning of a prompt exactly as in the prompt before. "
    "A provider's cache can serve these. A break is a prompt that changed something of the one before.",
    "Fetched again": "tool calls of the recording that asked for what an earlier call had brought, when its result no "
    "longer stood whole in the prompt. Met: the result was in the prompt all the same, because it was recalled.",
    "Referred": "names, paths, numbers and the like that an answer or a question took from messages that had left. "
    "Met: recalled, in a summary, in a handoff, or in what replaces a trimmed result.",
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


def page(outcomes: Sequence[VariantOutcome], *, files: int, subtitle: Mapping[str, str]) -> str:
    """Renders the page. `subtitle` has the values that hold for every way, by name: the window, the model."""
    summaries = summarize(outcomes)
    ways = "way" if len(summaries) == 1 else "ways"
    title = f"Replay: {files:,} {'file' if files == 1 else 'files'} in {len(summaries):,} {ways}"
    parts = (
        _subtitle(summaries, subtitle),
        _facts(summaries),
        section("At a glance", _against(summaries), _table(summaries, _GLANCE, changes=True)),
        _tokens(summaries),
        _sizes(outcomes),
        _needs(summaries),
        f'<div class="pair">{_survival(summaries)}{_steadiness(summaries)}</div>',
        _files(outcomes, files),
        section("What the words mean", "", glossary(_GLOSSARY)),
    )
    return document(title, parts[0], parts[1:], command="recto lab replay")


def document(title: str, subtitle: str, parts: Iterable[str], *, command: str) -> str:
    """Renders a page around its parts. Its policy permits nothing but its own style."""
    style = resources.files(__package__).joinpath("html_report.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    header = f'<header><p class="mark">{_ICON}Recto</p><h1>{html_text(title)}</h1>{subtitle}</header>'
    footer = (
        f"<footer>Made by <code>{html_text(command)}</code>, Recto {html_text(__version__)}. Nothing on this page runs "
        "or is fetched from anywhere.</footer>"
    )
    return (
        f'{DOCTYPE}\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{html_text(title)}</title><style>{style}</style></head>"
        f"<body>{header}{''.join(parts)}{footer}</body></html>\n"
    )


def _subtitle(summaries: Sequence[VariantSummary], subtitle: Mapping[str, str]) -> str:
    turns = max((summary.result.turns for summary in summaries), default=0)
    line = " · ".join([f"{turns:,} turns in each way", *(f"{name} {value}" for name, value in subtitle.items())])
    return f'<p class="about">{html_text(line, 400)}</p>'


def section(title: str, lead: str, *parts: str) -> str:
    """Renders a part of a page under a heading."""
    paragraph = f'<p class="lead">{html_text(lead, 600)}</p>' if lead else ""
    return f"<section><h2>{html_text(title)}</h2>{paragraph}{''.join(parts)}</section>"


def _facts(summaries: Sequence[VariantSummary]) -> str:
    """Renders which way is best in what; ways that exceeded the window are excluded."""
    fitting = [summary for summary in summaries if not summary.result.over]
    facts = []
    for name, measure, most in _FACTS:
        winner = best(fitting, measure.name, highest=most)
        if winner is not None:
            value = measure.text(measures_of(winner.result))
            facts.append(
                f'<div><dt>{html_text(name)}</dt><dd class="value">{html_text(value)}</dd>'
                f"<dd>{html_text(winner.way.name)}</dd></div>"
            )
    return f'<dl class="facts">{"".join(facts)}</dl>' if facts else ""


def _against(summaries: Sequence[VariantSummary]) -> str:
    baseline = next((summary.way.name for summary in summaries if summary.way.is_baseline), None)
    return "" if baseline is None else f"Below each figure: the difference to “{baseline}”."


def _table(summaries: Sequence[VariantSummary], measures: Sequence[ReportMeasure], *, changes: bool = False) -> str:
    rows = (
        f'<th scope="row">{breakable(summary.way.name)}</th>'
        + "".join(_cell(measure, summary.result, summary.against if changes else None) for measure in measures)
        for summary in summaries
    )
    return html_table(["way", *(measure.title for measure in measures)], rows)


def html_table(titles: Iterable[str], rows: Iterable[str]) -> str:
    """Renders a table from escaped rows."""
    heads = "".join(f'<th scope="col">{html_text(title)}</th>' for title in titles)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def breakable(name: str) -> str:
    """Escapes a name and allows line breaks after its separators."""
    return html_text(name).replace("_", "_<wbr>").replace("-", "-<wbr>")


def _cell(measure: ReportMeasure, result: Backtest, against: Backtest | None) -> str:
    measures = measures_of(result)
    value = html_text(measure.text(measures))
    if measure.name in ("over", "refused") and measures[measure.name]:
        value = f'<span class="alarming">{value}</span>'
    if against is None:
        return f"<td>{value}</td>"
    baseline = measures_of(against)
    kind = {True: "good", False: "bad", None: "same"}[measure.is_better(measures, baseline)]
    return f'<td>{value}<small class="{kind}">{html_text(measure.change(measures, baseline))}</small></td>'


def as_table(inside: str) -> str:
    """Renders a table that opens on a click."""
    return f"<details><summary>As a table</summary>{inside}</details>"


def _parts_bar(name: str, label: str, parts: Iterable[tuple[str, str, int]]) -> Bar:
    """Creates a bar of CSS classes, names and counts."""
    segments = [Segment(value=value, kind=kind, label=f"{full_number(value)} {part}") for kind, part, value in parts]
    return Bar(name=name, label=label, segments=segments)


def _parts_plot(title: str, rows: Sequence[Bar], kinds: Sequence[tuple[str, str]]) -> str:
    """Renders bars, with a legend of the classes that are visible in them."""
    visible = {part.kind for row in rows for part in row.segments if part.value}
    return bars(title, rows) + legend([kind for kind in kinds if kind[0] in visible])


def _tokens(summaries: Sequence[VariantSummary]) -> str:
    kinds = (("cached", "read from the cache"), ("written", "written to the cache"), ("plain", "plain input"))
    rows = []
    for summary in summaries:
        result = summary.result
        counts = (result.cache_read, result.cache_write, result.tokens - result.cache_read - result.cache_write)
        parts = ((kind, name, count) for (kind, name), count in zip(kinds, counts, strict=True))
        rows.append(_parts_bar(summary.way.name, short_number(result.tokens), parts))
    return section(
        "Tokens and dollars",
        "All prompts together, with unchanged beginnings served by the provider's cache. Answers are not counted: they "
        "are the recording's in every way.",
        f'<div class="plots"><div><h3>Tokens sent</h3>{_parts_plot("Tokens sent, by way", rows, kinds)}</div>'
        f"<div><h3>Dollars</h3>{_dollars(summaries)}</div></div>",
        as_table(_table(summaries, _SENT)),
    )


def _dollars(summaries: Sequence[VariantSummary]) -> str:
    rows = [
        Bar(
            name=summary.way.name,
            label=money(cost),
            segments=[Segment(value=cost, kind="dollars", label=f"{money(cost)} dollars")],
        )
        for summary in summaries
        if (cost := dollars(summary.result)) is not None
    ]
    if len(rows) < len(summaries):
        return (
            '<p class="lead">Prices are not known: name a model with <code>--model</code>; '
            "<code>recto models</code> lists those that have prices.</p>"
        )
    return bars("Dollars, by way", rows)


def _sizes(outcomes: Sequence[VariantOutcome]) -> str:
    """Renders the longest sessions, all ways of a session side by side on one scale."""
    drawn = sorted((outcome for outcome in outcomes if outcome.curve is not None), key=lambda outcome: outcome.place)
    sessions = [list(group) for _, group in groupby(drawn, key=lambda outcome: outcome.place)]
    sessions.sort(key=lambda group: -max(outcome.curve.turns for outcome in group if outcome.curve))
    if not sessions:
        return ""
    named = legend([("within", "prompt"), ("ceiling", "what the window allows"), ("beyond", "over it")])
    return section(
        "Prompt size over turns",
        "The longest sessions, from their first turn to their last. Where a curve falls, something left or was "
        "shortened.",
        named,
        *(_session(group) for group in sessions),
    )


def _session(group: Sequence[VariantOutcome]) -> str:
    curves = [(outcome.way.name, outcome.curve) for outcome in group if outcome.curve is not None]
    top = scale_top([data for _, data in curves])
    plots = "".join(curve(name, data, top) for name, data in curves)
    rows = (
        f'<th scope="row">{breakable(name)}</th>'
        f"<td>{data.turns:,}</td><td>{full_number(data.largest)}</td><td>{full_number(data.input_budget)}</td>"
        for name, data in curves
    )
    table = html_table(("way", "turns", "largest prompt", "what the window allows"), rows)
    turns = max(data.turns for _, data in curves)
    return (
        f'<div class="session"><h3>{html_text(group[0].file)}</h3><p class="about">{turns:,} turns</p>'
        f'<div class="curves">{plots}</div>{as_table(table)}</div>'
    )


def _needs(summaries: Sequence[VariantSummary]) -> str:
    kinds = (
        ("fetched", "fetched again, missed"),
        ("fetched-met", "fetched again, met"),
        ("referred", "referred to, missed"),
        ("referred-met", "referred to, met"),
    )
    rows = []
    for summary in summaries:
        result = summary.result
        fetched, referred = result.fetched_again - result.fetched_met, result.referred - result.referred_met
        counts = (fetched, result.fetched_met, referred, result.referred_met)
        parts = ((kind, name, count) for (kind, name), count in zip(kinds, counts, strict=True))
        rows.append(_parts_bar(summary.way.name, f"{full_number(result.missed)} missed", parts))
    return section(
        "Regret, and what met it",
        "What turns of the recording needed after it had left the prompt or was shortened. Pale: it stood in the "
        "prompt all the same, recalled or in a summary.",
        f'<div class="plots"><div>{_parts_plot("Regret by kind, by way", rows, kinds)}</div></div>',
        as_table(_table(summaries, _NEEDED)),
    )


def _share_bar(name: str, share: float, kind: str, meaning: str, more: str = "") -> Bar:
    segment = Segment(value=share, kind=kind, label=f"{percent(share)} {meaning}")
    return Bar(name=name, label=f"{percent(share)}{more}", segments=[segment])


def _survival(summaries: Sequence[VariantSummary]) -> str:
    rows = [_share_bar(summary.way.name, summary.result.survival, "there", "still there") for summary in summaries]
    return section(
        "Entity survival",
        "Names, paths and numbers that answers used and that were known from before: how many of them stood somewhere "
        "in the prompt.",
        f'<div class="plots"><div>{bars("Entity survival, by way", rows, full=1.0)}</div></div>',
        as_table(_table(summaries, _SURVIVED)),
    )


def _steadiness(summaries: Sequence[VariantSummary]) -> str:
    rows = [
        _share_bar(
            summary.way.name,
            summary.result.share,
            "unchanged",
            "unchanged",
            f", {full_number(summary.result.breaks)} breaks",
        )
        for summary in summaries
    ]
    return section(
        "Prefix stability",
        "The share of all tokens that stood unchanged at the beginning of a prompt: a provider's cache can serve them.",
        f'<div class="plots"><div>{bars("Unchanged tokens, by way", rows, full=1.0)}</div></div>',
        as_table(_table(summaries, _STEADY)),
    )


def _files(outcomes: Sequence[VariantOutcome], files: int) -> str:
    if files < 2:
        return ""
    rows = (
        f'<th scope="row">{breakable(outcome.file)}</th><td class="words">{html_text(outcome.way.name)}</td>'
        + "".join(_cell(measure, outcome.result, None) for measure in _EACH)
        for outcome in outcomes[:_MOST_ROWS]
    )
    table = html_table(["file", "way", *(measure.title for measure in _EACH)], rows)
    more = len(outcomes) - _MOST_ROWS
    lead = f"The first {_MOST_ROWS:,} rows; {more:,} more are in the JSON." if more > 0 else ""
    return section("Each file", lead, f"<details><summary>{files:,} files</summary>{table}</details>")


def glossary(words: Mapping[str, str]) -> str:
    """Renders words with what they mean."""
    items = "".join(
        f"<div><dt>{html_text(word)}</dt><dd>{html_text(means, 600)}</dd></div>" for word, means in words.items()
    )
    return f'<dl class="words-list">{items}</dl>'
