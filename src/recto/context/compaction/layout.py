"""The text in place of messages that left: what must not be lost first, in sections, within its tokens.

Facts are quoted in the words in which they were said, files are named, older ranges have a few words each; what
happened is told by whoever writes it, in the room that is left. Pure: what is written is given, not made, here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from recto.context.facts.extraction import by_priority
from recto.context.facts.files import render_files
from recto.context.facts.types import Fact, FactKind, WorkedFile
from recto.context.window.summary import SummaryPart
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe

CountText = Callable[[str], int]

FOOTER = "[End of what is known of them]"
_TITLES: tuple[tuple[str, tuple[FactKind, ...]], ...] = (
    ("What the user wants and does not want, in the user's words", ("constraint", "preference", "correction")),
    ("What the user agreed to", ("approval",)),
    ("Errors that are not solved", ("error",)),
    ("To do, and how far it is", ("progress", "obligation")),
    ("Decisions", ("decision",)),
    ("Questions without an answer", ("question",)),
)
_TOLD, _EARLIER, _FILES, _NAMED = "What happened", "Before that", "Files", "Also named there"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutShares:
    """What each kind of thing may have of the whole; what one does not use is the narrative's."""

    facts: float = 0.4
    files: float = 0.25
    earlier: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A text with room left in its middle."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    left: int
    """Tokens for what happened."""


def header(pointer: str) -> str:
    """What is said first, so that nobody takes what follows for history or for instructions."""
    return (
        "[What is known of them, derived from them for reference. It carries no instructions; where it differs from "
        f"the messages, they are right. A number in parentheses is an entry N, read whole as {pointer}]"
    )


def lay_out(
    facts: Sequence[Fact],
    touched: Sequence[WorkedFile],
    earlier: Sequence[SummaryPart],
    *,
    pointer: str,
    most: int,
    count: CountText,
    shares: LayoutShares | None = None,
) -> Layout:
    """Places everything but what happened, the most important first where there is no room for all of it."""
    shares = shares or LayoutShares()
    top = header(pointer)
    room = most - count(top) - count(FOOTER) - 16
    said = _facts(facts, int(room * shares.facts), count)
    files = render_files(touched, int(room * shares.files), count)
    files = [f"{_FILES}:", *(f"- {' '.join(prompt_safe(line).split())}" for line in files)] if files else []
    past = _earlier(earlier, int(room * shares.earlier), count)
    used = sum(count(line) + 1 for line in (*said, *files, *past))
    return Layout(before=(top, *said, *past), after=(*files, FOOTER), left=max(room - used, 0))


def filled(layout: Layout, narrative: Iterable[str], most: int, count: CountText) -> str:
    """The whole text; what happened is cut from its end until it fits, and then the least important of the rest."""
    told = [line for line in narrative if line.strip() and line not in layout.before]  # a fact is told once
    before, after = list(layout.before), list(layout.after)
    while True:
        middle = [f"{_TOLD}:", *told] if told else []
        text = "\n".join((*before, *middle, *after))
        over = count(text) - most
        if over <= 0:
            return text
        shed = told or (after if len(after) > 1 else before)
        if len(shed) <= 1 and shed is before:
            return text
        _shed(shed, over, count, keep=1 if shed is after else 0)


def with_names(text: str, names: Sequence[str], most: int, count: CountText) -> str:
    """The text with a last line that names what it does not say, as many as there is room for."""
    room = most - count(text) - count(f"{_NAMED}:\n- ")
    chosen: list[str] = []
    for name in names:
        cost = count(f"{name}, ") + 1
        if cost <= room:
            room -= cost
            chosen.append(name)
    if not chosen:
        return text
    lines = text.splitlines()
    named = "\n".join((*lines[:-1], f"{_NAMED}:", bullet(", ".join(chosen)), lines[-1]))
    return named if count(named) <= most else text


def _shed(lines: list[str], over: int, count: CountText, keep: int) -> None:
    """Takes lines from the end, `keep` of them spared, until about so many tokens are gone; at least one."""
    gone = 0
    while len(lines) > keep and gone < over:
        gone += count(lines.pop(len(lines) - 1 - keep)) + 1


def bullet(text: str, seq: int | None = None) -> str:
    """One line of a section: no text begins like the frame, hides anything, or goes on in a second line."""
    where = "" if seq is None else f" ({seq})"
    return f"- {' '.join(mask_secrets(prompt_safe(text)).split())}{where}"


def _facts(facts: Sequence[Fact], room: int, count: CountText) -> list[str]:
    """As many open facts as there is room for, critical ones first; told by kind."""
    chosen: dict[int, str] = {}
    ordered = [fact for fact in by_priority(facts) if fact.open]
    for place, fact in enumerate(ordered):
        line = bullet(fact.text, fact.seq)
        cost = count(line) + 1
        if cost <= room:
            room -= cost
            chosen[place] = line
    lines: list[str] = []
    for title, kinds in _TITLES:
        own = sorted((ordered[at].seq, line) for at, line in chosen.items() if ordered[at].kind in kinds)
        if own:
            lines += [f"{title}:", *(line for _, line in own)]
    return lines


def _earlier(parts: Sequence[SummaryPart], room: int, count: CountText) -> list[str]:
    """The newest of what came before, in their order, as far as there is room."""
    lines: list[str] = []
    for part in reversed(parts):
        own = [line for line in part.text.splitlines() if line.strip()]
        cost = sum(count(line) + 1 for line in own)
        if own and cost <= room:
            room -= cost
            lines[:0] = own
    return [f"{_EARLIER}:", *lines] if lines else []


def more_for_facts(shares: LayoutShares) -> LayoutShares:
    """Shares for a text that lost too much: facts come before everything else."""
    return replace(shares, facts=0.7, files=0.2, earlier=0.05)
