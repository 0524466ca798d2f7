"""One turn through the gateway, before and after the call of the upstream.

Messages are durable before the upstream is called, and the response is durable before its end is passed on. From its
first entry to its last a turn holds the store's turn of its session, so that no other gateway writes in between.
Everything here blocks and runs on threads.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from msgspec import structs

from recto.engine.composition import INSTRUCTIONS, TOOLS_OFFERED
from recto.engine.prompt_builder import Prompt, render_marker
from recto.engine.session import Session
from recto.errors import AppendConflict, InputError, MalformedMessage, RectoError, TurnTaken
from recto.formats import DEFAULT_FORMAT, Format, ProviderReply, Usage, format_named, open_body, render
from recto.formats.context_management import ContextReport
from recto.formats.convert.converter import convert_request
from recto.formats.json_spans import Json, quoted
from recto.formats.message import fields_of, text_in
from recto.gateway.api_keys import Key
from recto.gateway.budgets import Budgets
from recto.gateway.context_management import compaction_in, edited_messages
from recto.gateway.item_references import ItemReferences, item_name, keeps_items
from recto.gateway.lineage import LineagePoint, asks_for_summary
from recto.gateway.own_tools import (
    RecallToolRules,
    RecallToolUse,
    answered,
    as_sent,
    offer,
    offer_found,
    open_asked_window,
    own_calls,
    with_tools,
)
from recto.gateway.request import ANSWERED_KEY, ClientRequest, RetryKey, surface_of
from recto.gateway.session_pool import SessionPool
from recto.gateway.session_resolver import ResolvedSession, SessionHint, SessionResolver, question_name
from recto.gateway.system_messages import no_longer_sent, system_messages
from recto.tokens.limits import ModelLimits
from recto.transcript.entries import Clock, Draft, Entry, event
from recto.transcript.protocols import Records
from recto.transcript.session_keys import TenantStore
from recto.transcript.sources import SessionSource, source_record

EDITS = "context_edits"
"""In the metadata of a response: the edits of its prompt that the client asked for."""
CUT, FAILED = "reply_cut", "upstream_failed"
_ATTEMPTS = 8
_MIN_TRIMMED = 8
"""Messages from which on a client may drop the beginning of its history itself."""
_MAX_CONTEXTS = 4_096
_MAX_FOCUS = 500
"""Characters of a client's instructions for a summary."""
_NO_USAGE = Usage(prompt=0, output=0)
_TIGHTER = 0.85
"""Share of its size that a prompt keeps after an upstream rejected it as too long without naming a limit."""


@dataclass(slots=True, kw_only=True)
class GatewayTurn:
    """One request in flight."""

    key: Key
    store: TenantStore
    request: ClientRequest
    model: str
    """The model whose window and tokenizer apply."""
    resolved: ResolvedSession
    prompt: Prompt
    body: bytes
    """The body for the upstream, in the client's format."""
    context_ids: str
    """Identifies the instructions and tools that were sent with the messages."""
    session: Session
    """Kept open until the turn is over."""
    resources: ExitStack
    """Released then: the session, the store's turn of it, the claim to it in this process."""
    decisions: list[int] = field(default_factory=list)
    recall_tool: RecallToolUse = field(default_factory=RecallToolUse)
    report: ContextReport | None = None
    """What was done of the context management that the client asked for; None where the upstream does it."""
    retry: RetryKey | None = None
    was_sent: bool = False
    """Whether the upstream was asked."""
    was_answered: bool = False
    """Whether the complete response has arrived, stored or not."""
    usage: Usage = _NO_USAGE
    """The tokens of all its responses so far."""
    is_estimated: bool = False
    """Whether the upstream has not reported the tokens of all of them, so that some are counted here."""
    ended: bool = False
    left_out: list[str] = field(default_factory=list)
    """What the response is passed on without, because the client's format cannot express it."""

    @property
    def headers(self) -> dict[str, str]:
        """The response headers that report what Recto did."""
        prompt, names = self.prompt, [tool.name for tool in self.recall_tool.window_tools]
        return {
            "x-recto-session-id": self.resolved.name,
            "x-recto-tokens": f"{prompt.tokens}/{prompt.room}",
            "x-recto-decisions": ",".join(map(str, self.decisions)) or "none",
            "x-recto-recall": str(len(prompt.recalled)),
            "x-recto-recall-tool": self.recall_tool.status,
            **({"x-recto-window-tools": ",".join(names)} if names else {}),
            **({"x-recto-left-out": ",".join(self.left_out)} if self.left_out else {}),
        }


