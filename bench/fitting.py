"""Measures the CPU time of `recto.fit`, which fits a list of messages into a token budget.
Made-up lists of 1,000 and 10,000 messages are fitted into 8,000, 32,000 and 128,000 tokens. The first call with a list
is compared with the next calls, for which the list has grown by one exchange each.
"""

from __future__ import annotations

import time
from itertools import chain, cycle, islice

from bench.measure import figures, percentile
from bench.turns import MODEL, exchanges
from recto import fit

BUDGETS = (8_000, 32_000, 128_000)
AGAIN = 21


def run(quick: bool) -> list[dict]:
    sizes = (1_000,) if quick else (1_000, 10_000)
    made = list(exchanges(60 if quick else 600))
    fit([message for exchange in made[:40] for message in exchange], BUDGETS[0], model=MODEL)  # loads the vocabulary
    return [_measured(size, budget, made) for size in sizes for budget in BUDGETS]


def _measured(size: int, budget: int, made: list[list[dict]]) -> dict:
    # Messages of their own, so that nothing is known from the budget before.
    messages = [{**message, "name": f"b{budget}"} for message in islice(chain.from_iterable(cycle(made)), size)]
    first = _cpu(messages, budget)
    again = []
    for exchange in islice(cycle(made), AGAIN):
        messages += [dict(message) for message in exchange]
        again.append(_cpu(messages, budget))
    return figures(
        f"recto.fit of {size:,} messages into {budget:,} tokens",
        {"first ms": first * 1e3, "again ms": percentile(again, 0.5) * 1e3},
        f"{len(fit(messages, budget, model=MODEL)):,} messages stay",
        digits=1,
    )


def _cpu(messages: list[dict], budget: int) -> float:
    start = time.thread_time()
    fit(messages, budget, model=MODEL)
    return time.thread_time() - start
