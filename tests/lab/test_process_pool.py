"""Work in several processes: results keep their order, errors keep their type, and a dead process is not waited for."""

from __future__ import annotations

import os

import pytest

from recto.errors import MalformedFile, RectoError
from recto.lab.process_pool import in_processes


def squared(task: int, advance) -> tuple[int, int]:
    advance(task)
    return task * task, os.getpid()


def refused(task: int, advance) -> int:
    raise MalformedFile("chat.json", task, "it is no JSON")


def gone(task: int, advance) -> int:
    os._exit(9)


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_keep_the_order_of_the_tasks_for_any_number_of_processes(jobs):
    advanced: list[int] = []
    found = list(in_processes(squared, range(20), jobs, advanced.append, size=lambda task: task))
    assert [square for square, _ in found] == [number * number for number in range(20)]
    assert sum(advanced) == sum(range(20))
    processes = {process for _, process in found}
    assert (processes == {os.getpid()}) is (jobs == 1)


def test_the_first_error_is_raised_unchanged():
    with pytest.raises(MalformedFile, match=r"chat\.json, line 0: it is no JSON") as raised:
        list(in_processes(refused, range(3), 2, lambda by: None))
    assert (raised.value.source, raised.value.line) == ("chat.json", 0)


def test_a_dead_process_is_reported_and_not_waited_for():
    with pytest.raises(RectoError, match="smaller --jobs"):
        list(in_processes(gone, range(3), 2, lambda by: None))
