"""The address of a client behind reverse proxies, and the scheme that it used.

`X-Forwarded-For` can hold anything that a client wrote. Each proxy appends the address that it saw, so the header is
read from its end: an entry counts only while everything after it was written by a proxy that the settings trust.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

_UNIX = "unix"
"""Represents whatever connects through a Unix socket, in the settings and in the log."""
_MAX_HOPS = 16


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
        peer = (_plain_address(named) or named) if named else _UNIX
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
