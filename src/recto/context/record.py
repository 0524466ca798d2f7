"""The working record: what an agent needs of the messages that are no longer in its prompt.

A fold over the messages as they are evicted or shortened, by rule and from the raw messages alone, so that it is the
same after any number of evictions. It holds the user's statements that still hold, what is open, the steps (the newest
calls as they were written, older ones in one line), and the names in use (files, identifiers, numbers). The record is
bounded; what no longer fits is the least useful. It is rewritten only when something is evicted or shortened, because
every change costs the provider's cache.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from recto.context.facts.statements import CUT_SIGN, CUT_START
from recto.context.facts.tool_use import REFUSAL, call_outcome, file_uses, find_paths, parse_arguments
from recto.context.facts.types import Fact, FactKind, MessageView, ToolCall, command_in
from recto.formats.tools import is_own_call
from recto.text.lazy_re import lazy_re
from recto.text.secrets import HarmlessWords, mask_secrets, may_hold_secrets
from recto.text.unicode import prompt_safe

CountText = Callable[[str], int]

MAX_NAMES = 1200
MAX_STEPS = 120
"""Names and steps that are kept for later records; older and rarer ones are dropped."""
_TOKENS_PER_NAME = 2
"""Fewer names are kept where the record is too small to show them: one for so many of its tokens."""
_STEPS_TITLE = "Steps that are not shown, oldest first:"
_NEWEST_STEPS_TITLE = "Newest steps not shown, oldest first:"
"""Where older steps are left out. It costs no more than the other, whose tokens are reserved."""
_MAX_FACTS = 120
_MAX_STEP_CHARS = 120
_MAX_OUTCOME_CHARS = 80
_MAX_CALL_CHARS = 2_000
_WHOLE_CALLS = 12
"""Longest call that is kept as it was written, and how many of them are: an agent writes its scripts and commands
again, with small changes, and names alone do not say how."""
_MAX_NAME_CHARS = 120
_MAX_OUTPUT_CHARS = 60_000
"""Characters of an output that are searched for names."""
_CALL_WEIGHT, _TEXT_WEIGHT, _OUTPUT_WEIGHT, _LINE_NUMBER_WEIGHT = 80, 20, 10, 1
"""What one use of a name counts: in a call, in a message, in an output; and a number in an output."""
_AGE_OFFSET = 100
"""Entries that are added to the age of a name: among the newest names use counts more than age."""
_LENGTH_EXPONENT = 0.2
"""How much a long name must be used more than a short one, because it takes more of the record."""
_FILE_WEIGHTS = {"edit": 120, "read": 40, "name": 0}
"""What a call adds to the weight of a file, by what it does with it."""
_NAME = lazy_re(
    r"(?<![\w./<$-])(?!\.{3}|[\d.]+m?s\b)(?:[A-Za-z_~.]?[\w-]*(?:[./][\w.-]*\w)+|[A-Za-z]+_\w*\w"
    r"|[a-z]+[A-Z]\w+|[A-Z][a-z]+[A-Z]\w+|\d{3,}(?:\.\d+)?)(?![\w/])"
)
"""Paths, dotted names, identifiers with an underscore or an inner capital, and numbers of three digits or more.

