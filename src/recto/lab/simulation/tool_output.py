"""What tools give back and people write at length: source code, test runs, logs, pages, tables.

Nothing of it is a fact: no number has seven digits, and the words of answers are not among its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recto.lab.simulation import vocabulary
from recto.lab.simulation.random import Dice

Line = Callable[[Dice], str]


def prose(dice: Dice, size: int) -> str:
    """Sentences of about so many characters; one at least."""
    return " ".join(_up_to(dice, sentence, size))


def sentence(dice: Dice) -> str:
    """A sentence that says nothing in particular."""
    pick = dice.pick
    said = f"The {pick(vocabulary.THINGS)} {pick(vocabulary.VERBS)} the {pick(vocabulary.THINGS)}"
    if dice.happens(50):
        said += f" {pick(vocabulary.JOINTS)} a {pick(vocabulary.THINGS)}"
        said += f" {pick(vocabulary.VERBS)} {dice.between(2, 900)} of them"
    return said + "."


def source_code(dice: Dice, size: int, *, holding: str = "") -> str:
    """Functions, with a line somewhere among them."""
    return _around(dice, _function, size, holding)


def log(dice: Dice, size: int, *, holding: str = "") -> str:
    """Lines of a log, with one somewhere among them."""
    return _around(dice, _log_line, size, holding)


def page(dice: Dice, size: int, *, holding: str = "") -> str:
    """Paragraphs, with a sentence in one of them."""
    return _around(dice, _paragraph, size, holding)


def figures(dice: Dice, size: int) -> str:
    """A table of measurements."""
    return "\n".join(["name  p50  p99  errors", *_up_to(dice, _figure_line, size)])


def run_of_tests(dice: Dice) -> str:
    """What a run of tests says at its end."""
    failed, passed = dice.below(4), dice.between(3, 900)
    names = [
        f"FAILED tests/test_{dice.pick(vocabulary.PARTS)}.py::test_{dice.pick(vocabulary.THINGS)}"
        for _ in range(failed)
    ]
    ending = f"{failed} failed, {passed} passed" if failed else f"{passed} passed"
    return "\n".join([*names, f"{ending} in {dice.below(90)}.{dice.between(10, 99)}s"])


def _around(dice: Dice, line: Line, size: int, holding: str) -> str:
    lines = list(_up_to(dice, line, size))
    if holding:
        lines.insert(dice.below(len(lines) + 1), holding)
    return "\n".join(lines)


def _up_to(dice: Dice, line: Line, size: int) -> Iterator[str]:
    while True:
        made = line(dice)
        yield made
        size -= len(made) + 1
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
    took = dice.length(40)
    words = f"{dice.pick(vocabulary.PARTS)} {dice.pick(vocabulary.VERBS)} {dice.pick(vocabulary.THINGS)}"
    return f"{level} {words} took={took}ms"


def _paragraph(dice: Dice) -> str:
    return " ".join(sentence(dice) for _ in range(dice.between(2, 5)))


def _figure_line(dice: Dice) -> str:
    return f"{dice.pick(vocabulary.PARTS)}  {dice.below(400)}  {dice.between(400, 9000)}  {dice.below(30)}"
