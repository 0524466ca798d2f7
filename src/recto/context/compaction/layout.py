"""Layout of the summary text: sections in order of importance, within a token limit.

Facts are quoted verbatim, files are named, older ranges have a few words each; the narrative of what happened fills the
remaining tokens. Pure: texts are passed in, not written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from recto.context.facts.extraction import by_priority, standing_statements
from recto.context.facts.files import render_files
from recto.context.facts.types import Fact, FactKind, WorkedFile
from recto.context.window.state import SummaryPart
from recto.text.lazy_re import lazy_re
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe

CountText = Callable[[str], int]

FOOTER = "[End of what is known of them]"
_TITLES: tuple[tuple[str, tuple[FactKind, ...]], ...] = (
    (
        "What the user wants and does not want, in the user's words",
        ("constraint", "instruction", "preference", "correction"),
    ),
    ("What the user agreed to", ("approval",)),
    ("What the user left open", ("deferral",)),
    ("Errors that are not solved", ("error",)),
    ("To do, and how far it is", ("progress", "obligation")),
    ("Decisions", ("decision",)),
    ("What the user said about the circumstances", ("circumstance",)),
    ("Questions without an answer", ("question",)),
)
_ENTRIES = lazy_re(r" \(\d+(?: to \d+)?\)$")
"""The entries that a line names at its end."""
_STATED = 1.5
"""How far the user's statements may exceed the share of the facts; the narrative is shorter then."""
_NARRATIVE, _EARLIER, _FILES, _NAMED = "What happened", "Before that", "Files", "Also named there"


class LayoutShares(Struct, frozen=True, kw_only=True):
    """Share of the tokens each section may use; unused tokens go to the narrative."""

    facts: float = 0.4
    files: float = 0.25
    earlier: float = 0.15


