"""Where the work stands, loaded and held against the environment, and told as the first page of a new window.

Nothing is trusted in silence: a checkpoint is validated before it is taken, and what has changed around the work since
is told as drift.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from recto.core.checkpoint_json import LARGEST, checkpoint_from
from recto.core.drift import Drift, drift_of
from recto.core.handoff import Page, resume_page
from recto.core.sections import CountText
from recto.core.task_state import Checkpoint, Environment
from recto.core.window import WindowState
from recto.engine.checkpoints import Checkpoints
from recto.engine.environment import Lookout
from recto.errors import CheckpointRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where the work stands, and what is told of it first."""

    checkpoint: Checkpoint
    drift: tuple[Drift, ...]
    page: Page


def read_checkpoint(path: str | Path, *, session: str = "", newest: tuple[int, int] | None = None) -> Checkpoint:
    """The checkpoint in a file. Raises `CheckpointRefused` for one that cannot be taken."""
    try:
        with Path(path).expanduser().open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise CheckpointRefused(f"'{path}'", [f"it cannot be read ({error.strerror})"]) from None
    return checkpoint_from(raw, source=f"'{path}'", session=session, newest=newest)


def resumed(
    checkpoint: Checkpoint, lookout: Lookout | None, *, most: int, count: CountText, pointer: str = ""
) -> Resumed:
    """A checkpoint held against the environment as it is now, and the first page of a new window. Stores nothing."""
    drift = drift_of(checkpoint.environment, _now(checkpoint, lookout))
    page = resume_page(checkpoint, drift, window=checkpoint.window + 1, pointer=pointer, most=most, count=count)
    return Resumed(checkpoint=checkpoint, drift=drift, page=page)


def opened(
    checkpoints: Checkpoints, state: WindowState, source: Checkpoint | None, *, pointer: str, most: int
) -> tuple[Checkpoint, Page]:
    """The checkpoint a new window begins with, and its first page. `source` is one that was kept outside."""
    before = source or checkpoints.load(state)
    foreign = source if source is not None and not checkpoints.holds(source) else None
    made = checkpoints.made(state, reason="a new window", over=foreign)
    made = replace(made, window=made.window + 1)
    drift = drift_of(before.environment, _now(before, checkpoints.lookout)) if before else ()
    page = resume_page(
        made,
        drift,
        window=made.window,
        said=checkpoints.last_words(state),
        pointer=pointer,
        most=most,
        count=checkpoints.count,
    )
    return made, page


def _now(checkpoint: Checkpoint, lookout: Lookout | None) -> Environment:
    """The environment as it is, with the files and services that a checkpoint names."""
    then = checkpoint.environment
    if lookout is None:
        return Environment()
    return lookout.look([file.path for file in then.paths], [service.address for service in then.services])
