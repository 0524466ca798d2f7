"""The cascade: what is relieved in which order, with the steps of one relief that is carried out here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import recto
from pictures.drawing import BY_RULE, Picture
from recto.testing import scripted_session

_WINDOW: Final = 16_000
_SEED: Final = 6
_RUNGS: Final = (
    ("summarise_results", "Long tool results become summaries", "of themselves; calls and all that was said stay"),
    ("trim", "Old tool results shrink to a line", "which tool, what it found, where the whole is"),
    ("prune", "Units of nothing but tool work leave", "recall finds them"),
    ("progressive", "Older exchanges become key points", "then one line, then a title"),
    ("compact", "All but the newest is compacted", "into one checked summary in sections"),
    ("new_window", "A new window opens", "from a checkpoint; only what is in flight stays"),
)
_LEFT, _BAR, _WIDE, _TOP, _STEP = 36, 478, 440, 128, 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Relieved:
    """One relief: how full the prompt was, what each rung freed, and from where on each may be asked."""

    before: int
    after: int
    messages: int
    room: int
    floor: float
    starts: dict[str, float]
    freed: dict[str, int]


def carried_out() -> Relieved:
    """Goes through a session in the mode `zones` up to the first relief that needed four rungs."""
    small = {"gpt-4o": {"window": _WINDOW, "max_input": _WINDOW}}
    with recto.open(
        "memory:",
        model="gpt-4o",
        models=small,
        window={"mode": "zones", "look_ahead": False, "trim": {"keep_share": 0.0, "keep_newest": 3}},
        recall=BY_RULE,
    ) as session:
        for said, message in enumerate(scripted_session(seed=_SEED, exchanges=12)):
            prompt = session.prompt() if message["role"] == "assistant" else None
            decided = [json.loads(entry.content) for entry in prompt.decisions] if prompt else []
            if prompt and len(decided) == 4 and decided[-1]["policy"] == "progressive":
                rules = session.window.rules
                return Relieved(
                    before=decided[0]["tokens_before"],
                    after=prompt.tokens,
                    messages=said,
                    room=rules.input_budget,
                    floor=rules.floor,
                    starts=dict(rules.policy_starts),
                    freed={one["policy"]: one["frees"] for one in decided},
                )
            session.append(message)
    raise RuntimeError("no relief of this session needs four rungs any more: choose another seed")


def drawn() -> Picture:
    """The picture."""
    run = carried_out()
    used = [name for name, _, _ in _RUNGS if name in run.freed]
    picture = Picture(
        name="cascade",
        title="The cascade: what is relieved, in which order",
        description=(
            f"Six rungs, the gentlest first. In the relief that is shown the prompt had {run.before:,} of {run.room:,} "
            f"tokens. {len(used)} rungs brought it to {run.after:,}, near the floor of {run.floor:.0%}; the others "
            "were not reached."
        ),
        width=960,
        height=_TOP + _STEP * (len(_RUNGS) + 1) + 70,
    )
    picture.words(_LEFT, 42, "The cascade", size=19, bold=True)
    picture.words(
        _LEFT,
        66,
        "The gentlest first, and measured again after each. It ends at the floor, or where no other rung is due yet.",
        fill="muted",
    )
    bottom = _TOP + _STEP * (len(_RUNGS) + 1) - 12
    for name, share in (("floor", run.floor), ("room", 1.0)):
        x = _BAR + _WIDE * share
        picture.line((x, _TOP - 14), (x, bottom), edge="edge", dashed=True)
        told = f"{name} {share:.0%}" if share < 1 else f"{name}: {run.room:,} tokens"
        picture.words(x, _TOP - 22, told, size=12, fill="muted", at="end" if share == 1 else "middle")
    picture.words(_LEFT + 40, _TOP + 24, "The prompt passes the ceiling", size=14, bold=True)
    _bar(picture, run, _TOP, run.before, 0)
    left = run.before
    for place, (name, what, how) in enumerate(_RUNGS, start=1):
        left = _rung(picture, run, place, (name, what, how), left)
    about = f"One relief of a session of {run.messages} messages, as it was carried out"
    picture.words(_LEFT, bottom + 30, about, size=12, fill="muted")
    picture.words(
        _BAR,
        bottom + 30,
        f"sent with marker, record and summary: {run.after:,} tokens",
        size=12,
        fill="muted",
    )
    return picture


def _rung(picture: Picture, run: Relieved, place: int, told: tuple[str, str, str], left: int) -> int:
    name, what, how = told
    y, used = _TOP + place * _STEP, name in run.freed
    start = run.starts.get("delegate" if name == "new_window" else name, 0.0)
    zone = "red" if start else "orange"
    picture.dot(_LEFT + 14, y + 19, 13, f"{zone}-soft", edge=zone)
    picture.words(_LEFT + 14, y + 24, str(place), size=13, fill=zone, at="middle", bold=True)
    picture.words(_LEFT + 40, y + 16, what, size=14, bold=used, fill="ink" if used else "muted")
    picture.words(_LEFT + 40, y + 34, how, size=12, fill="muted")
    if not used:
        picture.words(_BAR, y + 24, f"not due below {start:.0%} of the room", size=12, fill="muted")
        return left
    _bar(picture, run, y, left - run.freed[name], run.freed[name])
    return left - run.freed[name]


def _bar(picture: Picture, run: Relieved, y: int, tokens: int, freed: int) -> None:
    wide = _WIDE * tokens / run.room
    picture.box(_BAR, y + 6, wide, 26, "history")
    picture.words(_BAR + 10, y + 24, f"{tokens:,}", size=13, fill="sheet", bold=True)
    if freed:
        picture.box(_BAR + wide, y + 6, max(3.0, _WIDE * freed / run.room), 26, "sunk", edge="edge", dashed=True)
        took = _WIDE * freed / run.room
        inside = took > 60
        x = _BAR + wide + (took / 2 if inside else took + 8)
        picture.words(x, y + 24, f"−{freed:,}", size=12, at="middle" if inside else "start")