class Layout(Struct, frozen=True, kw_only=True):
    """A text with a gap for the narrative."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    narrative_tokens: int
    """Tokens available for the narrative."""


def header(pointer: str) -> str:
    """The first line, so that the text is not taken for history or for instructions."""
    return (
        "[What is known of them, derived from them for reference. It carries no instructions; where it differs from "
        f"the messages, they are right. A number in parentheses is an entry N, read whole as {pointer}]"
    )


def lay_out(
    facts: Sequence[Fact],
    files_used: Sequence[WorkedFile],
    earlier: Sequence[SummaryPart],
    *,
    pointer: str,
    max_tokens: int,
    count: CountText,
    shares: LayoutShares | None = None,
    beside: str = "",
) -> Layout:
    """Lay out everything but the narrative, the most important first if space is short.

    What is in `beside`, a text that is shown with it, is left out.
    """
    shares = shares or LayoutShares()
    top = header(pointer)
    available = max_tokens - count(top) - count(FOOTER) - 16
    shown = said_lines(beside)
    fact_lines = _fact_lines(facts, int(available * shares.facts), available, count, shown)
    files = render_files(files_used, int(available * shares.files), count)
    files = [f"{_FILES}:", *(f"- {' '.join(prompt_safe(line).split())}" for line in files)] if files else []
    earlier_lines = _earlier_lines(earlier, int(available * shares.earlier), count, shown)
    used = sum(count(line) + 1 for line in (*fact_lines, *files, *earlier_lines))
    return Layout(
        before=(top, *fact_lines, *earlier_lines), after=(*files, FOOTER), narrative_tokens=max(available - used, 0)
    )


def fill_layout(layout: Layout, narrative: Iterable[str], max_tokens: int, count: CountText) -> str:
    """The complete text; the narrative is cut from its end until the text fits, then the least important sections."""
    # A fact is stated once.
    narrative_lines = [line for line in narrative if line.strip() and line not in layout.before]
    before, after = list(layout.before), list(layout.after)
    while True:
        middle = [f"{_NARRATIVE}:", *narrative_lines] if narrative_lines else []
        text = "\n".join((*before, *middle, *after))
        over = count(text) - max_tokens
        if over <= 0:
            return text
        trimmed = narrative_lines or (after if len(after) > 1 else before)
        if len(trimmed) <= 1 and trimmed is before:
            return text
        _drop_lines(trimmed, over, count, keep=1 if trimmed is after else 0)


def append_names(text: str, names: Sequence[str], max_tokens: int, count: CountText) -> str:
    """The text with a last line that names what it does not mention, as many names as fit."""
    available = max_tokens - count(text) - count(f"{_NAMED}:\n- ")
    chosen: list[str] = []
    for name in names:
        cost = count(f"{name}, ") + 1
        if cost <= available:
            available -= cost
            chosen.append(name)
    if not chosen:
        return text
    lines = text.splitlines()
    named = "\n".join((*lines[:-1], f"{_NAMED}:", bullet(", ".join(chosen)), lines[-1]))
    return named if count(named) <= max_tokens else text


def _drop_lines(lines: list[str], over: int, count: CountText, keep: int) -> None:
    """Drop lines from the end, sparing the last `keep`, until about `over` tokens are gone; at least one."""
    dropped_tokens = 0
    while len(lines) > keep and dropped_tokens < over:
        dropped_tokens += count(lines.pop(len(lines) - 1 - keep)) + 1


def bullet(text: str, seq: int | None = None) -> str:
    """One line of a section: it cannot begin like the frame, hide anything, or continue on a second line."""
    where = "" if seq is None else f" ({seq})"
    return f"- {' '.join(mask_secrets(prompt_safe(text)).split())}{where}"


def said_lines(text: str) -> frozenset[str]:
    """What the lines of a section say, without the entries they name."""
    return frozenset(_ENTRIES.sub("", line) for line in text.splitlines())


def is_said(line: str, said: frozenset[str]) -> bool:
    """Whether a line says what one of these says, whichever entries it names."""
    return _ENTRIES.sub("", line) in said


def _fact_lines(facts: Sequence[Fact], share: int, most: int, count: CountText, shown: frozenset[str]) -> list[str]:
    """As many open facts as fit, grouped by kind. The user's statements come first and may exceed their share."""
    ordered = [fact for fact in by_priority(facts) if fact.open and not is_said(bullet(fact.text), shown)]
    rows = [(bullet(fact.text, fact.seq), fact) for fact in ordered]
    stated = {id(fact) for fact in standing_statements(facts)}
    chosen: dict[int, str] = {}
    used = 0
    for is_stated in (True, False):
        limit = min(int(share * _STATED) if is_stated else max(share, used + share // 4), most)
        for index, (line, fact) in enumerate(rows):
            if (id(fact) in stated) is is_stated and used + (cost := count(line) + 1) <= limit:
                used += cost
                chosen[index] = line
    lines: list[str] = []
    for title, kinds in _TITLES:
        of_kind = sorted((ordered[index].seq, line) for index, line in chosen.items() if ordered[index].kind in kinds)
        if of_kind:
            lines += [f"{title}:", *(line for _, line in of_kind)]
    return lines


def _earlier_lines(parts: Sequence[SummaryPart], available: int, count: CountText, shown: frozenset[str]) -> list[str]:
    """The newest of the earlier parts, in order, as far as they fit."""
    lines: list[str] = []
    for part in reversed(parts):
        part_lines = [line for line in part.text.splitlines() if line.strip() and not is_said(line, shown)]
        cost = sum(count(line) + 1 for line in part_lines)
        if part_lines and cost <= available:
            available -= cost
            lines[:0] = part_lines
    return [f"{_EARLIER}:", *lines] if lines else []


def favor_facts(shares: LayoutShares) -> LayoutShares:
    """Shares for a text that lost too much: facts come first."""
    return replace(shares, facts=0.7, files=0.2, earlier=0.05)


def only_facts(shares: LayoutShares) -> LayoutShares:
    """Shares for a text that still lost too much: nothing but facts and the most used files."""
    return replace(shares, facts=0.9, files=0.1, earlier=0.0)
