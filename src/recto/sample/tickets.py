"""Tickets of customers, made from a seed: what a shop is asked on an ordinary day, and what is answered."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

_SHOPS = (
    "Brightwater Books",
    "Hollow Oak Toys",
    "Northgate Cycles",
    "Saltmarsh Teas",
    "Quarry Lane Lamps",
    "Fenwick Paper",
)
_PLACES = ("Porto", "Ghent", "Turku", "Graz", "Leeds", "Cork", "Lille", "Bremen")
_CASES = (
    (
        "paid twice",
        "The card was charged twice for order {order}: {amount} at 09:12 and {amount} at 09:13.",
        "Order {order} was charged twice because the page was sent again. One charge of {amount} was voided by the "
        "card's own provider before it was settled, so nothing has to be refunded.",
    ),
    (
        "address",
        "We moved to {place}. Can order {order} go to the new address?",
        "Order {order} had not left the warehouse, so it goes to {place} now. The invoice keeps the old address; it "
        "was closed already.",
    ),
    (
        "late",
        "Order {order} should have been in {place} on Monday. Where is it?",
        "Order {order} waits at the depot in {place} for a signature. The carrier tries again tomorrow before noon; no "
        "refund was promised.",
    ),
    (
        "invoice missing",
        "We have no invoice for order {order}, and our books close this week.",
        "The invoice of order {order} is over {amount} and was sent to an address that bounces. It was sent again to "
        "the one in the account.",
    ),
    (
        "broken",
        "Two of the {pieces} pieces of order {order} arrived broken.",
        "Two of {pieces} pieces of order {order} are sent again free of charge. They are worth {amount}, so no second "
        "approval is needed.",
    ),
    (
        "quantity",
        "Order {order} says {pieces} pieces, we ordered half of that.",
        "The cart of order {order} was doubled by going back in the browser. {amount} were taken off the invoice "
        "before it was closed.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One of them."""

    number: int
    asked: str
    """What the agent is asked about it."""
    text: str
    """What it says when it is read."""
    answer: str


def tickets(rng: random.Random) -> Iterator[Ticket]:
    """One after the other, without end. Same seed, same tickets."""
    number = 2_200
    while True:
        number += rng.randint(1, 9)
        title, said, answer = rng.choice(_CASES)
        words = {
            "order": f"A-{rng.randint(40_000, 49_999)}",
            "amount": f"{rng.randint(5, 190)}.{rng.randint(0, 99):02}",
            "place": rng.choice(_PLACES),
            "pieces": rng.choice((4, 6, 8, 12, 20)),
        }
        shop = rng.choice(_SHOPS)
        history = "\n".join(
            f"  {rng.randint(8, 18):02}:{rng.randint(0, 59):02} {step}"
            for step in ("opened", "seen by support", "given to us")
        )
        yield Ticket(
            number=number,
            asked=f"Ticket {number} from {shop}: {title}. What do we tell them?",
            text=f"ticket {number}\nfrom: {shop}\nsubject: {title}\norder: {words['order']}\n\n"
            f"{said.format(**words)}\n\nhistory:\n{history}\npriority: {rng.choice(('low', 'normal', 'high'))}",
            answer=answer.format(**words),
        )
