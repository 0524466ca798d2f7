"""Every error Recto raises on purpose.

A message says what happened, what was stored, and what to do; the attributes carry what a handler needs.

    RectoError
    ├── SettingsError           a setting is unknown or has a wrong value
    ├── InputError              the input cannot be accepted; none of it was stored
    │   ├── MalformedJson       not JSON, or JSON that parsers would read differently
    │   ├── MalformedMessage    JSON, but not a message of the wire format
    │   ├── MalformedFile       a line or document of a file; names the line
    │   ├── NotHeld             a client refers to history that is not stored, or not for its key
    │   ├── IdempotencyKeyReused   an `Idempotency-Key` of a client was used for another request
    │   ├── AttemptRunning      the first attempt of a request is running, and its answer cannot be shared
    │   ├── UpstreamsWrong      no upstream serves that model
    │   ├── UnknownFormat       a file in an unsupported format
    │   ├── FileTooNew          a file written by a newer Recto
    │   ├── TooLarge            above a configured limit
    │   ├── MediaRefused        images, documents or audio that the provider accepts in no request
    │   ├── CheckpointRefused   a checkpoint that is invalid, foreign, stale or of a newer format
    │   ├── WeightsNotTaken     a model's files could not be fetched, or are not the expected ones
    │   ├── MalformedMemory     a file of durable memory; names the line
    │   ├── ProposalRefused     a proposal that cannot become memory: a secret, empty, too long
    │   ├── ApprovalRefused     an approval of other bytes than those shown, or not the first
    │   ├── HookOutOfOrder      a hook of a manager was called before the one that it follows
    │   ├── UnknownCall         a tool result for a call that the model did not make, or that has its result
    │   ├── WrongSession        an async session in a blocking manager, or the other way round
    │   ├── CannotCross         a part has no equivalent in the other wire format; names the part
    │   └── UnknownKey          no API key has that id
    ├── RequestRefused          the gateway rejects a request; carries the HTTP status
    ├── UnknownSession          nothing is stored under that key
    ├── WindowOverflow          the protected messages do not fit the window; names the largest
    ├── EmbedderFailed          text could not be embedded
    ├── ModelFailed             a model returned no usable answer
    ├── DelegationFailed        a sub-agent returned no answer
    └── StoreError
        ├── AppendConflict      `expect` was not the head, or the batch would reorder what is stored
        ├── KeyReused           an idempotency key was reused with other content
        ├── TailCut             the head stored outside the store is ahead of the store
        ├── StoreFull           the disk is full
        ├── StoreReadOnly       the file cannot be written
        ├── StoreLocked         another program holds the store
        │   └── TurnTaken           another program holds the session
        ├── StoreCorrupt        the file is damaged
        ├── StoreTooNew         written by a newer Recto
        ├── StoreUnavailable    cannot be opened, is closed, or an I/O error
        │   └── StoreMissing    nothing was stored there yet
        └── IndexFailed         the recall index, not a transcript; it can be rebuilt
            ├── IndexCorrupt        the index is damaged
            └── IndexUnavailable    cannot be opened or written: disk full, no permission, locked, too new, closed
"""

from __future__ import annotations

from collections.abc import Sequence


class RectoError(Exception):
    """Base of every error Recto raises on purpose."""


class SettingsError(RectoError):
    """A setting is unknown or has a wrong value."""

    def __init__(self, key: str, reason: str, nearest: str | None = None, *, where: str = "") -> None:
        self.key = key
        self.reason = reason
        self.nearest = nearest
        self.where = where
        hint = f" Did you mean '{nearest}'?" if nearest else ""
        super().__init__(f"{f'{where}: ' if where else ''}setting '{key}': {reason}.{hint}")


class InputError(RectoError):
    """The input cannot be accepted; none of it was stored."""


class MalformedJson(InputError):
    """Not JSON, or JSON that parsers would read differently."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        self.reason = reason
        self.offset = offset
        where = "" if offset is None else f" (at character {offset})"
        super().__init__(f"not usable as JSON: {reason}{where}")


class MalformedMessage(InputError):
    """JSON, but not a message of the wire format."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"not a message: {reason}")


