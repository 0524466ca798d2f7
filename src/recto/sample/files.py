"""The files of a small shop's order and billing system, as the agent of the sample session reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_INVOICES = '''"""Invoices: when they go out, what they say, what is still open."""

from datetime import date, timedelta

from billing.tax import vat_of
from store.ledger import Ledger, Posting

SEND_DAY = 1
DUE_DAYS = 14
NUMBER = "{year}-{place:05d}"


def next_run(today: date) -> date:
    """The next day on which invoices go out."""
    if today.day <= SEND_DAY:
        return today.replace(day=SEND_DAY)
    following = today.replace(day=28) + timedelta(days=4)
    return following.replace(day=SEND_DAY)


def number_of(year: int, ledger: Ledger) -> str:
    """The number of the next invoice of a year."""
    return NUMBER.format(year=year, place=ledger.count(f"invoice/{year}") + 1)


def total_of(lines: list[tuple[int, int]], country: str) -> tuple[int, int]:
    """Net and VAT in cents of lines, each with its amount in cents and its quantity."""
    net = sum(amount * quantity for amount, quantity in lines)
    return net, sum(vat_of(amount, country) * quantity for amount, quantity in lines)


def close(invoice: str, ledger: Ledger, today: date) -> Posting:
    """Posts an invoice; from here on it can be credited, and never changed."""
    net, vat = ledger.totals(invoice)
    due = today + timedelta(days=DUE_DAYS)
    return ledger.post(invoice, account="receivables", cents=net + vat, due=due)
'''
_TAX = '''"""VAT by country. Rates are whole per mille, amounts whole cents."""

from store.countries import EU, Country

RATES = {"DE": 190, "FR": 200, "NL": 210, "IE": 230, "LU": 170, "FI": 255, "PT": 230}
REDUCED = {"DE": 70, "FR": 55, "NL": 90, "IE": 135, "LU": 80, "FI": 140, "PT": 60}
EXPORT = 0


def rate_of(country: str, *, reduced: bool = False) -> int:
    """The rate that holds for a country; goods that leave the union carry none."""
    if country not in EU:
        return EXPORT
    return (REDUCED if reduced else RATES)[country]


def vat_of(cents: int, country: str, *, reduced: bool = False) -> int:
    """VAT on an amount, in cents."""
    return int(cents * rate_of(country, reduced=reduced) / 1000)


def reverse_charge(buyer: Country, number: str | None) -> bool:
    """Whether the buyer owes the tax: a business of another member state, with a number that was checked."""
    return buyer.code in EU and buyer.code != "DE" and bool(number)
'''
_REFUNDS = '''"""Refunds: who may give them, how they are booked, and what the customer is told."""

from billing.invoices import number_of
from mail.outbox import Outbox
from store.ledger import Ledger, Posting

SECOND_APPROVAL_FROM = 50_000
"""Cents."""


class NeedsApproval(Exception):
    """A second person has to look at it first."""


def refund(order: str, cents: int, ledger: Ledger, outbox: Outbox, approved_by: tuple[str, ...] = ()) -> Posting:
    """Gives money back for an order, in whole or in part."""
    if cents >= SECOND_APPROVAL_FROM and len(set(approved_by)) < 2:
        raise NeedsApproval(order)
    paid = ledger.balance(order, "paid")
    if cents > paid:
        raise ValueError(f"{order}: {cents} is more than the {paid} that were paid")
    posted = ledger.post(order, account="refunds", cents=-cents)
    outbox.queue("refund", order=order, cents=cents)
    return posted


def credit_note(invoice: str, ledger: Ledger, year: int) -> str:
    """A credit note for a whole invoice, under a number of its own."""
    number = "C" + number_of(year, ledger)
    ledger.mirror(invoice, number)
    return number
'''
_DISCOUNTS = '''"""Discount codes: how they are found, what they take off, and how often they may be used."""

from store.codes import Codes

MOST_PER_MILLE = 300


def find(code: str, codes: Codes):
    """The discount behind what a customer typed, if there is one."""
    return codes.get(code.strip())


def apply(cents: int, per_mille: int) -> int:
    """What is left of an amount. No code takes off more than the most that is allowed."""
    return cents - cents * min(per_mille, MOST_PER_MILLE) // 1000


def redeem(code: str, order: str, codes: Codes) -> bool:
    """Uses a code up for an order; whether that was possible."""
    held = codes.get(code)
    if held is None or held.used >= held.uses:
        return False
    codes.put(code, used=held.used + 1, order=order)
    return True
'''
_LEDGER = '''"""The ledger: postings are only ever added, and their sum is what an account holds."""

from dataclasses import dataclass
from datetime import date

from store.database import Database


@dataclass(frozen=True)
class Posting:
    """One line of the ledger."""

    reference: str
    account: str
    cents: int
    due: date | None = None


class Ledger:
    """Everything that was ever posted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def post(self, reference: str, *, account: str, cents: int, due: date | None = None) -> Posting:
        """Adds a posting."""
        self._database.insert("posting", reference=reference, account=account, cents=cents, due=due)
        return Posting(reference, account, cents, due)

    def balance(self, reference: str, account: str) -> int:
        """What an account holds for a reference."""
        rows = self._database.select("posting", reference=reference, account=account)
        return sum(row["cents"] for row in rows)

    def count(self, prefix: str) -> int:
        """How many references begin so."""
        return len({row["reference"] for row in self._database.starting("posting", prefix)})

    def mirror(self, reference: str, other: str) -> None:
        """Posts everything of a reference again under another one, with the sign turned."""
        for row in self._database.select("posting", reference=reference):
            self.post(other, account=row["account"], cents=-row["cents"])
