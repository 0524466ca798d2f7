"""Doctor: checks that transcript and index agree, explains problems, and repairs the index.

The transcript is never changed. An index that disagrees with it is rebuilt.

The environment is checked too: disk space, file permissions, the clock, and configured endpoints. A check that fails
becomes a finding itself, and the others still run. The caller reads the settings and says what to check.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from recto.concurrency import BackgroundCall
from recto.errors import EmbedderFailed, RectoError
from recto.recall.documents import is_original_message
from recto.recall.indexer import Indexer
from recto.recall.protocols import VectorGraphs
from recto.transcript.entries import EMPTY_HEAD, ChainBreak, Clock, Entry, SessionSummary, verify_chain
from recto.transcript.session_keys import list_sessions
from recto.version import install_command

Grade = Literal["fine", "note", "problem"]
_ORDER: Sequence[Grade] = ("problem", "note", "fine")

REQUIRED_BYTES = 192 * 1024 * 1024
"""Free disk space needed: a full write-ahead log each for transcript and index, and some reserve."""
_MAX_AHEAD = 60_000_000
"""Microseconds that an entry may be ahead of the clock: clocks of machines differ."""
_EARLIEST_TIME = 1_735_689_600_000_000
"""The beginning of 2025: a clock that shows less was never set."""
_CLOCK_SECONDS = 0.005
"""Seconds for which the clock is observed."""
_MAX_JUMP = 1_000_000
"""Microseconds that the clock may be off meanwhile."""
_MAX_NAMED = 5
"""Maximum number of sessions named in a finding."""
_READ_BY_OTHERS, _WRITTEN_BY_OTHERS, _PASSED_BY_OTHERS = stat.S_IROTH, stat.S_IWOTH, stat.S_IXOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """The result of one check."""

    grade: Grade
    about: str
    says: str
    cure: str = ""
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An endpoint that the settings configure."""

    setting: str
    """The setting that names it."""
    url: str
    seconds: float = 5.0

    @property
    def shown(self) -> str:
        """The URL without anything that may be secret."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"


def worst_first(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    """Sort findings by severity."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.grade))


def run_check(about: str, check: Callable[[], Iterable[CheckFinding]]) -> list[CheckFinding]:
    """Run a check. If it fails, return its findings so far and the failure as a finding."""
    findings: list[CheckFinding] = []
    try:
        for finding in check():
            findings.append(finding)  # noqa: PERF402  # findings before a failure are kept
    except RectoError as error:
        findings.append(CheckFinding(grade="problem", about=about, says=str(error), cure=_cure(error)))
    except OSError as error:
        says = f"this could not be looked at: {error.strerror or type(error).__name__} ({error.filename})"
        findings.append(
            CheckFinding(grade="problem", about=about, says=says, cure="see what prevents it, then run it again")
        )
    except Exception as error:  # noqa: BLE001  # the other checks must still run
        # Only its type: the message of an unknown error may contain secrets.
        says = f"this could not be looked at: it broke ({type(error).__name__})"
        findings.append(
            CheckFinding(grade="problem", about=about, says=says, cure="please report this, with 'recto --version'")
        )
    return findings


def _cure(error: RectoError) -> str:
    key = getattr(error, "key", "")
    return f"fix the setting '{key}'" if key else "see what it says"


def check_disk(folder: Path, what: str, required: int = REQUIRED_BYTES) -> Iterator[CheckFinding]:
    """Check the free space of a folder."""
    free = shutil.disk_usage(folder).free
    says = f"{what}: {_format_bytes(free)} free in '{folder}', {_format_bytes(required)} needed"
    if free < required:
        cure = f"free {_format_bytes(required - free)} there, or keep it elsewhere with the setting 'store'"
        yield CheckFinding(grade="problem", about="disk", says=says, cure=cure)
    else:
        yield CheckFinding(grade="fine", about="disk", says=says)


def check_permissions(files: Sequence[Path]) -> Iterator[CheckFinding]:
    """Check that files are writable by this user and not readable by others."""
    existing = [file for file in files if file.exists()]
    wrong = False
    for file in existing:
        needs = os.W_OK | os.X_OK if file.is_dir() else os.W_OK
        if not os.access(file, os.R_OK | needs):
            wrong = True
            says = f"'{file}' cannot be read and written by this user"
            yield CheckFinding(
                grade="problem",
                about="rights",
                says=says,
                cure=f"chown {_user()} '{file}'; chmod u+rwX '{file}'",
            )
    exposed: dict[str, list[Path]] = {}
    for file in existing if os.name == "posix" else ():
        mode = file.stat().st_mode
        open_to = [word for bit, word in ((_READ_BY_OTHERS, "read"), (_WRITTEN_BY_OTHERS, "write")) if mode & bit]
        if file.is_dir():
            open_to = [word for word in open_to if word == "write" and not mode & stat.S_ISVTX]
        if open_to and accessible_to_others(file):
            exposed.setdefault(" and ".join(open_to), []).append(file)
    for what, exposed_files in exposed.items():
        wrong = True
        named = " ".join(f"'{file}'" for file in exposed_files)
        says = f"every user of this machine can {what} {named}"
        yield CheckFinding(grade="problem", about="rights", says=says, cure=f"chmod go= {named}")
    if existing and not wrong:
        yield CheckFinding(grade="fine", about="rights", says="files can be written by this user and read by no other")