class MalformedFile(InputError):
    """A line or document of a file cannot be read; names the line."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        self.source = source
        self.line = line
        self.reason = reason
        super().__init__(
            f"{source}, line {line}: {reason}. Nothing of this file was imported. "
            "Fix the line, or import with --keep-going to keep unreadable lines as they are and read the rest."
        )


class NotHeld(InputError):
    """A client refers to history that is not stored, or not for its key. Nothing was stored."""


class IdempotencyKeyReused(InputError):
    """A client used an `Idempotency-Key` for two requests."""

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was used for a request with another body. The upstream was not called; use a new key."
        )


class AttemptRunning(InputError):
    """A request with the same `Idempotency-Key` is running."""

    def __init__(self) -> None:
        super().__init__("a request with this Idempotency-Key is running, and its answer is too long to be sent twice")


class UpstreamsWrong(InputError):
    """No upstream serves that model. Nothing was stored."""


class UnknownFormat(InputError):
    """A file in an unsupported format."""

    def __init__(self, source: str, known: str, reason: str = "no messages were found in it") -> None:
        self.source = source
        super().__init__(f"{source}: {reason}. Nothing of this file was imported. Recto reads {known}.")


class FileTooNew(InputError):
    """A file written by a newer Recto."""

    def __init__(self, source: str, found: int, known: int) -> None:
        self.source = source
        self.found = found
        self.known = known
        super().__init__(
            f"{source} has format {found}, this Recto knows up to {known}. Nothing of it was imported; "
            "use a newer Recto to read it."
        )


class TooLarge(InputError):
    """Above a configured limit."""

    def __init__(self, what: str, size: int, limit: int, setting: str) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"{what} is {size:,}, the limit is {limit:,}; raise '{setting}' to allow it")


class MediaRefused(InputError):
    """The images, documents or audio of a new message are more than its provider accepts. Nothing was stored."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}. Nothing was stored; send fewer, smaller or shorter ones, or use another model.")


class WeightsNotTaken(InputError):
    """A model's files are missing, could not be fetched, or are not the expected ones. They are not used."""

    def __init__(self, weights: str, reason: str, cure: str) -> None:
        self.weights = weights
        self.reason = reason
        super().__init__(f"weights '{weights}': {reason}. {cure}")


class MalformedMemory(InputError):
    """A file of durable memory cannot be parsed; names the line. The file is unchanged and the others are used."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        self.source = source
        self.line = line
        self.reason = reason
        super().__init__(f"{source}, line {line}: {reason}")


class ProposalRefused(InputError):
    """A proposal that cannot become memory. Nothing was written."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"this cannot become memory: {reason}. Nothing was written.")


class ApprovalRefused(InputError):
    """An invalid approval: of other bytes than those shown, not the first, or of an unknown proposal."""

    def __init__(self, proposal: str, reason: str) -> None:
        self.proposal = proposal
        self.reason = reason
        super().__init__(
            f"proposal '{proposal:.40}': {reason}. Nothing was written; 'recto memory proposals' lists pending ones."
        )


class UnknownKey(InputError):
    """No API key of the gateway has that id. Nothing was changed."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"no key has the id {id!r:.80}. Nothing was changed; 'recto keys list' shows all of them.")


class HookOutOfOrder(InputError):
    """A hook of a manager was called before the one that it follows. Nothing was stored by it."""

    def __init__(self, hook: str, reason: str, cure: str) -> None:
        self.hook = hook
        super().__init__(f"{hook} is out of order: {reason}. Nothing was stored by it; {cure}.")


class UnknownCall(InputError):
    """A tool result for a call that the model did not make, or that has its result. It was not stored."""

    def __init__(self, name: str, id: str | None, reason: str, waiting: Sequence[tuple[str, str]] = ()) -> None:
        self.name = name
        self.id = id
        self.waiting = tuple(waiting)
        """Name and id of the calls that have no result yet."""
        open_calls = ", ".join(f"{tool} ({call})" for tool, call in self.waiting[:8]) or "none"
        which = f"{name!r:.80}" + (f" ({id:.80})" if id else "")
        super().__init__(
            f"a result for {which}: {reason}. It was not stored, and everything before it is. Calls without a result: "
            f"{open_calls}."
        )


class WrongSession(InputError):
    """An async session in a blocking manager, or a blocking one in an async manager. Nothing was stored."""

    def __init__(self, manager: object, session: object) -> None:
        name, given = type(manager).__name__, type(session).__name__
        super().__init__(
            f"{name} cannot manage '{given}'. Nothing was stored; ContextWindowManager takes what recto.open returns, "
            "AsyncContextWindowManager takes what recto.open_async returns."
        )


class CannotCross(InputError):
    """A part of a request or response has no equivalent in the other wire format. Nothing was dropped or sent."""

    def __init__(self, what: str, source: str, target: str) -> None:
        self.what = what
        self.source = source
        self.target = target
        super().__init__(
            f"{what} has no place in '{target}' and would be lost on the way from '{source}'. Nothing was sent. "
            f"Leave it out, or use a model whose upstream speaks '{source}'."
        )


class CheckpointRefused(InputError):
    """A checkpoint that is invalid, of another session, out of date, or of a newer format."""

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__(f"{source} was not taken: {'; '.join(problems)}. Nothing was changed.")


class RequestRefused(RectoError):
    """The gateway rejects a request. Nothing was stored and no upstream was called."""

    def __init__(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        self.status = status
        self.code = code
        """One word for programs: `unauthorized`, `too_large`, `rate_limited`."""
        self.message = message
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; None if it cannot."""
        super().__init__(message)


