"""Has a model write about messages that will leave soon, on a thread of its own, so that the turn does not wait for it.

What was written ahead is taken when those messages leave; what leaves beside them is told another way. Nothing is
stored from here, and what nobody takes is thrown away.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from recto.context.compaction.writer import EXTRACTIVE, SummaryWriter, WrittenSummary
from recto.context.facts.types import MessageView

_ENOUGH = 0.6
"""The share of what leaves that must have been written about, or it is written anew."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was written about some messages before they left."""

    seqs: frozenset[int]
    written: WrittenSummary


class Ahead:
    """One text that is being written, or waits to be taken."""

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._prepared: Prepared | None = None
        self.idle = threading.Event()
        """Set while nothing is being written."""
        self.idle.set()

    def wants(self, seqs: Collection[int]) -> bool:
        """Whether these are worth a text, because too few of them are covered by one that is there or under way."""
        with self._lock:
            known = self._prepared.seqs if self._prepared else frozenset()
            return self.idle.is_set() and not _covers(known, seqs)

    def begin(self, told: Sequence[MessageView], *, goal: str, tokens: int) -> None:
        """Starts to write; one at a time."""
        with self._lock:
            if not self.idle.is_set() or not told:
                return
            self.idle.clear()
        seqs = frozenset(one.seq for one in told)
        work = threading.Thread(
            target=self._write, args=(seqs, list(told), goal, tokens), name="recto writing ahead", daemon=True
        )
        work.start()

    def take(self, seqs: Collection[int]) -> Prepared | None:
        """What was written about these, if it is about most of them and about nothing else."""
        with self._lock:
            prepared = self._prepared
            if prepared is None or not prepared.seqs <= set(seqs) or not _covers(prepared.seqs, seqs):
                return None
            self._prepared = None
            return prepared

    def _write(self, seqs: frozenset[int], told: list[MessageView], goal: str, tokens: int) -> None:
        try:
            written = self._writer.narrative(told, goal=goal, focus="", tokens=tokens)
            if written.engine != EXTRACTIVE:  # that is made in a moment, and better of all that leaves
                with self._lock:
                    self._prepared = Prepared(seqs, written)
        finally:
            self.idle.set()


def _covers(known: frozenset[int], seqs: Collection[int]) -> bool:
    return len(known.intersection(seqs)) >= _ENOUGH * max(len(seqs), 1)
