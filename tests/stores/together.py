"""Several threads that begin at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_threads(count: int, work: Callable[[int], None]) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except Exception as error:  # noqa: BLE001  # shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
