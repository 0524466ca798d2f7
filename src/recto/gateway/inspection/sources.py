"""Where the inspection API reads: the store, or a replica of it that is not too far behind.

Only what is told of the past may come from the replica. What a turn is built from, what may be done and by whom, and
what would be sent now are always the store's.
"""

from __future__ import annotations

from dataclasses import dataclass

from recto.errors import RectoError, StoreError
from recto.gateway.inspection.operations import Operation
from recto.gateway.inspection.params import ParsedCall
from recto.gateway.inspection.queries import Inspection
from recto.transcript.protocols import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """What was found."""

    found: object
    age: float | None = None
    """Seconds by which it may be old, at most; None where it is the store's."""


class Sources:
    """The store that is asked, and the replica that is asked in its place where it may be."""

    def __init__(self, store: Inspection, replica: Replica | None = None) -> None:
        self._store = store
        self._replica = replica
        self._copy = None if replica is None else store.over(replica.store)

    def answer(self, one: Operation, call: ParsedCall) -> SourceResult:
        """What an operation finds. What the replica does not know yet, or cannot do, the store is asked for."""
        if self._replica is None or self._copy is None or not one.of_the_past(call):
            return SourceResult(found=one.does(self._store, call))
        age = self._replica.age(self._store.named(call))
        if age is not None:
            try:
                return SourceResult(found=one.does(self._copy, call), age=age)
            except StoreError as error:
                self._replica.failed(error)
            except RectoError:
                pass
        return SourceResult(found=one.does(self._store, call))

    def close(self) -> None:
        """Lets go of the sessions that are open on the replica."""
        if self._copy is not None:
            self._copy.sessions.close()