class TurnRunner:
    """Starts and finishes turns."""

    def __init__(
        self,
        sessions: SessionPool,
        clock: Clock,
        recall_tool: RecallToolRules | None = None,
        budgets: Budgets | None = None,
        source: SessionSource | None = None,
    ) -> None:
        self._source = source
        """Where new sessions come from, if it is known."""
        self.resolver = SessionResolver(clock)
        self._items = ItemReferences()
        self._recall_tool = recall_tool or RecallToolRules()
        self._sessions = sessions
        self._budgets = budgets
        self._clock = clock
        self._busy: dict[str, int] = {}
        self._contexts: dict[str, tuple[str, int]] = {}
        """The names under which instructions and tools of recent sessions are stored, and the entry of the last one."""
        self._lock = threading.Lock()

    def begin(
        self,
        key: Key,
        request: ClientRequest,
        hint: SessionHint,
        model: str | None = None,
        *,
        patience: float | None = None,
        retry: RetryKey | None = None,
    ) -> GatewayTurn:
        """Store the new messages and build the prompt.

        A request whose history is stored here waits up to `patience` seconds while another gateway holds the turn. One
        that brings its history does not wait, unless the other may be answering the same request: it opens a branch.

        Raises:
            TurnTaken: The turn was not released in time.
            AlreadyAnswered: The request comes again, and its answer is stored.
            InputError: The request cannot be stored.
            WindowOverflow: The prompt does not fit.
        """
        _refuse_empty(request)
        store = self._sessions.view(key)
        waits_for = self.resolver.turn_key(key, store, request, hint)
        elsewhere: set[str] = set()
        is_stored = False
        for _ in range(_ATTEMPTS):
            with ExitStack() as resources:
                if waits_for:
                    resources.enter_context(store.turn(waits_for, patience=patience))
                resolved = self.resolver.resolve(key, store, request, hint, frozenset(self._busy) | elsewhere, retry)
                if not self._claim(resolved):
                    continue  # another request of the same conversation was quicker
                resources.callback(self._unclaim, resolved)
                try:
                    if resolved.key != waits_for:
                        resources.enter_context(store.turn(resolved.key, patience=0))
                    name = request.model if model is None else model
                    session = resources.enter_context(self._sessions.use(key, resolved.name, name))
                    self._store_new(session, store, request, resolved)
                    self._reinstate(session, store, request, resolved)
                    is_stored = resolved.is_serial
                    turn = self._built(key, store, request, resolved, name, session, resources)
                    turn.retry = retry
                    return turn
                except TurnTaken:
                    if retry is not None and (retry.name or retry.asks_again):
                        raise
                    elsewhere.add(resolved.key)
                except AppendConflict:  # another process wrote there: the request may belong elsewhere now
                    if is_stored:
                        raise  # its turn is lost; stored again after other messages it would be there twice
        raise AppendConflict(resolved.key, resolved.expected_head, -1, "others write to this session all the time")

    def with_items(self, key: Key, request: ClientRequest) -> ClientRequest:
        """Return a request with the items of earlier responses that it refers to."""
        return self._items.resolve(key, self._sessions.view(key), self.resolver, request)

    def lane(self, key: Key, request: ClientRequest, hint: SessionHint) -> str:
        """Return the lane of requests that wait for each other because their history is stored here; empty without."""
        return self.resolver.lane(key, self._sessions.view(key), request, hint)

    def tighter(self, turn: GatewayTurn, limits: ModelLimits, upstream: str, *, structured: bool) -> None:
        """Build a smaller prompt for a turn that the upstream rejected as too long.

        The limits are learned for other sessions only from a structured error.
        """
        window = turn.session.window
        if structured:
            tokens = turn.prompt.tokens + turn.request.max_output_tokens
            self._sessions.limits.learn(upstream, turn.model, limits, tokens=tokens)
        for_answer = window.budget.input_budget - turn.prompt.room
        available = int(min(window.budget.input_budget, turn.prompt.tokens + for_answer) * _TIGHTER)
        window.lower_limits(limits, at_most=available)
        self._build(turn)

    def finish(
        self,
        turn: GatewayTurn,
        reply: ProviderReply,
        *,
        meta: Mapping[str, Any] | None = None,
        upstream: str = "",
    ) -> None:
        """Store a response. When this returns it is durable, and its end may be sent."""
        turn.was_answered = True
        stored, metas = self._as_spoken(turn, reply)
        self._sessions.limits.accept(upstream, turn.model, stored.usage.prompt if stored.usage else turn.prompt.tokens)
        names = self._lineage_names(turn, reply)
        if keeps_items(turn.request):
            names += filter(None, map(item_name, reply.messages[-1:]))
        common = {**(meta or {}), **_edits_meta(turn), **({"left_out": turn.left_out} if turn.left_out else {})}
        entries = self._store_reply(turn, stored, [{**common, **own} for own in metas], names)
        opened = open_asked_window(turn.session, turn.recall_tool)
        if not _flush_events(turn) and not opened and entries and names and isinstance(names[0], bytes):
            point = LineagePoint(session=turn.resolved.key, seq=entries[-1].seq)
            self.resolver.lineage.keep_recent(turn.store, names[0], point)
        if keeps_items(turn.request):
            self._items.keep(turn.key, reply.messages)
        if entries and asks_for_summary(turn.request):
            self.resolver.summaries.keep(turn.key, entries[-1], reply.messages)
        self.end(turn)

    def answer_calls(self, turn: GatewayTurn, reply: ProviderReply) -> None:
        """Store a response that only calls the gateway's own tools, with the results, and build the next prompt."""
        calls = own_calls(reply, turn.request, turn.recall_tool.names).own
        messages, metas = answered(turn.session, turn.request, reply, calls, turn.recall_tool, is_last=False)
        self._store_reply(turn, structs.replace(reply, messages=tuple(messages)), metas, [])
        turn.recall_tool.rounds += 1
        turn.decisions += open_asked_window(turn.session, turn.recall_tool)
        if offer_found(turn.request, turn.session, turn.recall_tool):
            turn.context_ids = self._store_context(turn.store, turn.resolved, turn.request, turn.recall_tool)
        self._build(turn)

    def _as_spoken(self, turn: GatewayTurn, reply: ProviderReply) -> tuple[ProviderReply, list[dict[str, Any]]]:
        """Return a response as the model wrote it, with what is stored beside each of its messages.

        It differs from what the client gets where the gateway's own tool was called.
        """
        last, use = turn.recall_tool.last_reply(), turn.recall_tool
        calls = own_calls(last, turn.request, use.names).own if last is not None else ()
        if last is None or not (use.rounds or calls):
            return reply, [{} for _ in reply.messages]
        messages: list[bytes] = list(last.messages)
        metas: list[dict[str, Any]] = [{} for _ in messages]
        if calls:
            messages, metas = answered(turn.session, turn.request, last, calls, use, is_last=True)
        as_sent(metas, messages, reply.messages)
        return structs.replace(last, messages=tuple(messages)), metas

    def cut(self, turn: GatewayTurn, partial: ProviderReply, why: str) -> None:
        """Store the part of a response that arrived before it was cut off. It is an event, not a message."""
        try:
            messages = [json.loads(message) for message in partial.messages]
            if turn.was_sent:
                output = turn.session.count("\n".join(raw.decode() for raw in partial.messages))
                self._spend(turn, _usage_of(turn, partial.usage, output))
                turn.is_estimated = True
            self._append_event(turn, CUT, {"why": why, "messages": messages})
        finally:
            self.end(turn)

    def failed(self, turn: GatewayTurn, upstream: str, status: int) -> None:
        """Store that there was no response."""
        try:
            self._append_event(turn, FAILED, {"upstream": upstream, "status": status})
        finally:
            self.end(turn)

    def refused(self, turn: GatewayTurn, upstream: str, status: int, code: str) -> None:
        """Store that the provider refused the request: its new messages stay in the transcript, out of the prompt."""
        try:
            self._append_event(turn, FAILED, {"upstream": upstream, "status": status})
            request = turn.request
            sent = (*request.middle, *_unanswered(request))
            entries = self.resolver.sent_again(turn.store, turn.resolved.key, sent, request.wire)
            why: dict[str, str | int] = {"upstream": upstream, "status": status, "code": code}
            turn.session.window.refuse([entry.seq for entry in entries], why)
        finally:
            self.end(turn)

    def end(self, turn: GatewayTurn) -> None:
        """Release the turn, whatever its outcome. Nothing of it is stored later: the session may be another's then."""
        if not turn.ended:
            turn.ended = True
            with turn.resources:
                _flush_events(turn)

    def _built(
        self,
        key: Key,
        store: TenantStore,
        request: ClientRequest,
        resolved: ResolvedSession,
        model: str,
        session: Session,
        resources: ExitStack,
    ) -> GatewayTurn:
        def was_sent(tools: bytes) -> bool:
            return store.find(resolved.key, _context_id(TOOLS_OFFERED, tools)) is not None

        rules = self._recall_tool
        if key.new_windows is not None:
            rules = replace(rules, new_windows=key.new_windows)
        use = offer(request, session, rules, was_sent)
        prompt = _prompt(session, request, use)
        decisions = [entry.seq for entry in prompt.decisions]
        report = ContextReport() if request.plan is not None else None
        if report is not None and (compacted := _compacted(session, request, prompt)):
            point = LineagePoint(session=resolved.key, seq=session.head.seq)
            summary = render_marker(session.window.state)
            report.compaction = self.record_compaction(store, request, point, summary)
            prompt = _prompt(session, request, use)
            decisions += [entry.seq for entry in (*compacted, *prompt.decisions)]
        if decisions and (use.is_waiting or rules.lazy_tools):
            relieved = offer(request, session, rules, was_sent, relieved=True)
            if relieved.tools != use.tools:
                use, prompt = relieved, _prompt(session, request, relieved)
                decisions += [entry.seq for entry in prompt.decisions]
        context_ids = self._store_context(store, resolved, request, use)
        if not prompt.raw and not request.front and not request.fields.get("prompt"):
            raise MalformedMessage("the request has no messages")
        turn = GatewayTurn(
            key=key,
            store=store,
            request=request,
            model=model,
            resolved=resolved,
            prompt=prompt,
            body=b"",
            context_ids=context_ids,
            decisions=decisions,
            recall_tool=use,
            report=report,
            session=session,
            resources=resources,
        )
        _write_body(turn)
        turn.resources = resources.pop_all()
        return turn

    def _store_new(
        self, session: Session, store: TenantStore, request: ClientRequest, resolved: ResolvedSession
    ) -> None:
        """Store the new messages. Raises `AppendConflict` if the session has changed since it was resolved."""
        messages: Sequence[bytes] = resolved.new_messages
        # as they came: a plain message has a role that is known
        refuse_defects((*request.front, *request.middle, *messages, *request.back), request.format)
        if resolved.expected_head == 0:
            _refuse_only_results(request)
        if resolved.is_serial:
            messages = [_plain(raw, request.format) for raw in messages]
        wire = None if resolved.is_serial else request.wire
        head = resolved.expected_head
        if resolved.superseded:
            if session.head.seq != head:
                raise AppendConflict(resolved.key, head, session.head.seq)
            session.window.refuse(resolved.superseded, {"upstream": "", "status": 200, "code": "choice_not_taken"})
            head = session.head.seq
        system = system_messages(session, store, self.resolver, request, resolved)
        if system.returned and (head is None or session.head.seq == head):
            session.window.retry(system.returned)
            head = head and session.head.seq
        if resolved.chain and head and (moved := no_longer_sent(session, store, system.stored)):
            if session.head.seq != head:
                raise AppendConflict(resolved.key, head, session.head.seq)
            session.window.refuse(moved, {"upstream": "", "status": 200, "code": "not_sent_again"})
            head = session.head.seq
        batch, keys = system.among(messages)
        if batch:
            records = self._question_records(store, request, resolved) if messages else None
            if records is not None:
                records = _at(max(place for place, key in enumerate(keys) if key is None), records)
            if self._source is not None and resolved.expected_head == 0:
                records = source_record(store, self._clock, self._source, records)
            surface = surface_of(request.format)
            session.append_all(batch, key=keys, expect=head, surface=surface, wire=wire, also=records)
        elif head is not None and (last := session.head.seq) != head:
            raise AppendConflict(resolved.key, head, last)  # it was sent before, and is answered by now

    def _question_records(
        self, store: TenantStore, request: ClientRequest, resolved: ResolvedSession
    ) -> Records | None:
        """Return the records of a history without a response: one with a response is recorded already."""
        new = len(resolved.new_messages)
        is_recorded = bool(request.replies) and new < len(request.messages) - request.replies[-1]
        if resolved.history_hash is None or is_recorded:
            return None
        name = question_name(resolved.history_hash, is_aside=resolved.is_aside)
        return self.resolver.lineage.records(store, [name, resolved.opening] if resolved.opening else [name])

    def _reinstate(
        self, session: Session, store: TenantStore, request: ClientRequest, resolved: ResolvedSession
    ) -> None:
        """Put refused messages back that the client sends again. They are stored already."""
        unanswered = _unanswered(request)
        again = (*request.middle, *unanswered[: max(len(unanswered) - len(resolved.new_messages), 0)])
        if not again or not (refused := session.window.state.refused):
            return
        entries = self.resolver.sent_again(store, resolved.key, again, request.wire)
        session.window.retry([entry.seq for entry in entries if entry.seq in refused])

    def _build(self, turn: GatewayTurn) -> None:
        request = turn.request
        turn.prompt = _prompt(turn.session, request, turn.recall_tool)
        turn.decisions += [entry.seq for entry in turn.prompt.decisions]
        _write_body(turn)

    def record_compaction(
        self, store: TenantStore, request: ClientRequest, point: LineagePoint, summary: str
    ) -> dict[str, Json]:
        """Give the history up to a point an id. Returns the item that represents it in later requests."""
        if request.format.context_management is None:
            raise InputError(f"{request.format.title} has no compaction")
        id = f"cmp_{secrets.token_hex(16)}"
        self.resolver.lineage.record(store, f"compaction/{id}", point)
        return request.format.context_management().compaction_item(id, summary)

    def _store_context(
        self, store: TenantStore, resolved: ResolvedSession, request: ClientRequest, use: RecallToolUse
    ) -> str:
        """Store instructions and tools, once for each content. Returns the names that the response refers to."""
        contents: dict[str, tuple[str, bytes]] = {}
        for kind, content in ((INSTRUCTIONS, request.instructions), (TOOLS_OFFERED, use.tools or request.tools)):
            if content:
                contents[_context_id(kind, content)] = kind, content
        names = " ".join(contents)
        known, until = self._contexts.get(resolved.key, ("", 0))
        if not contents or (names == known and until <= (resolved.expected_head or 0)):
            return names
        found = {name: store.find(resolved.key, name) for name in contents}
        drafts = [
            event(self._clock, kind, {"text": content.decode()}, name, surface="gateway")
            for name, (kind, content) in contents.items()
            if found[name] is None
        ]
        stored = store.append(resolved.key, drafts) if drafts else []
        with self._lock:
            self._contexts[resolved.key] = names, max(entry.seq for entry in (*found.values(), *stored) if entry)
            if len(self._contexts) > _MAX_CONTEXTS:
                del self._contexts[next(iter(self._contexts))]
        return names

    def _store_reply(
        self,
        turn: GatewayTurn,
        reply: ProviderReply,
        metas: Sequence[Mapping[str, Any]],
        names: Sequence[bytes | str],
    ) -> list[Entry]:
        """Store a response with what the provider reported for it, and record it under the names of its history."""
        request = turn.request
        common = {"model": request.model, "stop": reply.stop_reason, "given": turn.context_ids}
        usage = reply.usage if reply.usage is not None and reply.usage.prompt else None
        if not reply.messages:
            if usage is not None:
                turn.session.usage.record(turn.prompt.tokens, usage)
            self._spend(turn, _usage_of(turn, usage, 0))
            return []
        messages = (
            [_plain(raw, request.format) for raw in reply.messages] if turn.resolved.is_serial else reply.messages
        )
        wire = None if turn.resolved.is_serial else request.wire
        answered = ""
        if names and turn.retry is not None and turn.retry.name:
            answered = turn.retry.body.hex()
            common[ANSWERED_KEY] = turn.retry.answer_mark  # durable with the answer; the key's record may follow it
        names_of = self.resolver.lineage.records(turn.store, names, answered) if names else None
        spent: list[tuple[str, Draft]] = []

        def records(entries: Sequence[Entry]) -> list[tuple[str, Draft]]:
            answer = entries[len(entries) - len(messages) :]
            spent.extend(self._usage_record(turn, _usage_of(turn, usage, sum(entry.tokens for entry in answer))))
            return [*(names_of(entries) if names_of else ()), *spent]

        try:
            entries = turn.session.append_all(
                messages,
                meta=[{**meta, **common} for meta in metas],
                surface=surface_of(request.format),
                wire=wire,
                usage=usage,
                also=records,
            )
        except BaseException:
            for _, draft in spent:
                self._forget(turn, draft)
            raise
        _add_usage(turn, _usage_of(turn, usage, sum(entry.tokens for entry in entries)))
        return entries

    def _spend(self, turn: GatewayTurn, usage: Usage) -> None:
        """Count what a turn used that has no answer to be stored with."""
        _add_usage(turn, usage)
        for session, draft in self._usage_record(turn, usage):
            try:
                turn.store.append_made_record(session, draft)
            except RectoError:
                self._forget(turn, draft)
                raise

    def _usage_record(self, turn: GatewayTurn, usage: Usage) -> list[tuple[str, Draft]]:
        """Return the record of what a response used, if its key has a budget."""
        record = self._budgets.record(turn.key, turn.model, usage) if self._budgets else None
        return [record] if record else []

    def _forget(self, turn: GatewayTurn, draft: Draft) -> None:
        if self._budgets is not None:
            self._budgets.forget(turn.key, draft)

    def _lineage_names(self, turn: GatewayTurn, reply: ProviderReply) -> list[bytes | str]:
        """Return the histories with which the response will be sent again; the complete one comes first."""
        if not reply.messages:
            return []
        names: list[bytes | str] = []
        if turn.resolved.history_hash is not None:
            names.append(
                self.resolver.fingerprints.chain(turn.resolved.history_hash, reply.messages, turn.request.wire)[-1]
            )
            before = turn.request.messages
            names += self.resolver.choice_names(turn.resolved.history_hash, reply.alternatives, turn.request.wire)
            if len(before) + len(reply.messages) >= _MIN_TRIMMED:
                last = (*before[-_MIN_TRIMMED:], *reply.messages)  # an ending has no more messages
                names.append(self.resolver.ending(turn.resolved.seed, last, turn.request.wire))
        if reply.id and turn.request.format.body.stored_history:  # clients of other formats cannot name a response
            names.append(f"response/{reply.id}")
        if turn.retry is not None and turn.retry.lineage_name:
            names.append(turn.retry.lineage_name)
        return names

    def _append_event(self, turn: GatewayTurn, kind: str, payload: Mapping[str, Any]) -> None:
        _flush_events(turn)
        turn.store.append(turn.resolved.key, [event(self._clock, kind, payload, surface="gateway")])

    def _claim(self, resolved: ResolvedSession) -> bool:
        with self._lock:
            if resolved.key in self._busy and not resolved.is_serial:
                return False
            self._busy[resolved.key] = self._busy.get(resolved.key, 0) + 1
            return True

    def _unclaim(self, resolved: ResolvedSession) -> None:
        with self._lock:
            remaining = self._busy.get(resolved.key, 1) - 1
            if remaining > 0:
                self._busy[resolved.key] = remaining
            else:
                self._busy.pop(resolved.key, None)


