"""Policy views for tests: generated, hostile, and from real sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from recto.context.policies.edits import TrimResults
from recto.context.policies.eviction import Evict, Prune
from recto.context.policies.scorers import SCORERS
from recto.context.window.units import Plan, PolicyView, ToolResult, Unit, WindowMessage, eviction_order, units_of
from recto.formats import read
from recto.formats.session_files import read_file
from recto.tokens.meter import plain_estimate

FRAME = 20
LEAVING = [Prune(), *(Evict(scorer=make()) for make in SCORERS.values())]
SHRINKING = [
    TrimResults(),
    TrimResults(keep_newest=0, min_tokens=0),
    TrimResults(style="head_tail", head_tokens=20, tail_tokens=10, keep_newest=1),
]
POLICIES = [*LEAVING, *SHRINKING]

WORDS = ["alpha", "beta_gamma", "deltaEpsilon", "src/x.py", "E1234", "30 ms", "Beta"]
TEXTS = st.one_of(
    st.text(max_size=80),
    st.sampled_from(["", "src/app/main.py", "ValueError: no", "we decided to use sqlite", "{", "日本語のテキスト" * 9]),
    st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join),
    st.builds(lambda line, n: f"{line}\n" * n, st.text(min_size=1, max_size=20), st.integers(1, 200)),
)


def view_of(
    lines: list[WindowMessage],
    texts: dict[int, str],
    *,
    stays: Callable[[Unit], bool] = lambda unit: False,
    shortened: frozenset[int] = frozenset(),
    tokens: dict[int, int] | None = None,
    arguments: dict[int, str] | None = None,
    goal: str = "",
    long_exchange: int = 12,
) -> PolicyView:
    units = units_of(lines, long_exchange)
    tools = {line.seq: line.tools for line in lines}
    return PolicyView(
        eligible=eviction_order([unit for unit in units if not stays(unit)]),
        protected=[unit for unit in units if stays(unit)],
        tokens=tokens or {line.seq: line.tokens for line in lines},
        shortened=shortened,
        turn=len({unit.exchange for unit in units}),
        goal=goal,
        text_of=texts.__getitem__,
        result_of=lambda seq: ToolResult(
            tool=(tools[seq] or ("",))[0], arguments=(arguments or {}).get(seq, '{"path": "a.py"}'), output=texts[seq]
        ),
        pointer_of=lambda seq: f"recto://agent:default:main/{seq}",
        count=plain_estimate,
        cost_with=lambda seq, text: FRAME + plain_estimate(text),
    )


def conversation(*steps: tuple[str, str], tokens: int = 100) -> tuple[list[WindowMessage], dict[int, str]]:
    """Returns lines made of role and text; a tool line answers a call of the assistant line before it."""
    lines: list[WindowMessage] = []
    texts: dict[int, str] = {}
    for seq, (role, text) in enumerate(steps, 1):
        texts[seq] = text
        calls = (f"c{seq}",) if role == "assistant" and steps[seq : seq + 1] and steps[seq][0] == "tool" else ()
        answers = (f"c{seq - 1}",) if role == "tool" else ()
        tools = ("Read",) if calls or answers else ()
        lines.append(
            WindowMessage(seq=seq, id=f"m{seq}", role=role, tokens=tokens, calls=calls, answers=answers, tools=tools)  # type: ignore[arg-type]
        )
    return lines, texts


@st.composite
def views(draw: st.DrawFn) -> PolicyView:
    steps: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 5))):
        steps.append(("user", draw(TEXTS)))
        for _ in range(draw(st.integers(0, 8))):
            steps.append(("assistant", draw(TEXTS)))
            if draw(st.booleans()):
                steps.append(("tool", draw(TEXTS)))
    lines, texts = conversation(*steps)
    costs = {line.seq: draw(st.integers(0, 2_000)) for line in lines}
    stay = draw(st.sets(st.integers(1, max(1, len(lines)))))
    shortened = frozenset(seq for seq in draw(st.sets(st.integers(1, max(1, len(lines))))) if seq <= len(lines))
    return view_of(
        lines,
        texts,
        stays=lambda unit: not stay.isdisjoint(unit.seqs),
        shortened=shortened,
        tokens=costs,
        goal=draw(TEXTS),
        long_exchange=draw(st.sampled_from([2, 12])),
    )


def freed_by(plan: Plan, view: PolicyView) -> int:
    """Counts independently how many tokens a plan frees."""
    leaving = sum(view.tokens[line.seq] for unit in plan.evicts for line in unit.messages)
    return leaving + sum(view.tokens[shrink.seq] - shrink.tokens for shrink in plan.shortens)


def real_views(data: Path, every: int = 1) -> Iterator[PolicyView]:
    """Yields real agent sessions in their final state, with the newest 24 messages protected."""
    for file in sorted((data / "agent_sessions").rglob("*.jsonl"))[::every]:
        yield real_view(file)


@cache
def real_view(file: Path) -> PolicyView:
    messages = [
        read(entry.content, entry.wire)
        for entry in read_file([file.read_bytes()], file.name)
        if entry.kind == "message"
    ]
    calls = {part.call_id: part for message in messages for part in message.calls}
    lines: list[WindowMessage] = []
    arguments: dict[int, str] = {}
    for seq, message in enumerate(messages, 1):
        answered_calls = [calls[part.call_id] for part in message.results if part.call_id in calls]
        arguments[seq] = answered_calls[0].text if answered_calls else ""
        lines.append(
            WindowMessage(
                seq=seq,
                id=str(seq),
                role=message.role,
                tokens=FRAME + plain_estimate(message.text),
                calls=tuple(part.call_id for part in message.calls),
                answers=tuple(part.call_id for part in message.results),
                tools=tuple(part.name for part in (*message.calls, *answered_calls)),
            )
        )
    newest = len(messages) - 24
    texts = {seq: message.text for seq, message in enumerate(messages, 1)}
    return view_of(lines, texts, stays=lambda unit: unit.last > newest, arguments=arguments, goal=texts[1])
