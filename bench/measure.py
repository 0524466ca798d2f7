"""What the sections share: a row of a table, a timer, percentiles, peak memory."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable


def row(what: str, value: float, unit: str, note: str = "", digits: int = 0) -> dict:
    return {"what": what, "value": value, "unit": unit, "note": note, "digits": digits}


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def peak_memory_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform != "darwin" else 1024 * 1024)


def machine() -> dict:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