def _flush_events(turn: GatewayTurn) -> int:
    """Store the status events of a prompt whose response did not take them along. Returns their number."""
    try:
        return turn.session.window.events.flush()
    except RectoError:  # they wait for the next turn
        return 0


def _at(place: int, records: Records) -> Records:
    """Make records of the entry at a place of a batch, instead of the last one."""
    return lambda entries: records(entries[: place + 1])


def _usage_of(turn: GatewayTurn, reported: Usage | None, output: int) -> Usage:
    """Return the tokens of one response: as the upstream reported them, or as they are counted here."""
    if reported is not None and reported.prompt:
        return reported
    turn.is_estimated = True
    return Usage(prompt=turn.prompt.tokens, output=output)


def _add_usage(turn: GatewayTurn, more: Usage) -> None:
    before = turn.usage
    turn.usage = Usage(
        prompt=before.prompt + more.prompt,
        output=before.output + more.output,
        cache_read=before.cache_read + more.cache_read,
        cache_write=before.cache_write + more.cache_write,
    )


def _context_id(kind: str, content: bytes) -> str:
    return f"{kind}/{hashlib.sha256(content).hexdigest()[:32]}"


def _prompt(session: Session, request: ClientRequest, use: RecallToolUse) -> Prompt:
    return session.prompt(
        use.tools or request.tools,
        beside=request.instructions,
        answer=request.max_output_tokens,
        wire=request.wire,
        defer_events=True,  # stored with the response, or when the turn ends without one
        reader=use.reader,
    )


