"""Recall for a coding agent's hook: what was said in earlier sessions of a project that matters to a prompt.

Searches by words alone and estimates tokens: a hook is a new process for every prompt, and loading an embedder or a
tokenizer takes longer than the search.
What the agent still has in its own window is left out: messages of its session since its last compaction, and what an
earlier prompt of the session has quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from recto.config import Settings
from recto.config.factory import SystemClock, make_indexer, make_recall, session_sources
from recto.recall.quoting import PROJECT_HEADER
from recto.recall.types import Hit, Query
from recto.tokens.estimates import plain_estimate
from recto.transcript.events import HOST_COMPACTED
from recto.transcript.protocols import TranscriptStore
from recto.transcript.sources import SessionSource
from recto.transcript.tenancy import TenantStore

_RECALL_TOKENS = 800
"""What a quotation may cost: it stays in the agent's window, prompt after prompt."""
_MAX_PROMPT_CHARACTERS = 8_000
"""Characters of a prompt that are searched for."""
_TAIL_ENTRIES = 2_000
"""Entries of a session in which its last compaction is looked for."""
_TAIL_BYTES = 1 << 20
"""Bytes at the end of the agent's own file in which earlier quotations are looked for."""
_COMMAND = re.compile(r"/[\w:-]+(\s|$)", re.ASCII)
"""A prompt that is a command of the agent, such as `/compact`."""


def recall_for_prompt(
    prompt: str, *, session: str, project: str, transcript: Path | None, settings: Settings, store: TranscriptStore
) -> str:
    """Return a quotation of what is relevant to a prompt; empty if nothing is, or recall is switched off.

    Args:
        prompt: what the user has submitted.
        session: the agent's name of the session.
        project: the folder that the agent works in. Sessions of every agent in it, or in a folder below, are searched.
        transcript: the agent's own file of the session.
        settings: the relevance that is needed, and the tenant.
        store: where the sessions are stored.
    """
    wanted = bool(prompt.strip()) and not _COMMAND.match(prompt)
    if not (wanted and project and settings.recall.enabled and settings.recall.inject):
        return ""
    view = TenantStore(store, settings.tenant)
    key, sources = view.key(session), session_sources(settings, store)
    begun = SessionSource(project=sources.of(key).project)
    source = (
        begun if begun.project and begun.contains(SessionSource(project=project)) else SessionSource(project=project)
    )
    if not sources.matching(source) - {key} and not view.head(key).seq:
        return ""
    with closing(make_indexer(settings, store, words_only=True)) as indexer:
        injection, _ = make_recall(settings, store, key, indexer).build_injection(
            Query(text=prompt[:_MAX_PROMPT_CHARACTERS], now=SystemClock().now(), source=source),
            budget=_RECALL_TOKENS,
            count=plain_estimate,
            hidden=range(_compacted_through(view, key) + 1, view.head(key).seq + 1),
            skips=_quoted_in(transcript),
        )
    return injection.text if injection else ""


def _compacted_through(store: TenantStore, key: str) -> int:
    """Return the last entry of a session that the agent's compaction has removed from its window; 0 for none."""
    recent = store.tail(key, _TAIL_ENTRIES)
    event = next((entry for entry in reversed(recent) if entry.kind == HOST_COMPACTED), None)
    return int(json.loads(event.content)["handoff"]) if event else 0


def _quoted_in(transcript: Path | None) -> Callable[[Hit], bool]:
    """Return a function that knows the hits an earlier prompt has quoted, and those that are a quotation themselves."""
    recent = ""
    if transcript is not None:
        with suppress(OSError), transcript.open("rb") as file:
            file.seek(max(transcript.stat().st_size - _TAIL_BYTES, 0))
            recent = file.read(_TAIL_BYTES).decode(errors="replace")
    return lambda hit: f"{hit.pointer} " in recent or PROJECT_HEADER in hit.text
