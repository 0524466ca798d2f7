"""Downloads of model files whose size and SHA-256 are known: from the publisher's hub, or from a mirror of it.

A mirror has the paths of the hub: `{mirror}/{owner}/{model}/resolve/{revision}/{file}`, as artifact servers have that
cache it.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from typing import IO, BinaryIO, Final
from urllib.parse import urlsplit

from recto.errors import SettingsError
from recto.version import __version__

_SECONDS: Final = 30.0
"""How long a connection may be silent."""
_PIECE: Final = 1 << 20


class Unreachable(Exception):
    """A file could not be had from a source: the next one is tried."""


def base_of(mirror: str) -> str:
    """Return the address of a mirror as files are fetched from it. Raises `SettingsError`."""
    if not _is_safe(mirror):
        raise SettingsError("weights.mirror", "begins with https://, without name and password, or is on this machine")
    return mirror.rstrip("/")


def download(url: str, to: BinaryIO, *, size: int, tell: Callable[[int], object]) -> str:
    """Write a file of at most `size` bytes and one, and return its SHA-256. Raises `Unreachable`."""
    request = urllib.request.Request(url, headers={"User-Agent": f"recto/{__version__}"})  # noqa: S310  # see _is_safe
    digest, left = hashlib.sha256(), size + 1
    try:
        with urllib.request.build_opener(_SafeRedirects).open(request, timeout=_SECONDS) as response:
            while left and (content := response.read(min(_PIECE, left))):
                digest.update(content)
                to.write(content)
                tell(len(content))
                left -= len(content)
    except urllib.error.HTTPError as error:
        error.close()
        raise Unreachable(f"{_host(url)} answered with status {error.code}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", "") or error
        raise Unreachable(f"{_host(url)} cannot be reached ({' '.join(str(reason).split())[:200]})") from None
    return digest.hexdigest()


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, which the hub answers with, to addresses that are encrypted or on this machine."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if not _is_safe(newurl):
            raise urllib.error.URLError("it redirects to an address without encryption")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if not parts.hostname or parts.username is not None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_local(parts.hostname))


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host(url: str) -> str:
    return urlsplit(url).netloc