class UnknownSession(RectoError):
    """Nothing is stored under that key."""

    def __init__(self, session: str, nearest: str | None = None, *, newest: str | None = None) -> None:
        self.session = session
        hint = f" Did you mean '{nearest}'?" if nearest else " 'recto session ls' lists what is stored."
        if newest:
            hint = f" Name one with --session; the newest is '{newest}', and 'recto session ls' lists all."
        super().__init__(f"no session '{session}' in this store.{hint}")


class WindowOverflow(RectoError):
    """The messages that may not be evicted do not fit the window. Nothing was sent.

    Everything is stored, unless a new message alone can never fit: then it is refused before it is stored.
    """

    def __init__(
        self,
        tokens: int,
        room: int,
        holders: Sequence[tuple[str, int]],
        kept_by: str = "",
        *,
        fixed: int = 0,
        stored: bool | None = True,
        pinned: tuple[int, int] = (0, 0),
    ) -> None:
        """`stored` is None where there is no store: the caller's own list of messages does not fit.

        `pinned` is how many messages are pinned or were restored, and their tokens.
        """
        self.tokens = tokens
        self.kept_by = kept_by
        """Why unprotected messages cannot be evicted: messages that could not be recalled stay in the prompt."""
        self.room = room
        self.over = tokens - room
        self.holders = tuple(holders)
        self.needs_larger_window = fixed > room
        """Whether tools, system text and what is kept free for the answer do not fit, without any message."""
        largest = ", ".join(f"{name} {size:,}" for name, size in self.holders[:5])
        why = (
            f"and nothing can be evicted, because it could not be recalled: {kept_by}"
            if kept_by
            else "all of them protected."
        )
        kept = {True: "Everything is stored. ", False: "Nothing was stored. ", None: ""}[stored]
        shorten = (
            "Shorten" if stored is None else "Repair the index, or unpin or shorten" if kept_by else "Unpin or shorten"
        )
        count, size = pinned
        if count:
            kept += f"{count:,} pinned or restored {'message takes' if count == 1 else 'messages take'} {size:,} tokens"
            kept += ": 'unpin' releases what was pinned, and 'redo' what was restored. "
        cure = (
            # "is longer than the model's context length" are words at which clients give up instead of trying again
            f"Without any message it needs {fixed:,}, which is longer than the model's context length, so a shorter "
            "conversation does not help: offer fewer tools, shorten the system text, allow a shorter answer, or use a "
            "model with a larger window."
            if self.needs_larger_window
            else f"{shorten} what is largest, offer fewer tools, or use a model with a larger window."
        )
        super().__init__(
            f"the prompt needs {tokens:,} tokens and may have {room:,}: {self.over:,} too many, {why} "
            f"Largest: {largest}. {kept}{cure}"
        )


class StoreError(RectoError):
    """The store refused or failed; everything acknowledged before is intact."""


class AppendConflict(StoreError):
    """`expect` was not the head, or the batch would reorder what is stored. Nothing was written."""

    def __init__(self, session: str, expected: int | None, actual: int, reason: str = "") -> None:
        self.session = session
        self.expected = expected
        self.actual = actual
        why = reason or f"expected the last entry to be {expected}, it is {actual}"
        super().__init__(f"session '{session}': {why}. Nothing was written; read what is new and append again.")


