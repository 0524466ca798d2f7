"""SQL statements, and the mapping between rows and entries. Their text never varies, so that SQLite caches them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import apsw

from recto.transcript.entries import (
    MAX_SEQ,
    OPENING_BYTES,
    OPENING_ENTRIES,
    OPENING_MESSAGES,
    PAST_TITLE_KEYS,
    TITLE_KEY,
    Entry,
    Head,
    SessionSummary,
    entry_of_values,
)
from recto.transcript.hash_chain import EMPTY_HEAD

PAGE_ENTRIES = 500
PAGE_TERMS = 4096
PAGE_BYTES = 8 * 2**20
"""Limits of a page; so messages of 100 MB are read one at a time."""

_LARGE = 2**20
_COLUMNS = "pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, hash, content"
_NUMBER = "SELECT session_no FROM sessions WHERE session = ?"
_LAST_NUMBER = "SELECT max(session_no) FROM sessions"
_NAME = "SELECT session FROM sessions WHERE session_no = ?"
_HEAD = "SELECT pos, hash FROM entries WHERE pos BETWEEN ? AND ? ORDER BY pos DESC LIMIT 1"
_HEAD_BY_NAME = """
SELECT pos, hash FROM entries WHERE pos BETWEEN (SELECT session_no << 32 FROM sessions WHERE session = ?1)
  AND (SELECT session_no << 32 | 4294967295 FROM sessions WHERE session = ?1) ORDER BY pos DESC LIMIT 1
"""
_HASH = "SELECT hash FROM entries WHERE pos = ?"
_PAGE = f"SELECT {_COLUMNS} FROM entries WHERE pos BETWEEN ? AND ? ORDER BY pos LIMIT ?"  # noqa: S608  # a constant
_PLACES = "SELECT (SELECT session_no << 32 FROM sessions WHERE session = ?1) | value FROM json_each(?2)"
_PICKED = f"SELECT {_COLUMNS} FROM entries WHERE pos IN ({_PLACES}) ORDER BY pos"  # noqa: S608  # a constant
_TAIL = f"SELECT {_COLUMNS} FROM entries WHERE pos BETWEEN ? AND ? ORDER BY pos DESC LIMIT ?"  # noqa: S608  # a constant
_BY_ID = f"SELECT {_COLUMNS} FROM entries WHERE session_no = ? AND id = ?"  # noqa: S608  # a constant
_BY_KEY = f"SELECT {_COLUMNS} FROM entries WHERE session_no = ? AND key = ?"  # noqa: S608  # a constant
_ADD_SESSION = "INSERT INTO sessions VALUES (?, ?)"
_ADD_ENTRIES = f"INSERT INTO entries({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # a constant
_TERMS = "SELECT pos, data FROM terms WHERE pos BETWEEN ? AND ? ORDER BY pos LIMIT ?"
_PICKED_TERMS = f"SELECT pos, data FROM terms WHERE pos IN ({_PLACES}) ORDER BY pos"  # noqa: S608  # a constant
_ADD_TERMS = "INSERT OR REPLACE INTO terms(pos, data) VALUES (?, ?)"
_ADD_LATE_TERMS = """
INSERT OR REPLACE INTO terms(pos, data) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM entries WHERE pos = ?1 AND hash = ?3)
"""
_LACKING_TERMS = """
SELECT pos & 4294967295 FROM entries AS e WHERE pos BETWEEN ? AND ? AND kind = 'message'
  AND NOT EXISTS (SELECT 1 FROM terms AS t WHERE t.pos = e.pos AND substr(t.data, 1, ?) = ?) ORDER BY pos LIMIT ?
"""
_SESSIONS = """
SELECT session, last & 4294967295, (SELECT ts FROM entries WHERE pos = first), (SELECT ts FROM entries WHERE pos = last)
FROM (
  SELECT session,
    (SELECT min(pos) FROM entries WHERE pos BETWEEN s.session_no << 32 AND s.session_no << 32 | 4294967295) AS first,
    (SELECT max(pos) FROM entries WHERE pos BETWEEN s.session_no << 32 AND s.session_no << 32 | 4294967295) AS last
  FROM sessions AS s WHERE session > ? ORDER BY session
)
WHERE last IS NOT NULL LIMIT ?
"""
_NEWEST_TITLE = f"""
SELECT {_COLUMNS} FROM entries INDEXED BY entries_by_key
WHERE session_no = ? AND key >= '{TITLE_KEY}' AND key < '{PAST_TITLE_KEYS}' ORDER BY pos DESC LIMIT 1
"""  # noqa: S608  # of constants
_OPENING = f"""
SELECT {_COLUMNS} FROM entries WHERE pos BETWEEN ? AND ? AND role = 'user' AND kind = 'message'
  AND length(content) <= {OPENING_BYTES} ORDER BY pos LIMIT {OPENING_MESSAGES}
