"""What might be remembered, decided in a chat. Only what was shown whole can be approved, and only those very bytes."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from recto.cli.conversation import Conversation
from recto.cli.memory import print_proposal
from recto.cli.screen import one_line, out, safe
from recto.engine.memory_proposals import Proposal
from recto.errors import InputError
from recto.gateway.answered import value_of
from recto.gateway.inspection.values import Approved, ProposalPage, Stored

_LISTED = 50


async def memory(talk: Conversation, given: str) -> None:
    """Lists proposals by number; shows, approves or rejects one."""
    word, _, rest = given.partition(" ")
    match word:
        case "":
            await _list(talk)
        case "approve":
            await _approve(talk, _chosen(talk, rest))
        case "reject":
            number, _, why = rest.strip().partition(" ")
            await _reject(talk, _chosen(talk, number), why.strip())
        case _:
            _show(talk, _chosen(talk, word))


async def _list(talk: Conversation) -> None:
    page = value_of(ProposalPage, await talk.client.get("/memory/proposals", limit=_LISTED))
    talk.proposals = page.proposals
    if not page.proposals:
        out.print("Nothing waits for a decision.")
        return
    table = Table("", "to", "kind", "by", "what")
    for place, one in enumerate(page.proposals, 1):
        title = Text(one_line(one.memory.title, 70))
        table.add_row(str(place), safe(one.action), safe(one.memory.kind), safe(one.by), title)
    out.print(table)
    more = " There are more: decide these first." if page.next else ""
    out.print(f"/memory N shows one whole, /memory approve N and /memory reject N decide.{more}", markup=False)


def _show(talk: Conversation, one: Proposal) -> None:
    print_proposal(one)
    talk.shown.add(one.digest)


async def _approve(talk: Conversation, one: Proposal) -> None:
    if one.digest not in talk.shown:
        _show(talk, one)
        out.print("Say it again to approve exactly this.")
        return
    asked = {"proposal": one.id, "digest": one.digest}
    made = value_of(Approved, await talk.client.post("/memory/proposals/approve", asked))
    out.print(safe(f"remembered: {made.memory}"), markup=False, soft_wrap=True)


async def _reject(talk: Conversation, one: Proposal, why: str) -> None:
    asked = {"proposal": one.id, **({"reason": why} if why else {})}
    value_of(Stored, await talk.client.post("/memory/proposals/reject", asked))
    out.print(safe(f"rejected: {one.id}"), markup=False)


def _chosen(talk: Conversation, text: str) -> Proposal:
    digits = text.strip()
    place = int(digits) if digits.isascii() and digits.isdigit() else 0
    if not 1 <= place <= len(talk.proposals):
        raise InputError("give the number of a proposal, as /memory lists them")
    return talk.proposals[place - 1]
