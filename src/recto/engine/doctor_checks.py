"""What the doctor looks at beside transcript and index: the disk, rights, the clock, and whether somebody answers.

Each check yields findings in words, with a cure where something is wrong. One that breaks is a finding itself: the
others are looked at all the same. It does not know settings; whoever reads them says what to look at.
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
from recto.errors import RectoError
from recto.transcript.entries import SessionSummary
from recto.transcript.protocols import Clock

Grade = Literal["fine", "note", "problem"]
_ORDER: Sequence[Grade] = ("problem", "note", "fine")

NEEDED = 192 * 1024 * 1024
"""Bytes that should be free: a write-ahead log of full length for the transcript and one for the index, and some."""
_AHEAD = 60_000_000
"""Microseconds that an entry may be ahead of the clock: machines differ by so much."""
_BUILT = 1_735_689_600_000_000
"""The beginning of 2025, before which Recto was not there: a clock that shows less was never set."""
_LOOK = 0.005
"""Seconds for which it is watched whether the clock goes."""
_JUMP = 1_000_000
"""Microseconds that it may be off meanwhile."""
_TOLD = 5
"""Sessions that are named, where there are many."""
_READ_BY_OTHERS, _WRITTEN_BY_OTHERS, _PASSED_BY_OTHERS = stat.S_IROTH, stat.S_IWOTH, stat.S_IXOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """One thing that was looked at."""

    grade: Grade
    about: str
    says: str
    cure: str = ""
    mended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Somewhere that is asked while working."""

    setting: str
    """The setting that names it."""
    url: str
    seconds: float = 5.0

    @property
    def shown(self) -> str:
        """As it may be told: without what could be secret in it."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"


def worst_first(found: Iterable[CheckFinding]) -> list[CheckFinding]:
    """Findings in the order in which people want to read them."""
    return sorted(found, key=lambda finding: _ORDER.index(finding.grade))


def isolated(about: str, check: Callable[[], Iterable[CheckFinding]]) -> list[CheckFinding]:
    """What a check finds. Where it breaks, what it found by then and that it broke."""
    found: list[CheckFinding] = []
    try:
        for one in check():
            found.append(one)  # noqa: PERF402  # what came before it broke counts
    except RectoError as error:
        found.append(CheckFinding(grade="problem", about=about, says=str(error), cure=_cure(error)))
    except OSError as error:
        says = f"this could not be looked at: {error.strerror or type(error).__name__} ({error.filename})"
        found.append(
            CheckFinding(grade="problem", about=about, says=says, cure="see what stands in the way, then again")
        )
    except Exception as error:  # noqa: BLE001  # a doctor who faints helps nobody
        # Only its kind: what the message of a strange error holds is not known.
        says = f"this could not be looked at: it broke ({type(error).__name__})"
        found.append(
            CheckFinding(grade="problem", about=about, says=says, cure="please report this, with 'recto --version'")
        )
    return found


def _cure(error: RectoError) -> str:
    key = getattr(error, "key", "")
    return f"mend the setting '{key}'" if key else "see what it says"


def disk(folder: Path, what: str, needed: int = NEEDED) -> Iterator[CheckFinding]:
    """Whether there is room where something is kept."""
    free = shutil.disk_usage(folder).free
    says = f"{what}: {_size(free)} free in '{folder}', {_size(needed)} needed"
    if free < needed:
        cure = f"free {_size(needed - free)} there, or keep it elsewhere with the setting 'store'"
        yield CheckFinding(grade="problem", about="disk", says=says, cure=cure)
    else:
        yield CheckFinding(grade="fine", about="disk", says=says)


def rights(files: Sequence[Path]) -> Iterator[CheckFinding]:
    """Whether files can be written by us, and read by nobody else."""
    there = [file for file in files if file.exists()]
    wrong = False
    for file in there:
        needs = os.W_OK | os.X_OK if file.is_dir() else os.W_OK
        if not os.access(file, os.R_OK | needs):
            wrong = True
            says = f"'{file}' cannot be read and written by this user"
            yield CheckFinding(
                grade="problem", about="rights", says=says, cure=f"chown {_user()} '{file}'; chmod u+rwX '{file}'"
            )
    shown: dict[str, list[Path]] = {}
    for file in there if os.name == "posix" else ():
        mode = file.stat().st_mode
        open_to = [word for bit, word in ((_READ_BY_OTHERS, "read"), (_WRITTEN_BY_OTHERS, "write")) if mode & bit]
        if file.is_dir():
            open_to = [word for word in open_to if word == "write" and not mode & stat.S_ISVTX]
        if open_to and reached_by_others(file):
            shown.setdefault(" and ".join(open_to), []).append(file)
    for what, those in shown.items():
        wrong = True
        named = " ".join(f"'{file}'" for file in those)
        says = f"every user of this machine can {what} {named}"
        yield CheckFinding(grade="problem", about="rights", says=says, cure=f"chmod go= {named}")
    if there and not wrong:
        yield CheckFinding(grade="fine", about="rights", says="files can be written by this user and read by no other")


def reached_by_others(file: Path) -> bool:
    """Whether every folder on the way to a file lets every user pass."""
    return all(folder.stat().st_mode & _PASSED_BY_OTHERS for folder in file.absolute().parents)


def clock(ours: Clock, sessions: Iterable[SessionSummary]) -> Iterator[CheckFinding]:
    """Whether the clock goes, was ever set, and is not behind what was stored already."""
    first, began = ours.now(), time.monotonic_ns()
    time.sleep(_LOOK)
    now, passed = ours.now(), (time.monotonic_ns() - began) // 1000
    cure = "set the clock, and keep it right: timedatectl set-ntp true"
    wrong = ""
    if now <= first:
        wrong = "the clock stands still or goes backwards"
    elif abs(now - first - passed) > _JUMP:
        wrong = f"the clock went {(now - first) / 1e6:.1f} s while {passed / 1e6:.3f} s passed"
    elif now < _BUILT:
        wrong = "the clock shows a time before 2025; it was never set"
    if wrong:
        yield CheckFinding(grade="problem", about="clock", says=wrong, cure=cure)
    ahead = [one for one in sessions if one.last_ts > now + _AHEAD]
    if ahead:
        furthest = max(ahead, key=lambda one: one.last_ts)
        named = ", ".join(f"'{one.session}'" for one in ahead[:_TOLD]) + (" and others" if len(ahead) > _TOLD else "")
        says = f"the newest entry of {named} is dated up to {_span((furthest.last_ts - now) / 1e6)} ahead of the clock"
        told = f"{cure}. Order is by number and is not touched; ages in recall and in audits are wrong meanwhile"
        yield CheckFinding(grade="problem", about="clock", says=says, cure=told)
    if not wrong and not ahead:
        yield CheckFinding(grade="fine", about="clock", says="it goes, and nothing is dated ahead of it")


def reach(addresses: Sequence[Address]) -> Iterator[CheckFinding]:
    """Whether somebody answers at the addresses that are configured, all asked at once. No key is sent."""
    calls = [(address, BackgroundCall(partial(_trouble, address), "recto doctor")) for address in addresses]
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


def _trouble(address: Address) -> str:
    """Why there is no answer; nothing where there is one. Any answer will do: nothing was asked for."""
    try:
        import httpx2  # noqa: PLC0415  # only for who has an address
    except ImportError:
        return "the package httpx2 is missing; install it with: pip install httpx2"
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


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _span(seconds: float) -> str:
    for length, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _user() -> str:
    return os.environ.get("USER") or "$USER"