def accessible_to_others(file: Path) -> bool:
    """Whether every folder on the path of a file is traversable by every user."""
    return all(folder.stat().st_mode & _PASSED_BY_OTHERS for folder in file.absolute().parents)


def check_clock(system_clock: Clock, sessions: Iterable[SessionSummary]) -> Iterator[CheckFinding]:
    """Check that the clock runs, was set, and is not behind stored entries."""
    first, began = system_clock.now(), time.monotonic_ns()
    time.sleep(_CLOCK_SECONDS)
    now, passed = system_clock.now(), (time.monotonic_ns() - began) // 1000
    cure = "set the clock, and keep it right: timedatectl set-ntp true"
    wrong = ""
    if now <= first:
        wrong = "the clock does not advance or goes backwards"
    elif abs(now - first - passed) > _MAX_JUMP:
        wrong = f"the clock went {(now - first) / 1e6:.1f} s while {passed / 1e6:.3f} s passed"
    elif now < _EARLIEST_TIME:
        wrong = "the clock shows a time before 2025; it was never set"
    if wrong:
        yield CheckFinding(grade="problem", about="clock", says=wrong, cure=cure)
    ahead = [summary for summary in sessions if summary.last_ts > now + _MAX_AHEAD]
    if ahead:
        furthest = max(ahead, key=lambda summary: summary.last_ts)
        named = ", ".join(f"'{summary.session}'" for summary in ahead[:_MAX_NAMED]) + (
            " and others" if len(ahead) > _MAX_NAMED else ""
        )
        lead = _format_duration((furthest.last_ts - now) / 1e6)
        says = f"the newest entry of {named} is dated up to {lead} ahead of the clock"
        advice = f"{cure}. Order is by number and is not touched; ages in recall and in audits are wrong meanwhile"
        yield CheckFinding(grade="problem", about="clock", says=says, cure=advice)
    if not wrong and not ahead:
        yield CheckFinding(grade="fine", about="clock", says="it goes, and nothing is dated ahead of it")


def check_endpoints(addresses: Sequence[Address]) -> Iterator[CheckFinding]:
    """Check that the configured endpoints answer, all at once. No key is sent."""
    calls = [(address, BackgroundCall(partial(_connection_error, address), "recto doctor")) for address in addresses]
    for _, call in calls:
        call.run_within(0)
    until = time.monotonic() + max((address.seconds for address in addresses), default=0.0) + 1.0
    for address, call in calls:
        answered = call.done.wait(max(until - time.monotonic(), 0.0))
        trouble = (call.results[0] if call.results else "it could not be asked") if answered else "no answer in time"
        if trouble:
            cure = f"see the setting '{address.setting}', and whether that server runs and may be reached from here"
            says = f"{address.setting}: {address.shown} is not reached: {trouble}"
            yield CheckFinding(grade="problem", about="reach", says=says, cure=cure)
        else:
            yield CheckFinding(grade="fine", about="reach", says=f"{address.setting}: {address.shown} answers")


