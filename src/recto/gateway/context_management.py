"""Context management that a client asks its provider for, served here for upstreams that lack it.

An upstream that has it gets the request as it came (`pass`). For others the gateway applies it to the prompt that it
builds (`serve`), or drops it (`off`). The transcript keeps everything in all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal
from urllib.parse import urlsplit

from recto.engine.session import Session
from recto.errors import InputError
from recto.formats import read
from recto.formats.context_management import MEMBER, EditedPrompt, edited
from recto.formats.json_spans import Json
from recto.gateway.request import ClientRequest

ContextManagement = Literal["pass", "serve", "off"]
MODES: Final[tuple[ContextManagement, ...]] = ("pass", "serve", "off")
_HAVE_IT: Final = frozenset({"api.anthropic.com"})
"""Hosts whose own context management is used by default. OpenAI's compaction is served here by default: the item that
represents a history then leads to the session that holds it."""


def default_mode(url: str) -> ContextManagement:
    """Return what is done with requests for context management at an address, unless the settings say."""
    return "pass" if urlsplit(url).hostname in _HAVE_IT else "serve"


def mode_at(mode: ContextManagement, *, is_converted: bool) -> ContextManagement:
    """Return what is done at an upstream with this setting: what cannot be passed on in its format is served here."""
    return "serve" if mode == "pass" and is_converted else mode


def managed(request: ClientRequest, mode: ContextManagement, upstream: str) -> ClientRequest:
    """Return a request without what its upstream does not know, and with a plan for what is served instead.

    Raises:
        InputError: It asks for an edit that is not known here.
    """
    if mode == "pass" or request.format.context_management is None:
        return request
    format = request.format.context_management()
    tools = format.local_tools(request.tools)
    if tools is not request.tools:
        request = replace(request, tools=tools)
    if MEMBER not in request.fields:
        return request
    if mode == "off":
        return replace(request, dropped=frozenset({MEMBER}))
    try:
        plan = format.read_plan(request.fields[MEMBER])
    except InputError as error:
        cure = f"gateway.upstreams.{upstream}.context_management: pass sends it on, off drops it"
        raise InputError(f"{error} ({cure})") from None
    return replace(request, dropped=frozenset({MEMBER}), plan=plan)


def forwarded_headers(headers: Mapping[str, str], request: ClientRequest, mode: ContextManagement) -> Mapping[str, str]:
    """Return a client's headers without the betas that are served here."""
    if mode == "pass" or request.format.context_management is None:
        return headers
    served = request.format.context_management().BETAS
    kept = dict(headers)
    for name in request.format.api.list_headers & kept.keys():
        values = [value.strip() for value in kept[name].split(",")]
        if not served.isdisjoint(values):
            kept[name] = ",".join(value for value in values if value not in served)
            if not kept[name]:
                del kept[name]
    return kept


def compaction_in(request: ClientRequest) -> tuple[str, tuple[bytes, ...]]:
    """Return the id of the compaction with which a history begins, and the messages after it; no id without one."""
    if request.format.context_management is None:
        return "", ()
    return request.format.context_management().after_compaction(request.messages)


def edited_messages(
    session: Session, request: ClientRequest, messages: tuple[bytes, ...], tokens: int
) -> tuple[tuple[bytes, ...], list[Json]]:
    """Apply the edits of a request to the messages of its prompt. Returns them, and what the response reports."""
    if request.plan is None or not request.plan.edits:
        return messages, []
    window, meter = session.window, session.meter
    seqs: dict[str, int] = {}

    def pointer(call: str) -> str:
        if not seqs:
            seqs.update((id, line.seq) for line in window.state.messages.values() for id in line.answers)
        return window.pointer(seqs[call]) if call in seqs else ""

    prompt = EditedPrompt(
        messages=messages,
        tokens=tokens,
        cost=lambda raw: meter.message(read(raw, request.wire)),
        pointer=pointer,
    )
    changed, reports = edited(prompt, request.plan.edits)
    if changed != messages and request.format.signs_thinking and window.rules.card and window.rules.card.binds_thinking:
        changed = _without_bound_thinking(messages, changed, request)
    return changed, reports


def _without_bound_thinking(
    before: Sequence[bytes], after: tuple[bytes, ...], request: ClientRequest
) -> tuple[bytes, ...]:
    """Return edited messages without the thinking behind the first edit: it is bound to what was edited."""
    first = next(place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    edits = request.format.edits
    return (*after[: first + 1], *(edits.without_thinking(raw) or raw for raw in after[first + 1 :]))
