"""Renders what a smaller window costs and loses as one self-contained HTML page, to share.

Nothing of the sessions is on it, not even their names, unless content is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from recto.lab.backtest import Backtest
from recto.lab.commands._html_report import (
    Bar,
    Segment,
    as_table,
    bars,
    breakable,
    document,
    glossary,
    html_table,
    html_text,
    section,
)
from recto.lab.comparison import MEASURES, MeasureName, Share
from recto.lab.own_sessions import FITS, WayResult, WindowResult
from recto.lab.report import UNKNOWN, full_number, money, percent, short_number, signed
from recto.lab.results import dollars

MAX_STATEMENTS = 20
"""Lost statements that are quoted of a session and window."""
SHOWN: tuple[MeasureName, ...] = ("facts", "corrections", "traceable", "reachable")
"""Measures of `recto.lab.comparison` that are shown."""
_WORDS = {
    "Whole history": "every message, sent each time, whether the window takes it or not.",
    "Fits": FITS,
    "Missed": "tool calls that were repeated and names or numbers that were used again after they had left the prompt, "
    "and that nothing in the prompt met.",
    "Survival": "of the names and numbers that answers used and that were known from before, the share that was in the "
    "prompt.",
} | {title[0].upper() + title[1:]: text for title, text in (MEASURES[name] for name in SHOWN)}


def mine_page(windows: Sequence[WindowResult], content: Sequence[tuple[str, WindowResult]], *, model: str) -> str:
    """Renders the page. `content` has the sessions by name, if their names and statements may be shown."""
    sessions = max((result.sessions for result in windows), default=0)
    turns = max((result.whole.turns for result in windows), default=0)
    about = f"{sessions:,} sessions · {turns:,} model calls" + (f" · counted as {model}" if model else "")
    parts = [_facts(windows), *map(_window, windows)]
    if not windows:
        parts.append(section("Nothing to replay", "There was no session."))
    if content:
        parts.append(section("Sessions", "Statements that were not in the last prompt.", *map(_session, content)))
    parts.append(section("What the words mean", "", glossary(_WORDS)))
    subtitle = f'<p class="about">{html_text(about, 400)}</p>'
    return document("What a smaller window costs and loses", subtitle, parts, command="recto lab mine")


def lost_statements(result: WindowResult) -> list[str]:
    """Returns statements that still hold and were not in the last prompt of the mode that fits."""
    best = result.best
    return [] if best is None else list(best.measures.lacking[-MAX_STATEMENTS:])


def cost_text(result: Backtest, whole: Backtest | None) -> tuple[str, str]:
    """Formats the cost in dollars, and its change against the whole history; of tokens, if prices are unknown."""
    cost = dollars(result)
    shown = UNKNOWN if cost is None else money(cost)
    if whole is None:
        return shown, UNKNOWN
    before = dollars(whole)
    part, total = (cost, before) if cost is not None and before is not None else (result.tokens, whole.tokens)
    return shown, f"{signed(100 * (part - total) / total, '.0f')}%" if total else UNKNOWN


def _facts(windows: Sequence[WindowResult]) -> str:
    facts = []
    for result in windows:
        best = result.best
        name, value = ("no mode", UNKNOWN) if best is None else (best.way.name, cost_text(best.result, result.whole)[1])
        facts.append(
            f"<div><dt>{html_text(f'window of {result.window:,}: cost against the whole history')}</dt>"
            f'<dd class="value">{html_text(value)}</dd><dd>{html_text(name)}</dd></div>'
        )
    return f'<dl class="facts">{"".join(facts)}</dl>' if facts else ""


def _window(result: WindowResult) -> str:
    priced = dollars(result.whole) is not None
    results = [("whole history", result.whole), *((way.way.name, way.result) for way in result.ways)]
    costs = [
        _bar(name, (dollars(one) or 0.0) if priced else one.tokens, "dollars", _cost_label(one))
        for name, one in results
    ]
    survival = [_bar(way.way.name, way.result.survival, "there", percent(way.result.survival)) for way in result.ways]
    facts = [
        _bar(way.way.name, share, "cached", percent(share))
        for way in result.ways
        if (share := way.measures.shares.get("facts", Share()).value) is not None
    ]
    plots = f"<div><h3>{'Dollars' if priced else 'Tokens sent'}</h3>{bars('Cost, by mode', costs)}</div>"
    plots += f"<div><h3>Survival</h3>{bars('Survival, by mode', survival, full=1.0)}</div>"
    plots += (
        f"<div><h3>Factual retention</h3>{bars('Factual retention, by mode', facts, full=1.0)}</div>" if facts else ""
    )
    best = result.best
    fits = "No mode fits: each refused a prompt." if best is None else f"Fits: {best.way.name}."
    lead = f"{fits} {result.fitting:,} of {result.sessions:,} sessions fit as they are."
    title = f"Window of {result.window:,} tokens"
    return section(title, lead, f'<div class="plots">{plots}</div>', as_table(_table(result)))


def _bar(name: str, value: float, kind: str, label: str) -> Bar:
    return Bar(name=name, label=label, segments=[Segment(value=value, kind=kind, label=label)])


def _cost_label(result: Backtest) -> str:
    cost = dollars(result)
    return short_number(result.tokens) if cost is None else money(cost)


def _table(result: WindowResult) -> str:
    titles = ["mode", "tokens", "dollars", "against whole", "refused", "missed", "survival"]
    rows = [_row("whole history", result.whole, None, None)]
    rows += [_row(way.way.name, way.result, result.whole, way) for way in result.ways]
    return html_table([*titles, *(MEASURES[name][0] for name in SHOWN)], rows)


def _row(name: str, result: Backtest, whole: Backtest | None, way: WayResult | None) -> str:
    cells = [short_number(result.tokens), *cost_text(result, whole), full_number(result.refused)]
    if way is None:
        cells += [UNKNOWN] * (2 + len(SHOWN))
    else:
        shares = [way.measures.shares.get(measure, Share()).value for measure in SHOWN]
        cells += [full_number(result.missed), percent(result.survival)]
        cells += [UNKNOWN if share is None else percent(share) for share in shares]
    return f'<th scope="row">{breakable(name)}</th>' + "".join(f"<td>{html_text(cell)}</td>" for cell in cells)


def _session(named: tuple[str, WindowResult]) -> str:
    name, result = named
    items = "".join(f"<li>{html_text(statement, 300)}</li>" for statement in lost_statements(result))
    heading = f"<h3>{html_text(name)}, window of {result.window:,}</h3>"
    return f'<div class="session">{heading}<ul>{items}</ul></div>'