def _compacted(session: Session, request: ClientRequest, prompt: Prompt) -> tuple[Entry, ...]:
    """Compact a history that is over the client's threshold; nothing where there is too little to be worth it."""
    plan = request.plan
    if plan is None or plan.compact_at is None or prompt.tokens < plan.compact_at:
        return ()
    return session.compact(plan.focus[:_MAX_FOCUS], below=plan.compact_at)


def _write_body(turn: GatewayTurn) -> None:
    """Write the body of a turn from its prompt, edited as its client asks."""
    messages, system = _messages(turn.request, turn.prompt)
    messages, edits = edited_messages(turn.session, turn.request, messages, turn.prompt.tokens)
    if turn.report is not None:
        turn.report.edits = edits
    turn.body = with_tools(turn.request.with_prompt(messages, system), turn.request, turn.recall_tool)
    if messages != turn.prompt.raw:  # converted, or edited as the client asks: counted as it is sent
        body = open_body(turn.body, turn.request.wire)
        tokens = turn.session.window.sent_as(body.messages, body.system or b"", turn.request.wire)
        turn.prompt = replace(turn.prompt, built=structs.replace(turn.prompt.built, tokens=tokens))


def _edits_meta(turn: GatewayTurn) -> dict[str, Any]:
    """Return what is stored beside a response whose prompt was edited as its client asked."""
    return {EDITS: turn.report.edits} if turn.report is not None and turn.report.edits else {}


