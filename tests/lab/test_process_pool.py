"""Work in several processes: the order holds, errors arrive as they were, nobody waits for a process that is gone."""

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
def test_what_comes_back_is_in_the_order_of_the_tasks_however_many_work(jobs):
    advanced: list[int] = []
    found = list(in_processes(squared, range(20), jobs, advanced.append, size=lambda task: task))
    assert [square for square, _ in found] == [number * number for number in range(20)]
    assert sum(advanced) == sum(range(20))
    processes = {process for _, process in found}
    assert (processes == {os.getpid()}) is (jobs == 1)


def test_the_first_error_arrives_as_it_was_raised():
    with pytest.raises(MalformedFile, match=r"chat\.json, line 0: it is no JSON") as told:
        list(in_processes(refused, range(3), 2, lambda by: None))
    assert (told.value.source, told.value.line) == ("chat.json", 0)


def test_a_process_that_dies_is_told_of_and_not_waited_for():
    with pytest.raises(RectoError, match="smaller --jobs"):
        list(in_processes(gone, range(3), 2, lambda by: None))
