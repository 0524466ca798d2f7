"""Renders a trial as one self-contained HTML page. Nothing of the sessions is on it but names, if requested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recto.lab.commands._html_report import (
    Bar,
    IntervalRow,
    Segment,
    as_table,
    bars,
    breakable,
    document,
    glossary,
    html_table,
    html_text,
    intervals,
    section,
)
from recto.lab.reader import ReaderResult
from recto.lab.report import UNKNOWN, full_number, interval_text, percent, signed
from recto.lab.trial import ArmResult, TriedRun

_WORDS = {
    "Moment": "a model call of a recorded run whose history does not fit the window. The recorded response is known.",
    "Support": "of the paths, identifiers and numbers that the recorded next action takes from the history, the share "
    "that is in the prompt. Counted by rule; no model is called.",
    "Old": "the same, counted only over what trimming to the window has lost: the work of recall, records and "
    "summaries.",
    "Gain": "support above trimming at equal tokens at the same moments, with the 95 % interval when runs are drawn "
    "again.",
    "Loss": "nats per token by which the recorded response is less likely after this prompt than after the whole "
    "history, under one model; below 0 it is more likely. With the 90 % interval when runs are drawn again.",
    "Equivalent": "both one-sided tests at 5 % reject a loss or gain beyond the margin: the 90 % interval is within "
    "it. Worse and better: the interval is beyond the margin; undecided: it contains the margin.",
    "Search over files": "half of the tokens hold the newest messages, the other half what a word search of the older "
    "messages finds for them.",
}


def trial_page(
    results: Sequence[ArmResult],
    answers: Sequence[ReaderResult],
    *,
    runs: Sequence[TriedRun],
    names: Sequence[str],
    scored_by: str,
) -> str:
    """Renders the page; `names` are those of the runs, or nothing."""
    windows = list(dict.fromkeys(result.window for result in results))
    moments = sum(result.support.moments for result in results if result.arm == results[0].arm)
    about = f"{len(runs):,} runs · {moments:,} moments" + (f" · scored by {scored_by}" if scored_by else "")
    parts = [_window(window, [result for result in results if result.window == window]) for window in windows]
    answered = list(dict.fromkeys(result.window for result in answers))
    parts += [_answers(window, [result for result in answers if result.window == window]) for window in answered]
    if not results and not answers:
        parts.append(section("Nothing to compare", "Every history fits these windows."))
    if names:
        rows = (f'<th scope="row">{breakable(name)}</th>' for name in names)
        parts.append(
            section("Runs", "", f"<details><summary>{len(names):,} runs</summary>{html_table(['run'], rows)}</details>")
        )
    parts.append(section("What the words mean", "", glossary(_WORDS)))
    subtitle = f'<p class="about">{html_text(about, 400)}</p>'
    return document("Trial: prompts against the whole history", subtitle, parts, command="recto lab trial")


def _share_bars(shares: Iterable[tuple[str, float | None]], kind: str) -> list[Bar]:
    """A bar for each arm that has a share."""
    return [
        Bar(
            name=arm,
            label=percent(share),
            segments=[Segment(value=share, kind=kind, label=f"{percent(share)} in the prompt")],
        )
        for arm, share in shares
        if share is not None
    ]


def _window(window: int, results: Sequence[ArmResult]) -> str:
    shares = _share_bars(((result.arm, result.support.all) for result in results), "there")
    old = _share_bars(((result.arm, result.support.old) for result in results), "cached")
    plots = f"<div><h3>Support</h3>{bars('Support, by arm', shares, full=1.0)}</div>"
    plots += (
        f"<div><h3>Support, old</h3>{bars('Support of what trimming lost, by arm', old, full=1.0)}</div>" if old else ""
    )
    judged = [(result, result.likelihood) for result in results if result.likelihood is not None]
    if judged:
        rows = [
            IntervalRow(
                name=result.arm,
                label=f"{interval_text(found.interval)}, {found.verdict}",
                value=found.interval.value,
                low=found.interval.low,
                high=found.interval.high,
            )
            for result, found in judged
        ]
        plot = intervals("Loss against the whole history, by arm", rows, margin=judged[0][1].margin)
        plots += f"<div><h3>Loss, nats per token; dashed: the margin of {judged[0][1].margin:g}</h3>{plot}</div>"
    moments = max(result.support.moments for result in results)
    return section(
        f"Window of {window:,} tokens",
        f"{moments:,} moments.",
        f'<div class="plots">{plots}</div>',
        as_table(_table(results)),
    )


def _answers(window: int, results: Sequence[ReaderResult]) -> str:
    rows = [
        Bar(
            name=result.arm,
            label=f"{percent(result.share)} of {result.questions:,}"
            + ("" if result.gain is None else f", {interval_text(result.gain)}"),
            segments=[Segment(value=result.share, kind="there", label=f"{percent(result.share)} right")],
        )
        for result in results
    ]
    lead = "Questions whose answer is a value, answered by one reader from each prompt and scored by rule."
    plot = f'<div class="plots"><div>{bars("Right answers, by arm", rows, full=1.0)}</div></div>'
    return section(f"Answers in a window of {window:,} tokens", lead, plot)


def _table(results: Sequence[ArmResult]) -> str:
    titles = ("arm", "tokens", "refused", "support", "of", "old", "of", "gain", "loss", "pooled", "within", "verdict")
    return html_table(titles, map(_row, results))


def _row(result: ArmResult) -> str:
    support, judged = result.support, result.likelihood
    cells = [
        full_number(support.tokens / max(support.moments, 1)),
        full_number(support.refused),
        UNKNOWN if support.all is None else percent(support.all),
        full_number(support.needed),
        UNKNOWN if support.old is None else percent(support.old),
        full_number(support.old_needed),
        UNKNOWN if result.gain is None else interval_text(result.gain),
    ]
    if judged is None:
        cells += [UNKNOWN] * 4
    else:
        cells += [interval_text(judged.interval), signed(judged.pooled, ".3f"), percent(judged.within), judged.verdict]
    return f'<th scope="row">{breakable(result.arm)}</th>' + "".join(f"<td>{html_text(cell)}</td>" for cell in cells)