def _messages(request: ClientRequest, prompt: Prompt) -> tuple[tuple[bytes, ...], str]:
    """Return the messages for the upstream in the client's format, and the system text beside them.

    A session may be continued in another format than it was stored in: its messages are converted then.

    Raises:
        CannotCross: The session holds something that the format cannot express.
    """
    source, target = format_named(prompt.built.wire), request.format
    if source is target:
        return prompt.raw, prompt.system
    instructions = f'"{source.body.system}": {quoted(prompt.system)}, ' if prompt.system else ""
    source_body = f'{{"model": "", {instructions}"{source.body.messages}": '.encode() + render(prompt.raw) + b"}"
    converted = open_body(convert_request(source_body, source.name, target.name), target.name)
    system = _text_of(json.loads(converted.system or b'""'))  # written by the converter above
    if not system or target.system_apart:
        return converted.messages, system
    return (target.text_message("system", system), *converted.messages), ""


def _text_of(system: Any) -> str:  # noqa: ANN401  # JSON
    blocks = system.get("parts", []) if isinstance(system, dict) else system
    blocks = blocks if isinstance(blocks, list) else [{"text": blocks}]
    return "\n\n".join(text_in(block.get("text")) for block in blocks)


def _unanswered(request: ClientRequest) -> tuple[bytes, ...]:
    """Return the messages of a request after the last response in it."""
    return request.messages[request.replies[-1] + 1 if request.replies else 0 :]


