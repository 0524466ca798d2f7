"""Tool definitions that are left out of requests while they cost more than the budget's share for tools.

Tools that the prompt does not use are left out, and the model searches for them with the gateway's own tool
(`recto.gateway.own_tools`). The tool list is the beginning of the prefix that providers cache, so it is decided once:
in the first request above the share, when the client brings other tools, and at a relief, which writes most of the
prefix again anyway. In between it only grows: by a tool that the model searches for or calls, or that a request names.
Such a tool is appended behind the others, whose bytes stay. A list that was sent whole stays whole until a relief.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from math import log
from typing import Final, Protocol

from msgspec.structs import asdict, replace

from recto.context.window.units import LeftOutTools
from recto.engine.projection import TOOLS_LEFT_OUT
from recto.engine.session import Session
from recto.formats.tools import ListedTool, chosen_tools, tool_definitions, without_tools
from recto.gateway.request import ClientRequest
from recto.recall.stemmer import shared_lexicon
from recto.text.unicode import one_line

SEARCHED: Final = "the model searched for them"
_CALLED: Final = "the model called them, or the request names them"
_MAX_FOUND: Final = 3
"""Definitions that one search adds to the list, besides tools that it calls by their names."""
_MAX_NAMED: Final = 8
_MAX_LISTED: Final = 12
"""Further matches that an answer lists with one line each."""
_MAX_LINE: Final = 160
_MAX_MEMOISED: Final = 256 * 1024
"""Bytes of a list above which it is written for every request."""
_NAME_WEIGHT: Final = 3.0
_CLOSE: Final = 0.5
"""Share of the best score from which on a match is added, too."""


class ListWriter(Protocol):
    """Writes the list of tools that is sent with a request."""

    def __call__(self, left: LeftOutTools, *, looks_up: bool) -> bytes:
        """Writes it without these tools, with the gateway's own, which looks up messages too or only finds tools."""
        ...


def plan_left_out(
    tools: Sequence[ListedTool],
    *,
    stays: Collection[str],
    uses: Mapping[str, int],
    share: int,
    cost: Callable[[tuple[str, ...]], int],
) -> tuple[str, ...]:
    """Choose the tools to leave out, so that the list keeps its share if it can; in the order of the list.

    Tools that were never used go first, the largest of them before others, then the least recently used.

    Args:
        tools: The tools of the client.
        stays: Names of tools that are not left out.
        uses: The entry in which each tool was last used.
        share: Tokens that the list may have.
        cost: Returns the tokens of the list without these tools, with what is added for them.
    """
    optional = [tool for tool in tools if tool.is_optional and tool.name not in stays]
    order = sorted(optional, key=lambda tool: (uses.get(tool.name, 0), -len(tool.element), tool.name))
    names = list(dict.fromkeys(tool.name for tool in order))

    def first(count: int) -> tuple[str, ...]:
        left_out = {*names[:count]}
        return tuple(dict.fromkeys(tool.name for tool in tools if tool.name in left_out))

    count = bisect_left(range(len(names)), True, lo=1, key=lambda count: cost(first(count)) <= share) if names else 0
    return first(count) if names and cost(first(count)) < cost(()) else ()


def choose(
    request: ClientRequest,
    session: Session,
    write: ListWriter,
    *,
    is_on: bool,
    was_sent: Callable[[bytes], bool],
    relieved: bool,
) -> LeftOutTools:
    """Return the tools that are left out of a request. A decision about them is stored first.

    Args:
        request: A request with tools.
        session: Its session, with the messages of the request.
        write: Writes the list that is sent.
        is_on: The setting `window.lazy_tools`.
        was_sent: Returns whether an earlier request of the session was sent with these tools.
        relieved: Whether messages were evicted or shortened for this request.
    """
    state, meter = session.window.state, session.meter
    known = state.left_out
    if not is_on and not known.offered:
        return known
    tools = tool_definitions(request.tools)
    offered = hashlib.sha256("\n".join(sorted({tool.name for tool in tools})).encode()).hexdigest()[:16]
    stays = chosen_tools(request.fields).union(chain.from_iterable(line.tools for line in state.messages.values()))
    if is_on and known.offered == offered and not relieved:
        return _with_found(session, request, known, [name for name in known.hidden if name in stays], write, _CALLED)
    if not known.offered and not relieved and was_sent(request.tools):
        return known
    whole = meter.tools(request.tools.decode())
    share = session.window.budget.limits["tools"].hard if is_on else whole
    names: tuple[str, ...] = ()
    if whole > share:
        # with all that the own tool can do, so that the share is still kept after the first eviction
        def cost(names: tuple[str, ...]) -> int:
            return meter.tools(write(LeftOutTools(names=names), looks_up=True).decode()) if names else whole

        names = plan_left_out(tools, stays=stays, uses=state.tool_uses, share=share, cost=cost)
    if {*names} == {*known.hidden} and (not names or known.offered == offered):
        return known if known.offered == offered else LeftOutTools()
    reason = f"all tools cost {whole:,} tokens, and their share is {share:,}" if is_on else "window.lazy_tools is off"
    left = LeftOutTools(names=names, offered=offered if is_on else "")
    return _record(session, request, left, write, reason)