def _connection_error(address: Address) -> str:
    """Why an endpoint does not answer; empty if it does. Any response counts."""
    try:
        import httpx2  # noqa: PLC0415  # optional dependency
    except ImportError:
        return f"the package httpx2 is missing; install it with: {install_command('recall')}"
    parts = urlsplit(address.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it is no address such as https://api.example.com/v1"
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    try:
        with httpx2.Client(timeout=address.seconds, follow_redirects=False) as client, client.stream("HEAD", bare):
            return ""
    except httpx2.TimeoutException:
        return f"no answer within {address.seconds:g} s"
    except httpx2.TransportError as error:
        return f"the connection failed ({type(error).__name__})"


def _format_bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _format_duration(seconds: float) -> str:
    for length, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _user() -> str:
    return os.environ.get("USER") or "$USER"


__all__ = ["CheckFinding", "Doctor"]


_SAMPLE_SIZE = 64
"""Entries per session whose index is compared with their text."""


class Doctor:
    """Checks a store and its index."""

    def __init__(
        self, indexer: Indexer, *, advance: Callable[[int], None] = lambda by: None, offline: bool = False
    ) -> None:
        self._indexer = indexer
        self._advance = advance
        self._offline = offline
        """Whether a remote embedder is not contacted."""

    def examine(self, *, repair: bool = False) -> list[CheckFinding]:
        """Return all findings, worst first. With `repair`, the index is repaired."""
        findings = [*run_check("store", self._check_store)]
        if not self._offline:
            findings += run_check("embedder", self._check_embedder)
        return worst_first([*findings, *run_check("index", lambda: self._check_index(repair))])

    def _check_store(self) -> Iterator[CheckFinding]:
        store = self._indexer.store
        damage = store.damage()
        for says in damage:
            cure = "keep the files as they are, then run 'recto verify' to see what is whole"
            yield CheckFinding(grade="problem", about="store", says=says, cure=cure)
        if not damage:
            says = f"{store.location}: the file is whole; 'recto verify' checks every entry"
            yield CheckFinding(grade="fine", about="store", says=says)

    def _check_embedder(self) -> Iterator[CheckFinding]:
        embedder = self._indexer.embedder
        if embedder is None:
            cure = f"{install_command('recall')} && recto models get arctic-embed-s"
            yield CheckFinding(grade="note", about="embedder", says="none: recall goes by words alone", cure=cure)
            return
        try:
            embedder.query("Is it working?")
        except EmbedderFailed as error:
            yield CheckFinding(
                grade="problem", about="embedder", says=error.detail, cure="see the setting recall.embedder"
            )
            return
        yield CheckFinding(grade="fine", about="embedder", says=embedder.name)

    def _check_index(self, repair: bool) -> Iterator[CheckFinding]:
        index = self._indexer.index
        try:
            damage = index.damage()
        except RectoError as error:  # an index that cannot be opened cannot be rebuilt either
            yield CheckFinding(grade="problem", about="index", says=str(error), cure="")
            return
        if damage and repair:
            index.reset()
        for says in damage:
            yield CheckFinding(grade="problem", about="index", says=says, cure="recto doctor --repair", repaired=repair)
        if damage and not repair:
            return  # the content of a damaged index is not checked
        yield from _check_graphs(getattr(index, "graphs", None))
        known = {summary.session for summary in list_sessions(self._indexer.store)}
        for session in index.sessions():
            if session not in known:
                says = f"session '{session}' is in the index and not in the transcript"
                yield self._rebuild(session, says, repair)
        behind = 0
        for session in sorted(known):
            says = self._disagreement(session)
            broken = verify_chain(session, EMPTY_HEAD, self._indexer.store.read(session)) if says else None
            if isinstance(broken, ChainBreak):  # indexed again, it would agree with the index
                says = f"session '{session}': {broken.reason}"
                yield CheckFinding(grade="problem", about="store", says=says, cure="recto verify")
                continue
            if says:
                yield self._rebuild(session, f"session '{session}': {says}", repair)
            missing = self._indexer.backlog(session)
            if repair and any(missing):
                yield from self._catch_up(session)
                missing = self._indexer.backlog(session)
            behind += max(missing)
        if behind:
            says = f"{behind:,} entries are not indexed yet; they are before they leave a prompt"
            yield CheckFinding(grade="note", about="index", says=says, cure="recto index")
        else:
            yield CheckFinding(grade="fine", about="index", says=f"{index.location}: everything is in it")

    def _catch_up(self, session: str) -> Iterator[CheckFinding]:
        try:
            self._indexer.catch_up(session, advance=self._advance)
        except RectoError as error:
            says = f"session '{session}' could not be indexed: {error}"
            yield CheckFinding(grade="problem", about="index", says=says, cure="fix that, then run it again")

    def _rebuild(self, session: str, says: str, repair: bool) -> CheckFinding:
        if repair:
            self._indexer.rebuild(session)
        return CheckFinding(grade="problem", about="index", says=says, cure="recto doctor --repair", repaired=repair)

    def _disagreement(self, session: str) -> str:
        """How the index of a session differs from its transcript; empty if it does not."""
        store = self._indexer.store
        try:
            for covered in self._indexer.covered(session):
                last = next(iter(store.read(session, covered.last, covered.last)), None)
                if last is None:
                    return f"the index knows entry {covered.last}, which is not in the transcript"
                if last.hash != covered.hash:
                    return f"entry {covered.last} is another one than the index has taken in"
            return self._sample_difference(session)
        except RectoError as error:
            return str(error)

    def _sample_difference(self, session: str) -> str:
        head = self._indexer.store.head(session).seq
        for seq in range(1, head + 1, max(head // _SAMPLE_SIZE, 1)):
            entry: Entry | None = next(iter(self._indexer.store.read(session, seq, seq)), None)
            if entry is not None and is_original_message(entry) and not self._indexer.matches(entry):
                return f"what is indexed of entry {seq} is not what it says"
        return ""


def _check_graphs(graphs: VectorGraphs | None) -> Iterator[CheckFinding]:
    """Whether vectors of long sessions are searched by the database."""
    if graphs is None:
        return
    if lacking := graphs.unavailable_reason():
        says = f"no graphs of vectors ({lacking}): long sessions are searched in the gateway, which reads more"
        cure = "CREATE EXTENSION vector, as one who may; then recto store upgrade"
        yield CheckFinding(grade="note", about="index", says=says, cure=cure)
    else:
        yield CheckFinding(grade="fine", about="index", says="vectors of long sessions are found by graphs of pgvector")
