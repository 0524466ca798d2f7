"""What a peer can return of a conversation by its own public means; runs in that peer's environment.

`stored` is everything that its store, its state or its list still has; `found` is what its own search returns for a
question. Entries are keyed by the name of the adapter, or by script and adapter if two have the same name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.peer_judging import Part, texts_of

MOST = 10
"""Hits that a search may return."""

Adapter = Any
"""An adapter of a peer's script; which attributes it has is the script's business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How one adapter's peer is asked."""

    by: str
    """Who has what was said, in words."""
    held: Callable[[Adapter], Iterable[Part]]
    search: str = ""
    found: Callable[[Adapter, str], list[str]] | None = None
    read_on: Callable[[Adapter, str], list[str]] | None = None
    """What is found together with what stands around it, where the peer can read on from a hit."""


def of_recto(peer: Adapter) -> Iterable[Part]:
    entries = (json.loads(entry.content) for entry in peer.session.read() if entry.kind == "message")
    return peer.parts(entries)


def found_by_recto(peer: Adapter, query: str, around: int = 0) -> list[str]:
    """The hits, read from the transcript by their pointers."""
    hits = peer.session.recall(query, most=MOST).hits
    entries = [entry for hit in hits for entry in peer.session.window.read(hit.pointer, around=around)]
    return texts_of(peer.parts(json.loads(entry.content) for entry in entries if entry.kind == "message"))


def of_google_adk(peer: Adapter) -> Iterable[Part]:
    session = peer.loop.run_until_complete(peer.svc.get_session(app_name="a", user_id="u", session_id="s"))
    return peer.parts([event.content for event in session.events if event.content])


def found_by_google_adk(peer: Adapter, query: str) -> list[str]:
    """Its memory service that needs no other service: by words."""
    from google.adk.memory import InMemoryMemoryService  # noqa: PLC0415  only one environment has it

    async def answer() -> Any:  # noqa: ANN401
        if not hasattr(peer, "memory"):
            peer.memory = InMemoryMemoryService()
        await peer.memory.add_session_to_memory(peer.s)
        return await peer.memory.search_memory(app_name="a", user_id="u", query=query)

    memories = peer.loop.run_until_complete(answer()).memories[:MOST]
    return texts_of(peer.parts([memory.content for memory in memories]))


def found_by_headroom(peer: Adapter, query: str) -> list[str]:
    """What the markers in its last prompt lead to; it has no search over what was said, so nothing is asked."""
    from headroom.cache.compression_store import get_compression_store  # noqa: PLC0415  only one environment has it

    said = " ".join(str(message["content"]) for message in peer.last_prompt)
    keys = {one or other for one, other in re.findall(r"hash=([0-9a-f]{8,})|<<ccr:([0-9a-f]+)", said)}
    entries = (get_compression_store().retrieve(key) for key in sorted(keys))
    return [entry.original_content for entry in entries if entry is not None]


def of_llama_index(peer: Adapter) -> Iterable[Part]:
    return peer.parts(peer.loop.run_until_complete(peer.m.aget_all()))


def of_openai_agents(peer: Adapter) -> Iterable[Part]:
    return peer.parts(peer.loop.run_until_complete(peer.s.get_items()))


LIST = Means(by="the caller's list", held=lambda peer: peer.parts(peer.h))
STATE = Means(by="its state", held=lambda peer: peer.parts(peer.state["messages"]))
TRANSCRIPT = Means(
    by="its transcript",
    held=of_recto,
    search="recall",
    found=found_by_recto,
    read_on=partial(found_by_recto, around=1),  # a call comes with its result
)
AGENT = Means(by="its agent", held=lambda peer: peer.parts(peer.a.messages))
STORE = Means(by="its store", held=of_openai_agents)
MEANS: dict[str | tuple[str, str], Means] = {
    "Recto": TRANSCRIPT,
    "RectoZones": TRANSCRIPT,
    "RectoWithoutRecall": replace(TRANSCRIPT, search="", found=None, read_on=None),
    "Trimming": Means(by="the caller's list", held=lambda peer: peer.parts(peer.kept)),
    "Everything": Means(by="the caller's list", held=lambda peer: peer.parts(peer.kept)),
    "TrimApprox": LIST,
    "TrimExactMemo": LIST,
    "Summarize": STATE,
    "Edit": LIST,
    "ViaAgent": LIST,
    "MemFile": Means(by="its store", held=of_llama_index),
    "Limit": STORE,
    "Compaction": STORE,
    "Sliding": AGENT,
    "Summ": AGENT,
    "Budget": LIST,
    "Window": LIST,
    "Compact": Means(by="its session", held=of_google_adk, search="memory service", found=found_by_google_adk),
    "Compress": replace(LIST, search="markers", found=found_by_headroom),
    ("peer_agent_framework.py", "Summ"): LIST,
    ("peer_letta.py", "Sliding"): LIST,
}
