"""Puts Recto into the file in which an MCP client keeps its servers, and takes it out again.

Everything else in the file stays, and a file that cannot be read for certain is left as it is.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recto.client_files import as_json, json_in, read_text, refused, write_whole
from recto.core.own_tools import SERVER
from recto.mcp.clients import ASKED, Client, Server, whole


def text_for(client: Client, server: Server) -> str:
    """What `add` would write into a file that is empty."""
    if client.form == "toml":
        return _table(client.within, client.entry(server))
    return json.dumps(whole(client, server), indent=2, ensure_ascii=False) + "\n"


def add(client: Client, server: Server, path: Path) -> Path | None:
    """Adds or replaces Recto in a file. Returns where the file as it was is kept; None where nothing had to be done."""
    before = read_text(path)
    if client.form == "toml":
        known = _toml(before, path)
        held = _servers(known, client, path)
        if held.get(SERVER) == client.entry(server):
            return None
        others = _without_table(before, client.within, known, path) if SERVER in held else before
        return write_whole(path, before, _with_table(others, client, server, path))
    known = json_in(before, path)
    made = _merged(known, whole(client, server), client, path)
    return None if made == known else write_whole(path, before, as_json(made, before))


def remove(client: Client, path: Path) -> Path | None:
    """Takes Recto out of a file. Returns where the file as it was is kept; None where it was not in it."""
    before = read_text(path)
    if client.form == "toml":
        known = _toml(before, path)
        if SERVER not in _servers(known, client, path):
            return None
        return write_whole(path, before, _without_table(before, client.within, known, path))
    known = json_in(before, path)
    if SERVER not in _servers(known, client, path):
        return None
    servers = {name: one for name, one in known[client.within].items() if name != SERVER}
    made = {**known, client.within: servers}
    if client.asks and isinstance(inputs := known.get("inputs"), list):
        made["inputs"] = [one for one in inputs if one != ASKED]
    return write_whole(path, before, as_json(made, before))


def _merged(known: Mapping[str, Any], given: Mapping[str, Any], client: Client, path: Path) -> dict[str, Any]:
    servers = {**_servers(known, client, path), **given[client.within]}
    made = {**known, client.within: servers}
    if asks := given.get("inputs"):
        inputs = known.get("inputs", [])
        if not isinstance(inputs, list):
            raise refused(path, "'inputs' in it is no list")
        made["inputs"] = [*(one for one in inputs if one not in asks), *asks]
    return made


def _servers(known: Mapping[str, Any], client: Client, path: Path) -> dict[str, Any]:
    held = known.get(client.within, {})
    if not isinstance(held, dict):
        raise refused(path, f"'{client.within}' in it is no object")
    return held


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refused(path, f"it is not TOML ({error})") from None


def _table(within: str, entry: Mapping[str, Any]) -> str:
    """An entry as a table; what JSON writes for texts and lists of them is TOML too."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()]
    return "\n".join((f"[{within}.{SERVER}]", *lines, ""))


def _with_table(text: str, client: Client, server: Server, path: Path) -> str:
    """The text with Recto's table behind all that is there."""
    table = _table(client.within, client.entry(server))
    after = f"{text.rstrip()}\n\n{table}" if text.strip() else table
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        raise refused(path, f"'{client.within}' in it is written in a way that nothing can be added to") from None
    return after


def _without_table(text: str, within: str, known: Mapping[str, Any], path: Path) -> str:
    """The text without Recto's table and those below it; everything else is as it was, to the letter."""
    own = re.compile(rf"\s*\[\s*{re.escape(within)}\s*\.\s*\"?{SERVER}\"?\s*(?:\.[^\]]*)?\]\s*(?:#.*)?")
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = own.fullmatch(line.rstrip("\r\n")) is not None
        if not inside:
            kept.append(line)
    after = "".join(kept)
    others = {name: one for name, one in known[within].items() if name != SERVER}
    left = {**known, within: others} if others else {name: one for name, one in known.items() if name != within}
    if _toml(after, path) != left:
        raise refused(path, f"'{within}.{SERVER}' in it is written in a way that cannot be taken out safely")
    return after