Neither durations (`0.004s`) nor the dots of a test runner.
"""
_CONTEXT_LINE = lazy_re(r"(\.[A-Za-z]\w{0,9})-\d+-")
"""What `grep -C` writes between a file and a line of context: `src/a.py-97-`."""
_POINTER = lazy_re(r"recto://[\w\-.~:/@+=,%]*")

_ESCAPED_BREAK = lazy_re(r"(?:(?<=\\[nrt])|(?<!\w))\\[nrt]")
_BREAK_BETWEEN_PATHS = lazy_re(r"\\[nrt]")
"""A line break or tab as program text and JSON write it. In `"\nPlease` the letter is not part of the name."""
_WINDOWS_PATH = lazy_re(r"(?<![A-Za-z])[A-Za-z]:\\")
_MAX_REMEMBERED_CHARS = 8_000
"""Characters of a text whose names are remembered."""
_MAX_NAMELESS = 100_000
"""Words that are remembered because they contain no name."""
_CHARS_PER_TOKEN = 3
"""Characters of names for each free token that are tried first: mostly more than fit."""

_NUMBER = lazy_re(r"\d+")
_SIGNS = ("/", "_", ".", "")
"""Most names contain one of these, and most words none. Every name contains the last."""

_EDIT_SIDES = ("old", "new")
"""How the names of the arguments begin that hold the text before and after an edit: `old_string`, `newText`."""
_OPEN: tuple[FactKind, ...] = ("error", "obligation", "question")
_MAX_OPEN = 4
_SHARES = {"holds": 0.6, "open": 0.05, "steps": 0.15, "names": 0.15}
"""Largest share of each section. Steps have a line each in their share; names get what is left, and at least theirs."""
_MAX_CALLS_TOKENS = 500
"""Tokens for calls as they were written and for further lines, unless half of the record is less."""


class Step(Struct, frozen=True):
    """One step that is no longer in the prompt: what the agent ran, and how it ended."""

    seq: int
    call: str
    """The call as it was written, if it is among the newest and not too long; else its line."""
    outcome: str = ""
    todo: str = ""
    """What the call writes of the things to do, as `todo_state` names it; a newer step replaces one with the same."""

    @property
    def line(self) -> str:
        """The step on one line."""
        call = shorten_line(" ".join(self.call.split()), _MAX_STEP_CHARS)
        return f"- {call} → {self.outcome} ({self.seq})" if self.outcome else f"- {call} ({self.seq})"

    @property
    def whole(self) -> str:
        """The step with its call as it was written; empty where the line has all of it."""
        if len(self.call) <= _MAX_STEP_CHARS and "\n" not in self.call:
            return ""
        fence = "```"
        while fence in self.call:
            fence += "`"
        head = f"- ({self.seq}) → {self.outcome}" if self.outcome else f"- ({self.seq})"
        return f"{head}\n{fence}\n{self.call}\n{fence}"


class NameUse(NamedTuple):
    """How much a name was used, and the last entry that used it."""

    weight: int
    last: int


class WorkingRecord(Struct, frozen=True, kw_only=True):
    """What is known of the messages that left the prompt."""

    facts: tuple[Fact, ...] = ()
    steps: tuple[Step, ...] = ()
    names: Mapping[str, NameUse] = field(default_factory=dict)
    text: str = ""
    """The record as it is shown in the prompt."""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON, as decisions store it."""
        return {
            "text": self.text,
            "facts": [
                [fact.kind, fact.text, fact.seq, fact.role, fact.open, fact.superseded_by, fact.about]
                for fact in self.facts
            ],
            "steps": [[step.seq, step.call, step.outcome, *([step.todo] if step.todo else ())] for step in self.steps],
            "names": dict(self.names),
        }

    @classmethod
    def from_json(cls, payload: Mapping[str, Any]) -> WorkingRecord:
        """The record of a decision."""
        return cls(
            text=str(payload["text"]),
            facts=tuple(
                Fact(kind=kind, text=text, seq=seq, role=role, open=is_open, superseded_by=by, about=about)
                for kind, text, seq, role, is_open, by, about in payload["facts"]
            ),
            steps=tuple(Step(*values) for values in payload["steps"]),
            names={name: NameUse(weight, last) for name, (weight, last) in payload["names"].items()},
        )


