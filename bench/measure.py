"""Helpers that the sections share: rows of a table, a timer, percentiles, peak memory."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from itertools import groupby

from rich.console import Console

TEXTS = ("what", "unit", "note")
"""Columns that are no figures."""


def row(what: str, value: float, unit: str, note: str = "", digits: int = 0) -> dict:
    return {"what": what, "value": value, "unit": unit, "note": note, "digits": digits}


def figures(what: str, values: Mapping[str, float | None], note: str = "", digits: int = 3) -> dict:
    """A row with several values, each in a column of its own; None where there was nothing to measure."""
    return {"what": what, "figures": dict(values), "note": note, "digits": digits}


def tables(rows: list[dict]) -> list[tuple[list[str], list[list[str]]]]:
    """The rows as text, with the names of their columns; those that follow each other with the same ones together."""
    return [(columns, [_cells(one) for one in some]) for columns, some in groupby(rows, key=_columns)]


def _columns(one: dict) -> list[str]:
    return ["what", *one["figures"], "note"] if "figures" in one else ["what", "value", "unit", "note"]


def _cells(one: dict) -> list[str]:
    if "figures" not in one:
        return [one["what"], f"{one['value']:,.{one['digits']}f}", one["unit"], one["note"]]
    values = [_figure(value, one["digits"]) for value in one["figures"].values()]
    return [one["what"], *values, one["note"]]


def _figure(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{0 if isinstance(value, int) else digits}f}"


def progress() -> Console:
    """Where progress is shown: beside the results, which go to the standard output."""
    return Console(stderr=True)


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
