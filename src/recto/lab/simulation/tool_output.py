"""Generates tool output and prose: source code, test runs, logs, pages, tables.

None of it is a fact: no number has seven digits, and the words of answers are not among its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recto.lab.simulation import vocabulary
from recto.lab.simulation.random import Dice

Line = Callable[[Dice], str]


def prose(dice: Dice, size: int) -> str:
    """Returns sentences of about so many characters; at least one."""
    return " ".join(_lines_up_to(dice, sentence, size))


def sentence(dice: Dice) -> str:
    """Returns a sentence without a fact."""
    pick = dice.pick
    text = f"The {pick(vocabulary.THINGS)} {pick(vocabulary.VERBS)} the {pick(vocabulary.THINGS)}"
    if dice.happens(50):
        text += f" {pick(vocabulary.JOINTS)} a {pick(vocabulary.THINGS)}"
        text += f" {pick(vocabulary.VERBS)} {dice.between(2, 900)} of them"
    return text + "."


def source_code(dice: Dice, size: int, *, fact_line: str = "") -> str:
    """Returns functions, with `fact_line` somewhere among them."""
    return _with_fact(dice, _function, size, fact_line)


def log(dice: Dice, size: int, *, fact_line: str = "") -> str:
    """Returns lines of a log, with `fact_line` somewhere among them."""
    return _with_fact(dice, _log_line, size, fact_line)


def page(dice: Dice, size: int, *, fact_line: str = "") -> str:
    """Returns paragraphs, with `fact_line` somewhere among them."""
    return _with_fact(dice, _paragraph, size, fact_line)


def figures(dice: Dice, size: int) -> str:
    """Returns a table of measurements."""
    return "\n".join(["name  p50  p99  errors", *_lines_up_to(dice, _figure_line, size)])


def test_run(dice: Dice) -> str:
    """Returns the summary of a test run."""
    failed, passed = dice.below(4), dice.between(3, 900)
    names = [
        f"FAILED tests/test_{dice.pick(vocabulary.PARTS)}.py::test_{dice.pick(vocabulary.THINGS)}"
        for _ in range(failed)
    ]
    ending = f"{failed} failed, {passed} passed" if failed else f"{passed} passed"
    return "\n".join([*names, f"{ending} in {dice.below(90)}.{dice.between(10, 99)}s"])


def _with_fact(dice: Dice, line: Line, size: int, fact_line: str) -> str:
    lines = list(_lines_up_to(dice, line, size))
    if fact_line:
        lines.insert(dice.below(len(lines) + 1), fact_line)
    return "\n".join(lines)


def _lines_up_to(dice: Dice, line: Line, size: int) -> Iterator[str]:
    while True:
        text = line(dice)
        yield text
        size -= len(text) + 1
        if size <= 0:
            return


def _function(dice: Dice) -> str:
    name, thing = dice.pick(vocabulary.PARTS), dice.pick(vocabulary.THINGS)
    return (
        f"def {name}_{thing}(amount: int, rate: int = {dice.between(1, 99)}) -> int:\n"
        f"    total = amount * rate // {dice.between(2, 100)}\n"
        f"    return max(total, {dice.below(5000)})\n"
    )


def _log_line(dice: Dice) -> str:
    level = "WARN" if dice.happens(10) else "INFO"
    milliseconds = dice.length(40)
    words = f"{dice.pick(vocabulary.PARTS)} {dice.pick(vocabulary.VERBS)} {dice.pick(vocabulary.THINGS)}"
    return f"{level} {words} took={milliseconds}ms"


def _paragraph(dice: Dice) -> str:
    return " ".join(sentence(dice) for _ in range(dice.between(2, 5)))


def _figure_line(dice: Dice) -> str:
    return f"{dice.pick(vocabulary.PARTS)}  {dice.below(400)}  {dice.between(400, 9000)}  {dice.below(30)}"
