"""Chooses where an operation reads: from the store, or from a replica that is not too far behind.

Only history may come from the replica. The current prompt, rights and every change always use the store.
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
    """A result and how old it may be."""

    result: object
    age: float | None = None
    """Seconds that it may be behind, at most; None where it was read from the store."""


class Sources:
    """The store, and the replica that is read instead where an operation allows it."""

    def __init__(self, store: Inspection, replica: Replica | None = None) -> None:
        self._store = store
        self._replica = replica
        self._replicated = None if replica is None else store.over(replica.store)

    def run(self, operation: Operation, call: ParsedCall) -> SourceResult:
        """Run an operation. Where the replica fails or does not have the data yet, the store is read."""
        if self._replica is None or self._replicated is None or not operation.reads_history(call):
            return SourceResult(result=operation.handler(self._store, call))
        age = self._replica.age(self._store.session_key(call))
        if age is not None:
            try:
                return SourceResult(result=operation.handler(self._replicated, call), age=age)
            except StoreError as error:
                self._replica.failed(error)
            except RectoError:
                pass
        return SourceResult(result=operation.handler(self._store, call))

    def close(self) -> None:
        """Close the sessions that are open on the replica."""
        if self._replicated is not None:
            self._replicated.sessions.close()
