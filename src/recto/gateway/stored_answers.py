"""Answers from the transcript: the response to a request that comes again, after its first response was stored.

It has the messages, the model, the stop reason and the usage of the first response. Its id is a new one.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence

from recto.engine.projection import USAGE
from recto.formats import Usage
from recto.formats.convert.converter import stored_response, streamed_response
from recto.formats.convert.types import Cost, ResponseIds
from recto.formats.message import object_in, text_in
from recto.gateway.errors import encode_headers
from recto.gateway.lineage import Lineage, LineagePoint
from recto.gateway.request import ClientRequest
from recto.gateway.responses import BufferedResponse
from recto.gateway.responses_state import history_ids, with_history_ids
from recto.transcript.entries import Entry
from recto.transcript.hidden import content_as_sent
from recto.transcript.tenancy import TenantStore


def stored_answer(
    request: ClientRequest, store: TenantStore, lineage: Lineage, replies: Sequence[Entry]
) -> BufferedResponse:
    """Build the response to a request from the stored messages of its answer. Blocks.

    Raises:
        CannotCross: The messages hold something that the client's format cannot.
    """
    last = replies[-1]
    meta = json.loads(last.meta)
    api = request.format.api
    ids = ResponseIds(
        reply=f"{api.response_id_prefix}_{secrets.token_hex(16)}", created=int(time.time()), request=request.body.raw
    )
    body = stored_response(
        [content_as_sent(entry) for entry in replies],
        last.wire,
        request.wire,
        ids=ids,
        model=text_in(meta.get("model")) or request.model,
        stop=text_in(meta.get("stop")),
        cost=_cost(store, replies[0]),
    )
    body = with_history_ids(body, history_ids(request))
    kind = "application/json"
    if request.stream:
        options = object_in(request.fields.get("stream_options"))
        body = streamed_response(body, request.wire, ids=ids, include_usage=options.get("include_usage") is True)
        kind = "text/event-stream; charset=utf-8"
    if request.format.body.stored_history:
        lineage.record(store, f"response/{ids.reply}", LineagePoint(session=last.session, seq=last.seq))
    headers = {"content-type": kind, "x-recto-session-id": store.name(last.session), "idempotent-replayed": "true"}
    return BufferedResponse(200, body, encode_headers(headers))


def _cost(store: TenantStore, first: Entry) -> Cost | None:
    """Return the usage that the provider reported with a response: it is stored in front of it."""
    before = next(iter(store.read(first.session, first.seq - 1, first.seq - 1)), None)
    if before is None or before.kind != USAGE:
        return None
    found = json.loads(before.content)
    cached = {name: found[name] for name in ("cache_read", "cache_write")}
    return Cost(usage=Usage(prompt=found["reported"], output=found["output"], **cached))
