"""A share of one core, and threads that end with the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from recto.concurrency import CpuBudget


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_work_never_takes_more_than_its_share_on_average():
    clock = Clock()
    budget = CpuBudget(0.1, burst=1.0, clock=clock)
    spent = 0.0
    for _ in range(500):
        clock.now += budget.delay() + 0.003  # what is charged is overdrawn, then waited for
        assert budget.delay() == 0.0
        budget.charge(0.4)
        clock.now += 0.4
        spent += 0.4
    assert spent <= 0.1 * (clock.now - 100.0) + 1.0 + 0.4


def test_unused_budget_accumulates_only_up_to_the_burst():
    clock = Clock()
    budget = CpuBudget(0.1, burst=1.0, clock=clock)
    clock.now += 1e6
    budget.charge(1.5)
    assert round(budget.delay(), 6) == 5.0
    clock.now += 5.0
    assert budget.delay() < 1e-6


def test_a_whole_core_has_no_limit():
    budget = CpuBudget(1.0)
    budget.charge(1e9)
    assert budget.delay() == 0.0


EXITS = """
import threading
from recto.concurrency import BackgroundCall, start_thread, stop_at_exit

class Worker:
    def __init__(self):
        self.stopped = threading.Event()
        stop_at_exit(self.stop)
        start_thread(self.run, "worker")
    def stop(self):
        self.stopped.set()
    def run(self):
        self.stopped.wait()
        print("worker ended")

def late():
    call = BackgroundCall(lambda: print("never"), "late")
    assert call.run_within(1)
    print("refused", call.error)

worker = Worker()
print("main ended")
"""


def test_threads_are_stopped_and_joined_before_the_interpreter_ends():
    done = subprocess.run([sys.executable, "-c", EXITS], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["main ended", "worker ended", ""]
    handler_of_another_package = "import atexit\natexit.register(lambda: late())\n"
    done = subprocess.run(
        [sys.executable, "-c", handler_of_another_package + EXITS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == ["main ended", "worker ended", "refused the process is ending", ""]


FORKING = """
import os, threading
from recto.concurrency import undivided_by_fork

begun, finished = threading.Event(), []

def work():
    with undivided_by_fork():
        begun.set()
        finished.append(sum(range(5_000_000)))

threading.Thread(target=work).start()
begun.wait()
child = os.fork()
if not child:
    with undivided_by_fork():
        os._exit(0 if finished else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
child = os.fork()
if not child:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_waits_for_work_that_it_must_not_divide():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
