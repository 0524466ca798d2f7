"""Where a request comes from: its page and host name, and the client's address behind reverse proxies.

Any web page can make a browser send requests to a local port, also under a host name that was just pointed at it (DNS
rebinding). The browser reports the page (Origin, Sec-Fetch-Site) and the name it connects to (Host): all three must be
right before anything else is looked at. Programs send no Origin, and authenticate with a key.

`X-Forwarded-For` can hold anything that a client wrote. Each proxy appends the address that it saw, so the header is
read from its end: an entry counts only while everything after it was written by a proxy that the settings trust.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from recto.config.settings import GatewaySettings
from recto.errors import RequestRefused
from recto.formats.errors import FORBIDDEN, MALFORMED

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::([0-9]{1,5}))?", re.ASCII)
_ONCE = frozenset(
    (b"host", b"origin", b"authorization", b"x-api-key", b"x-goog-api-key", b"content-type", b"content-length")
) | frozenset((b"transfer-encoding", b"content-encoding", b"sec-fetch-site", b"upgrade"))
"""Headers that two HTTP implementations would read differently if they came twice."""
_MAX_HEADERS = 128
_MAX_HEADER_BYTES = 32 * 1024
_MAX_PATH = 2_048
_MAX_QUERY = 8_192
_UNIX = "unix"
"""Represents whatever connects through a Unix socket, in the settings and in the log."""
_MAX_HOPS = 16
_MAX_PEERS = 1_024
"""Addresses of peers that are remembered."""


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only."""
    if host == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def parse_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by lower-case name. Raises `RequestRefused` for too many, and for duplicates that matter."""
    found: dict[bytes, bytes] = {}
    size = count = 0
    for count, (name, value) in enumerate(raw, 1):
        size += len(name) + len(value) + 4
        if count > _MAX_HEADERS or size > _MAX_HEADER_BYTES:
            raise RequestRefused(431, "headers_too_large", "the headers are too many or too long; send fewer")
        lower = name.lower()
        if lower in found and lower in _ONCE:
            raise RequestRefused(400, MALFORMED, f"the header '{lower.decode('latin-1')}' may stand only once")
        found[lower] = value
    return found


def refuse_ambiguous(method: str, raw_path: bytes, query: bytes, version: str, headers: Mapping[bytes, bytes]) -> None:
    """Raise `RequestRefused` for what two HTTP implementations would read differently, or what is not supported."""
    if method not in METHODS:
        raise RequestRefused(405, "method_not_allowed", f"the methods are {', '.join(METHODS)}")
    if b"transfer-encoding" in headers and (b"content-length" in headers or version == "1.0"):
        raise RequestRefused(400, MALFORMED, "a body has a content-length or a transfer-encoding, not both")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 15:
        raise RequestRefused(400, MALFORMED, "content-length is a number of bytes")
    if b"websocket" in headers.get(b"upgrade", b"").lower():
        raise RequestRefused(400, MALFORMED, "there are no WebSockets here; answers are streamed as server-sent events")
    if len(raw_path) > _MAX_PATH or len(query) > _MAX_QUERY:
        raise RequestRefused(414, "path_too_long", "the path or the query is too long")
    if not query.isascii() or not query.decode().isprintable():
        raise RequestRefused(400, MALFORMED, "the query is not percent-encoded")
    if not is_plain_path(raw_path) or b"\0" in unquote_to_bytes(query):
        raise RequestRefused(400, MALFORMED, "the path is not written plainly: it has no '..', '//', '\\' or '%2F'")


def is_plain_path(raw: bytes) -> bool:
    """Whether a path has one meaning, however often it is decoded or normalized on its way."""
    lower = raw.lower()
    if (
        not raw.isascii()
        or not raw.startswith(b"/")
        or b"//" in raw
        or b"%2f" in lower
        or b"\\" in raw
        or b"%5c" in lower
    ):
        return False
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
    return path.isprintable() and not any(part in (".", "..") for part in path.split("/"))


class OriginPolicy:
    """The host names and origins that one gateway accepts."""

    def __init__(self, gateway: GatewaySettings) -> None:
        self._named = frozenset(name.lower() for name in gateway.hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in gateway.origins)
        own = {"localhost", "127.0.0.1", "[::1]"}
        if is_loopback(gateway.host) and not gateway.host.startswith("unix:"):
            own.add(f"[{gateway.host}]" if ":" in gateway.host else gateway.host)
        self._own = frozenset(own)

    def allowed_origin(self, headers: Mapping[bytes, bytes], port: int | None) -> str:
        """Return the origin of the request if the settings allow it; empty without one, and for the gateway's own page.

        Raises `RequestRefused` for every other origin, and for a host name that is not the gateway's.
        """
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not (is_own := self._is_own(host, port)) and not self._is_named(host):
            text = "this gateway does not answer to the name in 'host'; 'gateway.hosts' lists the names it has"
            raise RequestRefused(403, FORBIDDEN, text)
        site = headers.get(b"sec-fetch-site", b"none").decode("latin-1").strip().lower()
        origin = headers[b"origin"].decode("latin-1").strip().lower() if b"origin" in headers else None
        if origin is not None and origin in self._origins:
            return origin
        same = {f"http://{host}"} if is_own else {f"http://{host}", f"https://{host}"}
        if site not in ("none", "same-origin") or (origin is not None and origin not in same):
            raise RequestRefused(
                403,
                FORBIDDEN,
                "requests from this web page are not allowed; 'gateway.origins' lists the pages that may send them",
            )
        return ""

    def _is_own(self, host: str, port: int | None) -> bool:
        """Whether a host is a loopback name with the port that the gateway listens on."""
        found = _HOST.fullmatch(host)
        if found is None or found[1] not in self._own:
            return False
        return found[2] == str(port) if found[2] else port in (None, 80)

    def _is_named(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        return found is not None and (found[0] in self._named or found[1] in self._named)


class TrustedProxies:
    """The proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Addresses, networks such as `10.0.0.0/8`, or `unix`. Raises `ValueError` for anything else."""
        self._unix = _UNIX in addresses
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(address) for address in addresses if address != _UNIX
        ]

    def client(self, scope: Scope) -> str:
        """Return the address of the client: of the peer, or the one that a trusted peer names."""
        named = (scope.get("client") or ("",))[0]
        peer = _peer_address(named) if named else _UNIX
        if not self._networks and not self._unix:
            return peer
        lines = [value for name, value in scope["headers"] if name.lower() == b"x-forwarded-for"]
        hops = [hop.strip() for hop in b",".join(lines).decode("latin-1").split(",")] if lines else []
        client = peer
        for hop in reversed(hops[-_MAX_HOPS:]):
            if not self._trusts(client) or not (before := _plain_address(hop)):
                break
            client = before
        return client

    def scheme(self, scope: Scope) -> str:
        """Return the scheme of the address that the client used: of the connection, or the one of a trusted peer."""
        named = (scope.get("client") or ("",))[0]
        stated = [value for name, value in scope["headers"] if name.lower() == b"x-forwarded-proto"]
        if stated and stated[-1] in (b"http", b"https") and self._trusts((_plain_address(named) or named) or _UNIX):
            return str(stated[-1], "ascii")
        return str(scope.get("scheme", "http"))

    def _trusts(self, address: str) -> bool:
        if address == _UNIX:
            return self._unix
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)


@lru_cache(_MAX_PEERS)
def _peer_address(named: str) -> str:
    """Return the address of a peer in its usual form, if it is one: the same clients come again and again."""
    return _plain_address(named) or named


def _plain_address(text: str) -> str:
    """Return an address without port and brackets, in its usual form; empty if it is none."""
    text = text.strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return ""
    if isinstance(found, IPv6Address):
        if found.scope_id:
            return ""
        found = found.ipv4_mapped or found
    return str(found)