class KeyReused(StoreError):
    """An idempotency key was reused with other content. Nothing was written."""

    def __init__(self, session: str, key: str, seq: int) -> None:
        self.session = session
        self.key = key
        self.seq = seq
        super().__init__(
            f"session '{session}': key '{key}' already belongs to entry {seq}, which has other content. "
            "Nothing was written; use a new key for a new message."
        )


class TailCut(StoreError):
    """The head stored outside the store is ahead of the store: entries are missing at the end."""

    def __init__(self, session: str, kept: int, found: int) -> None:
        self.session = session
        self.kept = kept
        self.found = found
        super().__init__(
            f"session '{session}' ends at entry {found}, but {kept} entries were acknowledged: its end was cut off. "
            "Nothing was written. Restore the file from a copy; if an older copy was put back on purpose, "
            "accept it with 'recto verify --accept'."
        )


class StoreFull(StoreError):
    """The disk is full. Nothing of this append was written; everything before it is safe and readable."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"no disk space left to write '{path}'. Nothing of this append was written; everything before it is safe "
            "and readable. Free some space and append again."
        )


class StoreReadOnly(StoreError):
    """The file cannot be written; reading still works."""

    def __init__(self, path: str, reason: str = "the file or its folder is read-only") -> None:
        self.path = path
        super().__init__(f"'{path}' can be read but not written: {reason}. Make it writable or name another store.")


class StoreLocked(StoreError):
    """Another program holds the store. Nothing was written; reading still works."""

    def __init__(self, path: str, seconds: float) -> None:
        self.path = path
        super().__init__(
            f"another program has held '{path}' for {seconds:g} s. Nothing was written; "
            "close that program (or end its transaction) and append again."
        )


class TurnTaken(StoreLocked):
    """Another program holds the session. Nothing was written; reading still works."""

    def __init__(self, session: str, path: str) -> None:
        self.session = session
        self.path = path
        text = f"session '{session}': another program runs a turn. Nothing was written; try again when it has ended."
        RectoError.__init__(self, text)


class StoreCorrupt(StoreError):
    """The file is damaged."""

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(
            f"'{path}' is damaged ({detail}). Keep the file and its -wal and -heads neighbours as they are, run "
            "'recto verify' to see what is intact, 'recto session export' what can be read, and restore the rest from "
            "a copy."
        )


class StoreTooNew(StoreError):
    """Written by a newer Recto."""

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path = path
        self.found = found
        self.known = known
        super().__init__(
            f"'{path}' has schema {found}, this Recto knows up to {known}. The file was left untouched; "
            "use a newer Recto to write it."
        )


class StoreUnavailable(StoreError):
    """Cannot be opened, is closed, or failed with an I/O error."""

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(f"'{path}': {detail}")


class StoreMissing(StoreUnavailable):
    """Nothing was stored there yet."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no store here; check the name")


class IndexFailed(StoreError):
    """The recall index refused or failed. Transcripts are not affected, and it can be rebuilt from them."""

    def __init__(self, path: str, detail: str, text: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(text)


class IndexCorrupt(IndexFailed):
    """The index is damaged."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            path,
            detail,
            f"the recall index '{path}' is damaged ({detail}). No message is lost: 'recto doctor --repair' sets it "
            "aside and rebuilds it from the transcripts.",
        )


class IndexUnavailable(IndexFailed):
    """The index cannot be opened or written, or is closed."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(
            path,
            detail,
            f"the recall index '{path}' cannot be used: {detail}. No message is lost; if this stays so, "
            "'recto doctor --repair' rebuilds the index from the transcripts.",
        )


class EmbedderFailed(RectoError):
    """Text could not be embedded. Recall uses word search alone until the embedder works again."""

    def __init__(self, embedder: str, detail: str) -> None:
        self.embedder = embedder
        self.detail = detail
        super().__init__(
            f"embedder '{embedder}': {detail}. Recall searches by words only; no message is evicted before its "
            "words are indexed. 'recto doctor' shows what is missing."
        )


class ModelFailed(RectoError):
    """A model returned no usable answer. Its task is done without it."""

    def __init__(self, model: str, detail: str) -> None:
        self.model = model
        self.detail = detail
        super().__init__(f"model '{model}': {detail}. Nothing was lost; text was shortened by rule instead.")


class DelegationFailed(RectoError):
    """A sub-agent returned no answer. Its transcript so far is stored."""

    def __init__(self, session: str, detail: str) -> None:
        self.session = session
        self.detail = detail
        super().__init__(f"the sub-agent of session '{session}' failed: {detail}. What it wrote is kept there.")
