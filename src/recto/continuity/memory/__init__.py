"""Durable memory of an agent: proposals, approvals, pages and consolidation."""

from __future__ import annotations

from typing import Literal, get_args

MemoryKind = Literal["decision", "lesson", "correction", "preference", "fact", "procedure"]
KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