def _refuse_empty(request: ClientRequest) -> None:
    """Raise `MalformedMessage` for a conversation that no upstream could answer."""
    format = request.format
    names_history = format.request.names_history(request.fields)
    if not request.messages and not names_history and not (format.system_alone and request.front):
        raise MalformedMessage("the request has no messages")
    new = _unanswered(request) or request.messages
    if new and not any(format.edits.settle([raw]) for raw in new):
        which = "the only message is empty" if len(request.messages) == 1 else "the new messages are empty"
        raise MalformedMessage(f"there is nothing to send: {which}; a user message needs a text or another part")
    if format.user_first and (request.front or 0 in request.replies) and not compaction_in(request)[0]:
        raise MalformedMessage("the first message must be from the user")


def _refuse_only_results(request: ClientRequest) -> None:
    """Raise `MalformedMessage` for the first request of a conversation if its only messages are results."""
    parts = chain.from_iterable(request.format.messages.read(raw).parts for raw in request.messages)
    is_whole = not request.front and not request.format.request.names_history(request.fields)
    if is_whole and all(part.kind == "result" for part in parts):
        raise MalformedMessage(
            "there is nothing to send: there are only tool results without their calls. Send the assistant message with"
            " the call and the result behind it, or a user message"
        )


def refuse_defects(messages: Sequence[bytes], format: Format) -> None:
    """Raise `MalformedMessage` for a message that no provider accepts; nothing of the request or response is stored."""
    for raw in messages:
        if why := format.validation.defect(fields_of(raw)):
            raise MalformedMessage(why)


def _plain(raw: bytes, format: Format) -> bytes:
    """Return a text-only message in the form that all formats share; any other message unchanged.

    A session whose history is stored here is used through all formats.
    """
    fields, message = fields_of(raw), format.messages.read(raw)
    if isinstance(fields.get("content"), str) and fields.keys() == {"role", "content"}:
        return raw
    if message.role not in ("user", "assistant") or not message.parts:
        return raw
    if any(part.kind != "text" for part in message.parts):
        return raw
    role: Literal["user", "assistant"] = "user" if message.role == "user" else "assistant"
    return DEFAULT_FORMAT.text_message(role, "\n".join(part.text for part in message.parts))
