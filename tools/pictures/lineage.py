"""How a history that a client sends again each time is placed: what is new is stored, an edited one is a branch.

The requests are carried out here; what is drawn as stored is what the store then held.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import recto
from pictures.drawing import Picture, shortened
from recto.transcript.entries import MESSAGE

_SENT: Final = (
    ("1", "the first request", ("Where is order 4711?",), "It left Lisbon."),
    (
        "2",
        "the next one brings everything again",
        ("Where is order 4711?", "It left Lisbon.", "When is it here?"),
        "On Thursday.",
    ),
    (
        "3",
        "its last question was edited",
        ("Where is order 4711?", "It left Lisbon.", "Cancel it, please."),
        "Cancelled.",
    ),
)
_CHIP, _HIGH, _STEP = 146, 34, 168
_LEFT, _FIRST = 40, 92


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One request: where it was placed, and how many of its messages were stored for it."""

    number: str
    about: str
    said: tuple[str, ...]
    answer: str
    session: str
    known: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One session as it is stored at the end."""

    name: str
    texts: tuple[str, ...]
    shared: int
    """How many of them it has from the session it branched off."""


def carried_out() -> tuple[list[Placed], list[Kept]]:
    """Sends each request, hears its answer, and looks into the store at the end."""
    requests, kept = [], []
    with recto.follow("memory:", model="gpt-4o", max_tokens=32_000) as conversations:
        conversation = conversations.of("orders")
        seen: list[str] = []
        for number, about, said, answer in _SENT:
            known = sum(text in seen for text in said)
            roles = ("user", "assistant")
            conversation.fitted([{"role": roles[place % 2], "content": text} for place, text in enumerate(said)])
            conversation.heard({"role": "assistant", "content": answer})
            seen += [*said, answer]
            key = conversation.session.key
            requests.append(Placed(number=number, about=about, said=said, answer=answer, session=key, known=known))
        first: tuple[str, ...] = ()
        for key in dict.fromkeys(placed.session for placed in requests):
            entries = [entry for entry in conversation.session.store.read(key) if entry.kind == MESSAGE]
            texts = tuple(str(json.loads(entry.content)["content"]) for entry in entries)
            shared = sum(one == other for one, other in zip(texts, first, strict=False))
            kept.append(Kept(name=key.partition("~")[0] + ("~…" if "~" in key else ""), texts=texts, shared=shared))
            first = first or texts
    return requests, kept


def drawn() -> Picture:
    """The picture."""
    requests, kept = carried_out()
    picture = Picture(
        name="lineage",
        title="Lineage: a history that is sent again, and one that was edited",
        description=(
            "Three requests of a client, each with its whole history. The first two are stored as one session, every "
            "message once. The third has another last question: it becomes a branch of the session behind the last "
            "message that both have in common, and the session stays as it was."
        ),
        width=960,
        height=470,
    )
    picture.words(_LEFT, 42, "What the client sends", size=19, bold=True)
    for place, placed in enumerate(requests):
        _request(picture, _FIRST + place * 66, placed)
    picture.line((_LEFT, 286), (920, 286), edge="line")
    picture.words(_LEFT, 322, "What is stored", size=19, bold=True)
    _stored(picture, kept[0], 346, 0)
    _stored(picture, kept[1], 410, kept[1].shared)
    parted = _chip_x(kept[1].shared) - (_STEP - _CHIP) / 2
    picture.line((parted - 4, 363), (parted - 4, 427), (parted + 10, 427), edge="orange", arrow=True)
    picture.dot(parted - 4, 363, 4, "orange")
    return picture


def _request(picture: Picture, y: int, placed: Placed) -> None:
    picture.words(_LEFT, y - 9, f"Request {placed.number}: {placed.about}", size=12, fill="muted")
    for place, text in enumerate(placed.said):
        new = place >= placed.known
        _chip(picture, _chip_x(place), y, text, "user" if place % 2 == 0 else "assistant", faint=not new)
    at = _chip_x(len(placed.said))
    picture.line((at - _STEP + _CHIP + 2, y + 17), (at - 3, y + 17), edge="edge", arrow=True)
    _chip(picture, at, y, placed.answer, "assistant")
    fresh = len(placed.said) - placed.known + 1
    branch = " in a branch" if "~" in placed.session else ""
    picture.words(920, y + 15, f"{fresh} of {len(placed.said) + 1} stored{branch}", size=13, at="end", bold=True)
    if placed.known:
        picture.words(920, y + 31, f"{placed.known} known already", size=11, at="end", fill="muted")


def _stored(picture: Picture, kept: Kept, y: int, shared: int) -> None:
    for place, text in enumerate(kept.texts):
        if place >= shared:
            _chip(picture, _chip_x(place), y, text, "user" if place % 2 == 0 else "assistant")
        if place > shared:
            picture.line((_chip_x(place) - _STEP + _CHIP, y + 17), (_chip_x(place), y + 17), edge="edge")
    picture.words(920, y + 21, kept.name, size=12, at="end", mono=True)
    if shared:
        picture.words(_LEFT, y + 21, f"has entries 1 to {shared} as well", size=12, fill="muted")


def _chip(picture: Picture, x: float, y: float, text: str, role: str, *, faint: bool = False) -> None:
    colour = "history" if role == "user" else "tools"
    picture.box(x, y, _CHIP, _HIGH, "sunk" if faint else "sheet", edge="line" if faint else colour)
    picture.box(x + 5, y + 8, 4, 18, "reserve" if faint else colour)
    said = shortened(text, _CHIP - 18, 11)
    picture.words(x + 14, y + 21, said, size=11, fill="muted" if faint else "ink")


def _chip_x(place: int) -> float:
    return _LEFT + place * _STEP
