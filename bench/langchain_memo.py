"""Measures LangChain's `trim_messages` with exact, memoized counts, inside LangChain's own environment.

`bench.turns` runs this module. It prints one JSON object: CPU milliseconds of each turn, by size of the history and by
budget.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import chain, cycle, islice

from langchain_core.messages import BaseMessage, convert_to_messages, trim_messages

from bench.turns import MODEL, exchanges
from recto.config import load
from recto.config.factory import make_meter
from recto.formats import DEFAULT_FORMAT


class Counter:
    """Counts each message once, for as long as it lives."""

    def __init__(self) -> None:
        self._meter = make_meter(load(environ={}, arguments={"model": MODEL}))
        self._costs: dict[int, int] = {}
        self._kept: list[BaseMessage] = []
        """An object's number is another's once it is gone."""

    def __call__(self, messages: list[BaseMessage]) -> int:
        costs = self._costs
        return sum(costs[id(message)] if id(message) in costs else self._count(message) for message in messages)

    def _count(self, message: BaseMessage) -> int:
        raw = json.dumps({"role": "user", "content": str(message.content)}).encode()
        self._kept.append(message)
        cost = self._costs[id(message)] = self._meter.message(DEFAULT_FORMAT.messages.read(raw))
        return cost


def main() -> None:
    asked = json.loads(sys.argv[1])
    made = list(exchanges(asked["exchanges"]))
    print(json.dumps({size: _measured(size, asked, made) for size in asked["sizes"]}))


def _measured(size: int, asked: dict, made: list[list[dict]]) -> dict[int, list[float]]:
    distinct = convert_to_messages(list(chain.from_iterable(made)))
    history = list(islice(cycle(distinct), size))
    count = Counter()
    count(distinct)
    following = cycle(made)
    took: dict[int, list[float]] = {}
    for budget in asked["budgets"]:
        times = took[budget] = []
        for _ in range(asked["turns"] if size <= 10_000 else 5):
            new = convert_to_messages(next(following))
            start = time.process_time()
            history += new
            trim_messages(
                history, max_tokens=budget, token_counter=count, strategy="last", start_on="human", include_system=True
            )
            times.append((time.process_time() - start) * 1e3)
    return took


if __name__ == "__main__":
    main()