def find_tools(session: Session, request: ClientRequest, words: str, write: ListWriter, tokens: int) -> str:
    """Answer a search: the best matches with their definitions, which are sent from now on, and others by name.

    At most so many tokens, where the definitions fit; they are in the list of tools, too.
    """
    known = session.window.state.left_out
    hidden = [tool for tool in tool_definitions(request.tools) if tool.name in {*known.hidden}]
    named, ranked = _ranked(words, hidden)
    best = named[:_MAX_NAMED] or [tool for tool, score in ranked if score >= ranked[0][1] * _CLOSE][:_MAX_FOUND]
    others = [tool for tool, _ in ranked if tool not in best] or [tool for tool in hidden if tool not in best]
    _with_found(session, request, known, [tool.name for tool in best], write, SEARCHED)
    lines = [f"[No tool that is left out matches '{one_line(words, _MAX_LINE)}'.]"]
    if best:
        lines = ["[These are among your tools from now on. Call them directly.]", *map(_line, best)]
    if others:
        heading = "[Other tools that are left out. Ask for one by its name.]"
        lines += [heading, *map(_line, others[:_MAX_LISTED])]
    text = "\n".join(lines)
    for tool in best:
        longer = f"{text}\n{tool.element}"
        if session.meter.count(longer) <= tokens:
            text = longer
    return text


def listed(tools: bytes, left: LeftOutTools, own: str) -> bytes:
    """Write the list that is sent: the client's tools, the gateway's own, and what was found since."""
    if not left.names:
        return tools.rstrip()[:-1].rstrip() + f", {own}]".encode()
    return (_listed if len(tools) > _MAX_MEMOISED else _memoised_list)(tools, left, own)


def _listed(tools: bytes, left: LeftOutTools, own: str) -> bytes:
    by_name = {tool.name: tool.element for tool in tool_definitions(tools)} if left.found else {}
    kept = without_tools(tools, left.names).decode().rstrip()[:-1].rstrip()
    added = ", ".join([own, *(by_name[name] for name in left.found if name in by_name)])
    return f"{kept}{added}]".encode() if kept.endswith("[") else f"{kept}, {added}]".encode()


_memoised_list = lru_cache(maxsize=32)(_listed)


def _with_found(
    session: Session, request: ClientRequest, known: LeftOutTools, names: Iterable[str], write: ListWriter, reason: str
) -> LeftOutTools:
    found = [name for name in names if name not in known.found]
    if not found:
        return known
    return _record(session, request, replace(known, found=(*known.found, *found)), write, reason)


def _record(
    session: Session, request: ClientRequest, left: LeftOutTools, write: ListWriter, reason: str
) -> LeftOutTools:
    """Store a decision, and return it with what it saves."""
    before = session.meter.tools(request.tools.decode())
    after = session.meter.tools(write(left, looks_up=False).decode()) if left.names else before
    left = replace(left, tokens=max(before - after, 0))
    payload = asdict(left) | {
        "tools": len(left.hidden),
        "tokens_before": before,
        "tokens_after": after,
        "frees": left.tokens,
        "reason": reason,
    }
    session.window.events.append(TOOLS_LEFT_OUT, payload)
    return left


def _ranked(words: str, tools: Sequence[ListedTool]) -> tuple[list[ListedTool], list[tuple[ListedTool, float]]]:
    """Return the tools that are named in words, and all that match them with their scores, best first."""
    lexicon, spoken = shared_lexicon(), {*words.replace(",", " ").split()}
    named = [tool for tool in tools if tool.name in spoken or tool.name == words.strip()]
    wanted = lexicon.terms(words).keys()
    texts = [(lexicon.terms(tool.name), lexicon.terms(tool.element)) for tool in tools]
    scores = [0.0] * len(tools)
    for term in wanted:
        holders = sum(term in text for _, text in texts)
        rarity = log(1 + len(tools) / holders) if holders else 0.0
        for place, (name, text) in enumerate(texts):
            scores[place] += rarity * (_NAME_WEIGHT if term in name else 1.0 if term in text else 0.0)
    ranked = sorted(zip(tools, scores, strict=True), key=lambda scored: -scored[1])
    return named, [(tool, score) for tool, score in ranked if score > 0]


def _line(tool: ListedTool) -> str:
    return f"{tool.name}: {one_line(tool.description, _MAX_LINE)}".rstrip(": ")