"""  # noqa: S608  # of constants
_ALL_HEADS = """
SELECT session_no, session, last & 4294967295, (SELECT hash FROM entries WHERE pos = last)
FROM (
  SELECT session_no, session,
    (SELECT max(pos) FROM entries WHERE pos BETWEEN s.session_no << 32 AND s.session_no << 32 | 4294967295) AS last
  FROM sessions AS s
)
WHERE last IS NOT NULL
"""
_LOST_NUMBERS = """
WITH RECURSIVE held(number) AS (
  SELECT min(pos) >> 32 FROM entries
  UNION ALL
  SELECT (SELECT min(pos) >> 32 FROM entries WHERE pos >= (number + 1) << 32) FROM held WHERE number IS NOT NULL
)
SELECT number FROM held WHERE number IS NOT NULL AND number NOT IN (SELECT session_no FROM sessions)
"""
_TYPES = (int, str, int, str, str, str, str, int, str, str, bytes, bytes, bytes, bytes)
_ROW_TYPES = frozenset((_TYPES, (*_TYPES[:9], type(None), *_TYPES[10:])))
"""The types of the values of an entry, with a key and without."""


def number_of(connection: apsw.Connection, session: str) -> int | None:
    """Return the number of a session in this file."""
    number: int | None = connection.execute(_NUMBER, (session,)).get
    return number


def last_number(connection: apsw.Connection) -> int:
    """Return the highest session number in use."""
    number: int | None = connection.execute(_LAST_NUMBER).get
    return number or 0


def name_of(connection: apsw.Connection, number: int) -> str | None:
    """Return the key of a session number."""
    name: str | None = connection.execute(_NAME, (number,)).get
    return name


def head_of(connection: apsw.Connection, number: int) -> Head:
    """Return the head of a session."""
    return _head(connection.execute(_HEAD, _range(number, 0, MAX_SEQ)).fetchone())


def head_by_name(connection: apsw.Connection, session: str) -> Head:
    """Return the head of a session, empty if there is none: in one query, because every prompt asks for it."""
    return _head(connection.execute(_HEAD_BY_NAME, (session,)).fetchone())


def _head(row: tuple[Any, ...] | None) -> Head:
    if row and type(row[1]) is not bytes:
        raise apsw.CorruptError(f"the hash of entry {row[0] & MAX_SEQ} is of a wrong type")
    return Head(row[0] & MAX_SEQ, row[1]) if row else EMPTY_HEAD


def hash_at(connection: apsw.Connection, number: int, seq: int) -> bytes | None:
    """Return the hash of one entry."""
    digest: bytes | None = connection.execute(_HASH, (number << 32 | seq,)).get
    return digest


def page(connection: apsw.Connection, session: str, number: int, start: int, stop: int) -> list[Entry]:
    """Read a page of entries between `start` and `stop`. Empty only at the end."""
    found, size = [], 0
    cursor = connection.execute(_PAGE, (*_range(number, start, stop), PAGE_ENTRIES))
    for row in cursor:
        entry = _entry(session, row)
        found.append(entry)
        size += len(entry.content) + len(entry.meta)
        if size >= PAGE_BYTES:
            break
    cursor.close()  # ends the read transaction, also where rows are left
    return found


def picked(connection: apsw.Connection, session: str, seqs: Collection[int]) -> list[Entry]:
    """Return the entries of a session with these numbers, in order; missing ones are skipped."""
    rows = connection.execute(_PICKED, (session, json.dumps(list(seqs))))
    return [_entry(session, row) for row in rows]


def tail(connection: apsw.Connection, session: str, number: int, count: int) -> list[Entry]:
    """Return the last `count` entries, oldest first."""
    rows = connection.execute(_TAIL, (*_range(number, 0, MAX_SEQ), count))
    return [_entry(session, row) for row in rows][::-1]


def by_id(connection: apsw.Connection, session: str, number: int, id: str) -> Entry | None:
    """Return the entry with an id, if it exists."""
    row = connection.execute(_BY_ID, (number, id)).fetchone()
    return _entry(session, row) if row else None


def by_key(connection: apsw.Connection, session: str, number: int, key: str) -> Entry | None:
    """Return the entry stored under an idempotency key, if it exists."""
    row = connection.execute(_BY_KEY, (number, key)).fetchone()
    return _entry(session, row) if row else None


def summaries(connection: apsw.Connection, after: str, limit: int) -> list[SessionSummary]:
    """List sessions by key; a limit of -1 means no limit."""
    return [
        SessionSummary(session=session, entries=last, first_ts=first_ts, last_ts=last_ts)
        for session, last, first_ts, last_ts in connection.execute(_SESSIONS, (after, limit))
    ]


def title_entries(connection: apsw.Connection, session: str) -> list[Entry]:
    """Return the newest rename of a session, else its first user messages."""
    number = number_of(connection, session)
    if number is None:
        return []
    renamed = connection.execute(_NEWEST_TITLE, (number,)).fetchall()
    rows = renamed or connection.execute(_OPENING, _range(number, 1, OPENING_ENTRIES))
    return [_entry(session, row) for row in rows]


def all_heads(connection: apsw.Connection) -> Iterator[tuple[int, str, Head]]:
    """Return the head of every session, with its number."""
    for number, session, seq, digest in connection.execute(_ALL_HEADS):
        yield number, session, Head(seq, digest)


def lost_numbers(connection: apsw.Connection) -> list[int]:
    """Return numbers that have entries but no session."""
    return [number for (number,) in connection.execute(_LOST_NUMBERS)]


def add_session(connection: apsw.Connection, number: int, session: str) -> None:
    """Insert a session with its number."""
    connection.execute(_ADD_SESSION, (number, session))


def add_entries(connection: apsw.Connection, number: int, entries: Sequence[Entry]) -> None:
    """Insert entries in order, with their rows of the word index."""
    is_small = all(
        len(entry.content) < _LARGE for entry in entries
    )  # a kept statement keeps a copy of its last content
    rows = (_row(number << 32 | entry.seq, entry) for entry in entries)
    connection.executemany(_ADD_ENTRIES, rows, can_cache=is_small)
    terms = [(number << 32 | entry.seq, entry.terms) for entry in entries if entry.terms]
    if terms:
        connection.executemany(_ADD_TERMS, terms)


def terms(connection: apsw.Connection, number: int, start: int, stop: int) -> list[tuple[int, bytes]]:
    """Read a page of rows of the word index between `start` and `stop`. Empty only at the end."""
    found, size = [], 0
    cursor = connection.execute(_TERMS, (*_range(number, start, stop), PAGE_TERMS))
    for pos, data in cursor:
        found.append((pos & MAX_SEQ, data))
        size += len(data)
        if size >= PAGE_BYTES:
            break
    cursor.close()  # ends the read transaction, also where rows are left
    return found


def picked_terms(connection: apsw.Connection, session: str, seqs: Collection[int]) -> dict[int, bytes]:
    """Return the rows of the word index of these entries of a session."""
    rows = connection.execute(_PICKED_TERMS, (session, json.dumps(list(seqs))))
    return {pos & MAX_SEQ: data for pos, data in rows}


def lacking_terms(
    connection: apsw.Connection, number: int, version: bytes, start: int, stop: int, limit: int
) -> list[int]:
    """Return the first messages without a row of the word index of this version; a limit of -1 means no limit."""
    bounds = _range(number, start, stop)
    return [seq for (seq,) in connection.execute(_LACKING_TERMS, (*bounds, len(version), version, limit))]


def add_late_terms(connection: apsw.Connection, number: int, entries: Iterable[Entry]) -> None:
    """Insert or replace rows of the word index, for entries that are stored with the same hash."""
    rows = ((number << 32 | entry.seq, entry.terms, entry.hash) for entry in entries if entry.terms)
    connection.executemany(_ADD_LATE_TERMS, rows)


def _range(number: int, start: int, stop: int) -> tuple[int, int]:
    return number << 32 | start, number << 32 | stop


def _row(pos: int, e: Entry) -> tuple[int | str | bytes | None, ...]:
    names = (e.role, e.kind, e.wire, e.surface)
    return (pos, e.id, e.ts, *names, e.tokens, e.counter, e.key, e.meta, e.prev, e.hash, e.content)


def _entry(session: str, row: tuple[Any, ...]) -> Entry:
    if tuple(map(type, row)) not in _ROW_TYPES:  # SQLite checks types when it writes, not when it reads
        raise apsw.CorruptError(f"entry {row[0] & MAX_SEQ} of session '{session}' has a value of a wrong type")
    pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, digest, content = row
    drafted = id, ts, role, content, kind, wire, surface, tokens, counter, meta, key, b""
    return entry_of_values((*drafted, session, pos & MAX_SEQ, prev, digest))