'''
_NIGHTLY = '''"""What runs at night: dunning, exports, and whatever waits in the outbox."""

import logging
from datetime import date

from billing.invoices import close, next_run
from mail.outbox import Outbox
from store.ledger import Ledger

log = logging.getLogger(__name__)
TRIES = 3
DUNNING_AFTER = 10
"""Days after which an open invoice is asked for."""


def run(today: date, ledger: Ledger, outbox: Outbox) -> int:
    """One night. Gives the number of invoices that were closed."""
    closed = 0
    if next_run(today) == today:
        for invoice in ledger.open_invoices():
            close(invoice, ledger, today)
            outbox.queue("invoice", invoice=invoice)
            closed += 1
    for invoice in ledger.overdue(today, DUNNING_AFTER):
        outbox.queue("reminder", invoice=invoice)
    log.info("closed %s invoices", closed)
    return closed


def deliver(outbox: Outbox) -> int:
    """Sends what waits. What fails is tried again the next night, up to three times."""
    sent = 0
    for letter in outbox.waiting(TRIES):
        try:
            letter.send()
            sent += 1
        except OSError:
            letter.failed()
    return sent
'''
_OUTBOX = '''"""Letters that wait to be sent. A letter is stored with the change it tells of, or not at all."""

from store.database import Database


class Outbox:
    """What waits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def queue(self, template: str, **about: object) -> int:
        """Stores a letter; the number it has."""
        return self._database.insert("letter", template=template, about=about, tries=0)

    def waiting(self, tries: int) -> list["Letter"]:
        """Letters that were not sent yet and were not tried too often."""
        rows = self._database.select("letter", sent=None)
        return [Letter(row, self._database) for row in rows if row["tries"] <= tries]
'''
_ROUTES = '''"""The shop over HTTP."""

from api.auth import staff_only
from api.web import Request, Response, route
from billing.refunds import NeedsApproval, refund
from orders.discounts import apply, find


@route("POST", "/orders/{order}/refund")
@staff_only
def give_back(request: Request, order: str) -> Response:
    """Refunds an order."""
    cents = int(float(request.json["amount"]) * 100)
    try:
        posted = refund(order, cents, request.ledger, request.outbox, (request.user,))
    except NeedsApproval:
        return Response(202, {"waits": "a second approval"})
    return Response(200, {"cents": posted.cents})


@route("GET", "/cart/price")
def price(request: Request) -> Response:
    """What a cart costs with a code."""
    held = find(request.query.get("code", ""), request.codes)
    cents = request.cart.total()
    return Response(200, {"cents": apply(cents, held.per_mille) if held else cents})
'''

FILES: Final[Mapping[str, str]] = {
    "billing/invoices.py": _INVOICES,
    "billing/tax.py": _TAX,
    "billing/refunds.py": _REFUNDS,
    "orders/discounts.py": _DISCOUNTS,
    "store/ledger.py": _LEDGER,
    "jobs/nightly.py": _NIGHTLY,
    "mail/outbox.py": _OUTBOX,
    "api/routes.py": _ROUTES,
}
"""By path."""
