"""The store for a command that only looks: the replica that the settings name, while it is not too far behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from recto.cli.screen import err
from recto.ports import TranscriptStore
from recto.settings import Settings
from recto.storing import open_store, replica_of


@contextmanager
def open_to_look(settings: Settings) -> Iterator[TranscriptStore]:
    """A store that is there, to be read. How old it may be is told beside what the command says."""
    with closing(open_store(settings, create=False)) as store:
        replica = replica_of(settings, store)
        if replica is None:
            yield store
            return
        with closing(replica):
            replica.look()
            age = replica.age()
            if age is None:
                yield store
            else:
                err.print(f"read from a replica; it may be {age:.1f} s old", markup=False, highlight=False)
                yield replica.store
