"""The path of a turn: seven steps, and which of them write to the transcript. A drawing of the design; no numbers."""

from __future__ import annotations

from typing import Final

from pictures.drawing import Picture

_STEPS: Final = (
    ("1", "append", ("durable before", "anything else;", "counted once"), "history"),
    ("2", "measure", ("how full, how", "fast it grows,", "which zone"), "green"),
    ("3", "plan", ("policies propose", "what may leave;", "all stays as it is"), "yellow"),
    ("4", "carry out", ("index first, then", "let leave; each", "decision is stored"), "orange"),
    ("5", "recall", ("what left and", "matters for this", "question, quoted"), "recalled"),
    ("6", "build", ("valid for its", "provider; what is", "new is at its end"), "tools"),
    ("7", "answer", ("the model is", "asked, what it", "says is stored"), "history"),
)
_WRITES: Final = {"1": "message", "4": "decisions", "5": "what was recalled", "7": "answer"}
_WIDE, _HIGH, _GAP, _LEFT, _TOP = 116, 112, 14.6, 30, 106


def drawn() -> Picture:
    """The picture."""
    picture = Picture(
        name="turn",
        title="The path of a turn",
        description=(
            "Seven steps from a message to its answer: append, measure, plan, carry out, recall, build, answer. "
            "Carrying out goes back to measuring until the prompt fits. Append, carry out, recall and answer write "
            "to the append-only transcript below them; nothing is ever taken out of it."
        ),
        width=960,
        height=380,
    )
    picture.words(_LEFT, 42, "The path of a turn", size=19, bold=True)
    picture.words(930, 42, "after every tool result, too, not only when the user speaks", fill="muted", at="end")
    for place, (number, name, lines, colour) in enumerate(_STEPS):
        _step(picture, _LEFT + place * (_WIDE + _GAP), number, name, lines, colour)
    measure, carry = (_LEFT + place * (_WIDE + _GAP) + _WIDE / 2 for place in (1, 3))
    picture.line((carry, _TOP), (carry, 82), (measure, 82), (measure, _TOP - 1), edge="orange", arrow=True)
    picture.words((measure + carry) / 2, 76, "until it fits", size=12, fill="orange", at="middle")
    _transcript(picture)
    return picture


def _step(picture: Picture, x: float, number: str, name: str, lines: tuple[str, ...], colour: str) -> None:
    picture.box(x, _TOP, _WIDE, _HIGH, "sheet", edge="line")
    picture.box(x, _TOP, _WIDE, 6, colour)
    picture.words(x + 10, _TOP + 34, f"{number}  {name}", size=15, bold=True)
    for place, line in enumerate(lines):
        picture.words(x + 10, _TOP + 58 + place * 17, line, size=11.5, fill="muted")
    if number != "7":
        picture.line((x + _WIDE, _TOP + 29), (x + _WIDE + _GAP, _TOP + 29), edge="edge", arrow=True)
    if number in _WRITES:
        middle = x + _WIDE / 2
        picture.line((middle, _TOP + _HIGH), (middle, 284), edge=colour, arrow=True)
        picture.words(middle + 8, 256, _WRITES[number], size=11, fill="muted")


def _transcript(picture: Picture) -> None:
    picture.box(_LEFT, 286, 900, 62, "sunk", edge="edge")
    picture.words(_LEFT + 16, 312, "the transcript", size=14, bold=True)
    picture.words(_LEFT + 16, 332, "append-only, hash-chained, byte for byte", size=12, fill="muted")
    for place in range(24):
        x = 400 + place * 21
        picture.box(x, 302, 15, 30, ("history", "tools", "results", "results", "orange")[place * 7 % 5])
        if place:
            picture.line((x - 6, 317), (x, 317), edge="edge")