def extend_record(
    record: WorkingRecord,
    evicted: Iterable[MessageView],
    shortened: Iterable[MessageView] = (),
    max_tokens: int = MAX_NAMES * _TOKENS_PER_NAME,
) -> WorkingRecord:
    """Add messages that leave the prompt, in order. Of shortened outputs only the names are added.

    `max_tokens` are those that a record may have, so that no more names are kept than could ever be shown.
    """
    from recto.context.facts.extraction import extract_facts  # noqa: PLC0415  # most prompts need no record

    evicted = list(evicted)
    names = dict(record.names)
    for view in (*evicted, *shortened):
        _count_names(names, view)
    return WorkingRecord(
        facts=_limit_facts(extract_facts(evicted, record.facts)),
        steps=_limit_steps(_without_old_todos((*record.steps, *_steps(evicted)))),
        names=_limit_names(names, min(max_tokens // _TOKENS_PER_NAME, MAX_NAMES)),
    )


def render_record(
    record: WorkingRecord,
    visible: Sequence[str],
    max_tokens: int,
    count: CountText,
    since: Sequence[MessageView] = (),
) -> str:
    """The text of a record in at most `max_tokens`: nothing of it repeats what the visible messages contain.

    `since` are the messages after those that left the prompt: what they answer, solve or take back is not listed.
    """
    from recto.context.facts.extraction import (  # noqa: PLC0415  # as above
        by_priority,
        settled_facts,
        standing_statements,
    )

    shown = "\n".join(visible)
    facts = settled_facts(record.facts, since)
    lines: list[str] = []

    def add(title: str, rows: Iterable[tuple[int, str]], share: float) -> None:
        """Add as many rows as fit, by priority, in the order of their places: as they were said and done."""
        left, chosen = int(max_tokens * share) - count(title) - 1, []
        for place, row in rows:
            cost = count(row) + 1
            if cost <= left:
                left -= cost
                chosen.append((place, row))
        lines.extend((title, *(row for _, row in sorted(chosen))) if chosen else ())

    places = {id(fact): place for place, fact in enumerate(sorted(facts, key=lambda fact: fact.seq))}
    held = [fact for fact in standing_statements(facts) if _kept_words(fact) not in shown]
    add("What the user said that still holds:", [(places[id(fact)], _bullet(fact)) for fact in held], _SHARES["holds"])
    loose = [fact for fact in by_priority(facts) if fact.open and fact.kind in _OPEN and _kept_words(fact) not in shown]
    rows = [(places[id(fact)], _bullet(fact)) for fact in loose if fact not in held]
    add("Open:", rows[:_MAX_OPEN], _SHARES["open"])
    names_least = int(max_tokens * _SHARES["names"])
    most = min(int(max_tokens * _SHARES["steps"]) + _MAX_CALLS_TOKENS, max_tokens // 2)
    most = min(most, max_tokens - names_least - count("\n".join(lines)))
    steps = _without_old_todos(record.steps, {step.todo for step in _steps(since)})
    lines += _step_rows(steps, int(max_tokens * _SHARES["steps"]), most, count)
    return _with_names(lines, _hidden_names(record, f"{shown}\n" + "\n".join(lines)), max_tokens, count)


def _step_rows(steps: Sequence[Step], most_lines: int, most: int, count: CountText) -> list[str]:
    """The newest steps that fit, oldest first.

    First come their lines, in `most_lines` tokens; then, from the newest to the oldest, calls as they were written and
    further lines, as long as they fit into `most`.
    """
    rows: list[str] = []
    used = count(_STEPS_TITLE) + 1
    costs: list[int] = []
    for step in reversed(steps):
        cost = count(step.line) + 1
        if used + cost > most_lines:
            break
        used += cost
        costs.append(cost)
    for number, step in enumerate(reversed(steps)):
        row, paid = step.whole, costs[number] if number < len(costs) else 0
        cost = count(row) + 1 - paid if row else 0
        if not row or used + cost > most:
            row, cost = step.line, 0 if paid else count(step.line) + 1
        if used + cost > most and not paid:
            break
        used += cost
        rows.append(row)
    title = _STEPS_TITLE if len(rows) == len(steps) < MAX_STEPS else _NEWEST_STEPS_TITLE
    return [title, *reversed(rows)] if rows else []


def _hidden_names(record: WorkingRecord, shown: str) -> Iterator[str]:
    """The names that are not shown already, the most useful first; none that is part of another."""
    distinct = dict.fromkeys(shown.split())
    # What is part of a word is found several times faster among the words with the same sign, each of them once.
    words = {sign: " ".join([word for word in distinct if sign in word]) for sign in _SIGNS}
    # Many names are numbers, which are part of numbers only.
    numbers, listed_numbers, listed = " ".join(dict.fromkeys(_NUMBER.findall(words[""]))), "", ""
    for name in _ranked(record.names):
        if name in distinct:
            continue
        if name.isdecimal():
            if name not in numbers and name not in listed_numbers:
                yield name
                listed_numbers += f" {name}"
            continue
        # A path in a call may contain spaces.
        is_shown = name in (shown if len(name.split()) > 1 else words[next(filter(name.__contains__, _SIGNS))])
        if not is_shown and name not in listed:
            yield name
            listed += f" {name}"
            listed_numbers = " ".join((listed_numbers, *_NUMBER.findall(name)))


def _ranked(names: Mapping[str, NameUse]) -> list[str]:
    """The names by how much and how recently they were used; short ones first among equals."""
    newest = max((use.last for use in names.values()), default=0) + _AGE_OFFSET
    lengths = {length: math.pow(length, _LENGTH_EXPONENT) for length in set(map(len, names))}
    scored = [(-weight / lengths[len(name)] / (newest - last), name) for name, (weight, last) in names.items()]
    scored.sort()
    return [name for _, name in scored]


def _with_names(lines: list[str], names: Iterator[str], max_tokens: int, count: CountText) -> str:
    """The lines with as many of the names as fit. They are counted together: one by one costs more than it is.

    Names are taken only until they no longer fit: whether one is shown already is the costly question.
    """
    taken: list[tuple[str, bool]] = []
    ends = [0]
    """The characters of so many names."""

    def text(number: int) -> str:
        files = [name for name, is_file in taken[:number] if is_file]
        others = [name for name, is_file in taken[:number] if not is_file]
        listed = (("Files in them", files), ("Names in them", others))
        return "\n".join((*lines, *(f"{title}: {' '.join(chosen)}" for title, chosen in listed if chosen)))

    fitting, used, tokens = 0, 0, count("\n".join(lines))
    while tokens <= max_tokens:
        fitting, used, chars = len(taken), tokens, _CHARS_PER_TOKEN * (max_tokens - tokens + 1)
        while chars > 0 and (name := next(names, None)) is not None:
            taken.append((name, _is_file(name)))
            ends.append(ends[-1] + len(name) + 1)
            chars -= len(name) + 1
        if len(taken) == fitting:
            return text(fitting)
        tokens = count(text(len(taken)))
    beyond, total = len(taken), tokens
    while beyond - fitting > 1:  # names cost about as much as they are long, so the first guess is close
        chars = (ends[beyond] - ends[fitting]) * (max_tokens - used) // (total - used)
        guess = bisect_right(ends, ends[fitting] + chars) - 1
        number = min(max(guess, fitting + 1), beyond - 1)
        tokens = count(text(number))
        if tokens <= max_tokens:
            fitting, used = number, tokens
        else:
            beyond, total = number, tokens
    return text(fitting)


def _is_file(name: str) -> bool:
    return ("." in name or "/" in name or "\\" in name) and find_paths(name, bare=True) == (name,)


def _kept_words(fact: Fact) -> str:
    """The words of a fact as its message has them, without the signs that the rest was cut off."""
    return fact.text.removeprefix(CUT_START).removesuffix(CUT_SIGN)


def _bullet(fact: Fact) -> str:
    source = f"{fact.seq}, in refusing a call" if fact.about == REFUSAL else str(fact.seq)
    return f"- {' '.join(mask_secrets(prompt_safe(fact.text)).split())} ({source})"


def _steps(views: Sequence[MessageView]) -> list[Step]:
    """One line for each call of evicted messages, with the outcome of its result.

    A block of code that no output follows is an example in a conversation: nothing was run. Calls of Recto's own tools
    are no steps of the work.
    """
    from recto.context.facts.extraction import todo_state  # noqa: PLC0415  # as above

    results = [result for view in views if view.role == "tool" for result in view.answers()]
    outcomes = {id(call): _outcome(result) for result in results for call in result.calls}
    return [
        Step(view.seq, _whole_call(call), outcomes.get(id(call), ""), todo_state(call))
        for view in views
        if view.role == "assistant"
        for call in view.calls
        if not is_own_call(call.tool) and (id(call) in outcomes or not command_in(view.text))
    ]


def _without_old_todos(steps: Iterable[Step], replaced: Set[str] = frozenset()) -> tuple[Step, ...]:
    """The steps without those whose list of things to do, or task, a newer one writes: only the newest state matters.

    `replaced` is what is written after all of these steps.
    """
    kept, newer = list[Step](), set(replaced)
    for step in reversed(tuple(steps)):
        if not step.todo or step.todo not in newer:
            kept.append(step)
            newer.add(step.todo)
    return tuple(reversed(kept))


def _limit_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The newest steps, of which only the newest long calls stay as they were written."""
    kept, whole = list(steps[-MAX_STEPS:]), 0
    for place, step in reversed(list(enumerate(kept))):
        whole += bool(step.whole)
        if step.whole and whole > _WHOLE_CALLS:
            kept[place] = replace(step, call=shorten_line(" ".join(step.call.split()), _MAX_STEP_CHARS))
    return tuple(kept)


def _whole_call(call: ToolCall) -> str:
    """A call as it was written, or on one line if it is too long."""
    text = _call_text(call)
    return mask_secrets(prompt_safe(text)) if len(text) <= _MAX_CALL_CHARS else describe_step(call)


def describe_step(call: ToolCall, max_chars: int = _MAX_STEP_CHARS) -> str:
    """A call on one line: a shell command as it was written, any other with the values of its arguments."""
    return mask_secrets(prompt_safe(shorten_line(" ".join(_call_text(call)[:4000].split()), max_chars)))


def _call_text(call: ToolCall) -> str:
    arguments = parse_arguments(call)
    command = next(
        (value for key in ("command", "cmd", "script") if isinstance(value := arguments.get(key), str)), None
    )
    if command is not None:
        return command.strip()
    said = {name: value for name, value in arguments.items() if not isinstance(value, bool) and value not in (None, "")}
    values = [_argument(name, value if isinstance(value, str) else json.dumps(value)) for name, value in said.items()]
    # Values of one line each, such as a pattern and a path, say the same on one line and take fewer tokens.
    return " ".join((call.tool, ("\n" if any("\n" in value for value in values) else " ").join(values))).strip()


def _argument(name: str, value: str) -> str:
    """The value of an argument; of the two texts of an edit, with the name that says which is which."""
    if not name.lower().startswith(_EDIT_SIDES):
        return value
    return f"{name}:\n{value}" if "\n" in value else f"{name}: {value}"


def shorten_line(text: str, max_chars: int) -> str:
    """A long line cut in its middle: a command says most at both ends."""
    if len(text) <= max_chars:
        return text
    tail = max_chars // 3
    return f"{text[: max_chars - tail - 3]} … {text[-tail:]}"


def _outcome(view: MessageView) -> str:
    outcome = call_outcome(view)
    line = mask_secrets(prompt_safe(" ".join(outcome.line.split())))
    if outcome.state == "refused":
        return shorten_line(f"not run: {line}" if line else "not run", _MAX_STEP_CHARS)
    if line:
        return line[:_MAX_OUTCOME_CHARS]
    return f"exit {outcome.exit_code}" if outcome.exit_code else "ok"


def _count_names(names: dict[str, NameUse], view: MessageView) -> None:
    if view.role not in ("user", "assistant", "tool"):
        return
    texts = [(view.text[:_MAX_OUTPUT_CHARS], _OUTPUT_WEIGHT if view.role == "tool" else _TEXT_WEIGHT)]
    if view.role == "assistant":
        texts += [(" ".join(map(str, parse_arguments(call).values())), _CALL_WEIGHT) for call in view.calls]
    for text, weight in texts:
        for name, times in (_names_in_short if len(text) <= _MAX_REMEMBERED_CHARS else _names_in)(text).items():
            added = weight
            if view.role == "tool" and name.isdigit():
                added = _LINE_NUMBER_WEIGHT
            elif view.role == "tool" and times > 1:
                # what an output repeats, such as a file's own functions, is what the next edit is about
                added = int(weight * (1 + math.sqrt(times - 1)))
            _add_use(names, name, added, view.seq)
    for call in view.calls if view.role == "assistant" else ():
        for use in file_uses(call):
            _add_use(names, use.path, _FILE_WEIGHTS[use.action], view.seq)


def _names_in(text: str) -> Mapping[str, int]:
    """The names in a text and how often it has each. No name spans words, and most words were seen before."""
    words = Counter(text.split())
    suspects = _harmless.others(words.keys())
    if suspects and may_hold_secrets(text, suspects):
        words = Counter(mask_secrets(text).split())
    found: dict[str, int] = {}
    for word in _nameless.others(words):
        for name in _names_in_short_word(word) if len(word) <= _MAX_NAME_CHARS else _names_in_word(word):
            found[name] = found.get(name, 0) + words[word]
    return found


def _names_in_word(word: str) -> tuple[str, ...]:
    if "recto://" in word:
        word = _POINTER.sub(" ", word)
    if "\\" in word and not _WINDOWS_PATH.search(word):
        # `src\new.py` is a path unless the same word has slashes; then its backslashes are escapes.
        word = (_BREAK_BETWEEN_PATHS if "/" in word else _ESCAPED_BREAK).sub(" ", word)
    if "-" in word:
        word = _CONTEXT_LINE.sub(r"\1 ", word)
    return tuple(name for name in _NAME.findall(word) if 4 <= len(name) <= _MAX_NAME_CHARS or name.isdigit())


_names_in_short_word = lru_cache(32_768)(_names_in_word)
_names_in_short = lru_cache(1024)(_names_in)
"""A result is read when it is shortened, and again when it is evicted."""


class _NamelessWords:
    """Remembers words without a name in them, as most words are."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def others(self, words: Iterable[str]) -> list[str]:
        """The words that contain names, in order."""
        known = self._known
        unknown = [word for word in words if word not in known]
        named = [word for word in unknown if len(word) > _MAX_NAME_CHARS or _names_in_short_word(word)]
        if len(named) < len(unknown):
            if len(known) + len(unknown) > _MAX_NAMELESS:
                # Other threads may be reading the old set, so it is replaced and not cleared.
                known = self._known = set()
            known.update(set(unknown).difference(named))
        return named


_harmless, _nameless = HarmlessWords(), _NamelessWords()


def _add_use(names: dict[str, NameUse], name: str, weight: int, seq: int) -> None:
    known = names.get(name)
    names[name] = NameUse((known.weight if known else 0) + weight, seq)


def _limit_names(names: dict[str, NameUse], most: int) -> dict[str, NameUse]:
    return names if len(names) <= most else {name: names[name] for name in _ranked(names)[:most]}


def _limit_facts(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    if len(facts) <= _MAX_FACTS:
        return tuple(facts)
    from recto.context.facts.extraction import by_priority, standing_statements  # noqa: PLC0415  # as above

    ranked = [*standing_statements(facts), *by_priority(facts)]
    kept = set(map(id, list({id(fact): fact for fact in ranked}.values())[:_MAX_FACTS]))
    return tuple(fact for fact in facts if id(fact) in kept)
