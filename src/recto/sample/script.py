"""What is said in the sample session: a week's bugs, what the user wants and takes back, what is asked later."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from recto.context.window.notes import NoteKind
from recto.continuity.memory.model import MemoryKind

SYSTEM: Final = (
    "You are the engineer of a small shop's order and billing system. Amounts are whole cents. Read before you change, "
    "run the tests after, and say in a few sentences what you found and what you did."
)
TASK: Final = (
    "This week we clear the billing bugs before the half-year close. I will give them to you one by one. Keep the "
    "tests green, make one commit for each, and never touch migrations/."
)
TAKEN_UP: Final = "Understood: one bug, one commit, tests green, and migrations/ stays as it is. What is the first?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One of them: what is wished for, what the tools say, and what is answered."""

    wish: str
    reads: tuple[str, ...]
    test: str
    failure: str
    change: tuple[str, str, str]
    """The file, what stands there, and what is to stand there."""
    found: str
    done: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A question or a remark, and its answer."""

    said: str
    answer: str


FIRST: Final = (
    Talk(
        said="Before you begin: invoices go out on the 1st of each month, and refunds above 200.00 need a second "
        "approval.",
        answer="Noted: invoices on the 1st, and a second approval for refunds above 200.00.",
    ),
    Talk(
        said="You may try things on lantern_stage. Never run anything against lantern_prod, not even a SELECT.",
        answer="I will use lantern_stage only and leave lantern_prod alone.",
    ),
)
CORRECTION: Final = Talk(
    said="I have to take something back: invoices do not go out on the 1st. They go out on the 5th, not on the 1st, "
    "because the card statements arrive on the 3rd.",
    answer="Thank you. Invoices go out on the 5th, not on the 1st; I will treat everything I have seen of the 1st as "
    "wrong.",
)

MONDAY: Final = (
    Bug(
        wish="VAT is off by one cent on many orders. A customer from the Netherlands paid 10.99 and the invoice says "
        "2.30 of VAT, it should be 2.31.",
        reads=("billing/tax.py",),
        test="tests/test_tax.py::test_vat_is_rounded_half_up",
        failure="assert vat_of(1099, 'NL') == 231\nE    assert 230 == 231",
        change=(
            "billing/tax.py",
            "return int(cents * rate_of(country, reduced=reduced) / 1000)",
            "return (cents * rate_of(country, reduced=reduced) + 500) // 1000",
        ),
        found="vat_of divides as a float and cuts the rest off, so half a cent is always lost.",
        done="vat_of now rounds half up in whole numbers: 10.99 from the Netherlands carries 2.31. Commit 7c1e4a9. "
        "Older invoices are not touched; they would need credit notes.",
    ),
    Bug(
        wish="The VAT of an invoice with several pieces is still wrong: three times 3.33 gives 1.89 where 1.90 is "
        "right. Please look at how the invoice adds it up.",
        reads=("billing/invoices.py", "billing/tax.py"),
        test="tests/test_invoices.py::test_vat_is_taken_of_the_sum",
        failure="assert total_of([(333, 3)], 'DE') == (999, 190)\nE    assert (999, 189) == (999, 190)",
        change=(
            "billing/invoices.py",
            "return net, sum(vat_of(amount, country) * quantity for amount, quantity in lines)",
            "return net, vat_of(net, country)",
        ),
        found="total_of rounds for each piece and multiplies the rounded amount, so the error grows with the quantity.",
        done="total_of takes the VAT of the whole net amount now, and rounds once. Commit 2f80b6d. Two tests that had "
        "the old sums written down were wrong and say 190 and 4,731 now.",
    ),
    Bug(
        wish="Refunds between 200.00 and 500.00 go out without a second approval. See what the limit is in the code.",
        reads=("billing/refunds.py", "api/routes.py"),
        test="tests/test_refunds.py::test_a_refund_above_the_limit_waits",
        failure="assert answer.status == 202\nE    assert 200 == 202",
        change=("billing/refunds.py", "SECOND_APPROVAL_FROM = 50_000", "SECOND_APPROVAL_FROM = 20_000"),
        found="SECOND_APPROVAL_FROM is 50,000 cents. It was raised in spring for a sale and never lowered again.",
        done="The limit is 20,000 cents again, as you said, and the constant has a test of its own. Commit e19d3c7.",
    ),
)
TUESDAY: Final = (
    Bug(
        wish="Make the code do what I told you about the day on which invoices go out.",
        reads=("billing/invoices.py", "jobs/nightly.py"),
        test="tests/test_nightly.py::test_invoices_go_out_on_the_fifth",
        failure="assert next_run(date(2026, 3, 2)) == date(2026, 3, 5)\nE    assert datetime.date(2026, 4, 1) == "
        "datetime.date(2026, 3, 5)",
        change=("billing/invoices.py", "SEND_DAY = 1", "SEND_DAY = 5"),
        found="SEND_DAY is 1 in billing/invoices.py, and jobs/nightly.py takes it from there; nothing else names it.",
        done="SEND_DAY is 5. The nightly job closes invoices on the 5th, and the text of the letter says so too. "
        "Commit b4470fe.",
    ),
    Bug(
        wish="Customers type discount codes in capitals and are told that there is no such code.",
        reads=("orders/discounts.py",),
        test="tests/test_discounts.py::test_case_does_not_matter",
        failure="assert find('SPRING24', codes) is not None\nE    assert None is not None",
        change=(
            "orders/discounts.py",
            "return codes.get(code.strip())",
            "return codes.get(code.strip().casefold())",
        ),
        found="Codes are stored in lower case, and find looks for exactly what was typed.",
        done="find folds the case, and redeem does the same so that a code cannot be used once in each spelling. "
        "Commit 91ab05c.",
    ),
    Bug(
        wish="A code for a single use was used twice on Friday, by two orders in the same second. How can that be?",
        reads=("orders/discounts.py", "store/ledger.py"),
        test="tests/test_discounts.py::test_two_orders_at_once_share_no_code",
        failure="assert sorted(results) == [False, True]\nE    assert [True, True] == [False, True]",
        change=(
            "orders/discounts.py",
            "codes.put(code, used=held.used + 1, order=order)\n    return True",
            "return codes.use_up(code, order, most=held.uses)",
        ),
        found="redeem reads how often a code was used and writes one more. Two requests both read 0.",
        done="The count is raised by one conditional UPDATE, and whoever changes no row gets False. Tried with 200 "
        "threads on lantern_stage. Commit 5d02c88.",
    ),
)
WEDNESDAY: Final = (
    Bug(
        wish="Some customers got the same reminder four nights in a row, and then the letter was tried a fifth time.",
        reads=("mail/outbox.py", "jobs/nightly.py"),
        test="tests/test_outbox.py::test_a_letter_is_tried_three_times_at_most",
        failure="assert attempts == 3\nE    assert 4 == 3",
        change=("mail/outbox.py", 'if row["tries"] <= tries', 'if row["tries"] < tries'),
        found="waiting lets a letter through whose tries equal the limit, so there is one try too many.",
        done="A letter is tried three times, and then it is listed for a person. Commit c7f1193.",
    ),
    Bug(
        wish="A refund of 19.99 was booked as 19.98. It came in over the API.",
        reads=("api/routes.py", "billing/refunds.py"),
        test="tests/test_routes.py::test_amounts_are_read_exactly",
        failure="assert answer.json == {'cents': -1999}\nE    assert {'cents': -1998} == {'cents': -1999}",
        change=(
            "api/routes.py",
            'cents = int(float(request.json["amount"]) * 100)',
            'cents = int((Decimal(str(request.json["amount"])) * 100).to_integral_exact())',
        ),
        found="The amount becomes a float on its way in: 19.99 times 100 is 1998.9999999999998, and int cuts it.",
        done="Amounts are read as decimals, and more than two places are refused with 400. Commit 0be6d51.",
    ),
    Bug(
        wish="Numbers of credit notes leave gaps: C2026-00012 is followed by C2026-00041. The auditors will ask.",
        reads=("billing/refunds.py", "billing/invoices.py", "store/ledger.py"),
        test="tests/test_refunds.py::test_credit_notes_have_numbers_of_their_own",
        failure="assert numbers == ['C2026-00001', 'C2026-00002']\nE    assert ['C2026-00001', 'C2026-00031'] == "
        "['C2026-00001', 'C2026-00002']",
        change=(
            "billing/refunds.py",
            'number = "C" + number_of(year, ledger)',
            "number = f\"C{year}-{ledger.count(f'credit/{year}') + 1:05d}\"",
        ),
        found="credit_note borrows the number of the next invoice, so each invoice in between makes a gap.",
        done="Credit notes are counted by themselves. The gap up to C2026-00041 stays and is explained in "
        "docs/audit.md. Commit 8a33e0f.",
    ),
)
THURSDAY: Final = (
    Bug(
        wish="The nightly job took four hours yesterday. It used to take ten minutes.",
        reads=("jobs/nightly.py", "store/ledger.py"),
        test="tests/test_ledger.py::test_counting_reads_no_rows",
        failure="assert database.rows_read < 100\nE    assert 1840211 < 100",
        change=(
            "store/ledger.py",
            'return len({row["reference"] for row in self._database.starting("posting", prefix)})',
            'return self._database.count_distinct("posting", "reference", prefix)',
        ),
        found="count reads every posting of the year to number one invoice: 1,840,211 rows for each of 900 invoices.",
        done="The database counts, over the index that was there already. On lantern_stage the night takes 6 minutes "
        "40. Commit f25c9d4.",
    ),
    Bug(
        wish="Businesses in other countries are charged VAT although their number was checked.",
        reads=("billing/tax.py", "billing/invoices.py"),
        test="tests/test_tax.py::test_a_business_abroad_owes_the_tax_itself",
        failure="assert total_of(lines, 'FR', number='FR40303265045') == (5000, 0)\nE    assert (5000, 1000) == "
        "(5000, 0)",
        change=(
            "billing/invoices.py",
            "return net, vat_of(net, country)",
            "return net, 0 if reverse_charge(Country(country), number) else vat_of(net, country)",
        ),
        found="reverse_charge is there and has tests, but nobody calls it: invoices never ask for the buyer's number.",
        done="total_of takes the number and asks reverse_charge. The invoice says 'reverse charge' in the buyer's "
        "language. Commit 3e9f710.",
    ),
    Bug(
        wish="Open invoices are reminded after 10 days. The terms say 14 days, so it has to be 15 at the earliest.",
        reads=("jobs/nightly.py", "billing/invoices.py"),
        test="tests/test_nightly.py::test_nobody_is_reminded_before_the_due_day",
        failure="assert outbox.templates == []\nE    assert ['reminder'] == []",
        change=("jobs/nightly.py", "DUNNING_AFTER = 10", "DUNNING_AFTER = DUE_DAYS + 1"),
        found="DUNNING_AFTER is a number of its own and knows nothing of DUE_DAYS.",
        done="Reminders follow DUE_DAYS: 15 days after the invoice. Commit 66d8b2a.",
    ),
)
BETWEEN: Final = (
    Talk(
        said="How many tests do we have by now, and how long do they take?",
        answer="412 tests in 38 seconds. The slowest is tests/test_nightly.py with 9 seconds.",
    ),
    Talk(
        said="Please write commit messages in the present tense, and name the ticket where there is one.",
        answer="I will: present tense, and the ticket in brackets at the end.",
    ),
    Talk(
        said="Can the ledger ever delete a posting?",
        answer="No. store/ledger.py has post, balance, count and mirror, and nothing that deletes; corrections are "
        "mirrored.",
    ),
    Talk(
        said="The accountant wants the export as CSV with semicolons, not with commas.",
        answer="Semicolons it is. The export is written by jobs/export.py; I will change it with the next bug that "
        "touches it.",
    ),
    Talk(
        said="Is there anything that still uses floats for money?",
        answer="No longer. After commit 0be6d51 the only floats left are durations in the logs.",
    ),
    Talk(
        said="What did we decide about old invoices with the wrong VAT?",
        answer="That they stay as they are; where a customer asks, a credit note and a new invoice are made.",
    ),
)
REVIEW: Final = Talk(
    said="Before I tell the accountant: look once more at how refunds are booked and told to customers.",
    answer="Refunds wait for a second approval from 200.00 on, and are posted with the sign turned. Nothing is ever "
    "changed after it was posted.",
)
REVIEWED: Final = ("billing/refunds.py", "mail/outbox.py")
LATER: Final = (
    Talk(
        said="On which day of the month do invoices go out?",
        answer="On the 5th, not on the 1st: you took that back, and SEND_DAY is 5 since commit b4470fe.",
    ),
    Talk(
        said="From which amount on does a refund need a second approval, and in which commit did we set it?",
        answer="Above 200.00. SECOND_APPROVAL_FROM is 20,000 cents again since commit e19d3c7.",
    ),
    Talk(
        said="A discount code for a single use was redeemed twice: what was the cause, and how did we test the fix?",
        answer="redeem read the count and wrote it back, so two requests both saw 0. One conditional UPDATE does it "
        "now, tried with 200 threads on lantern_stage, commit 5d02c88.",
    ),
    Talk(
        said="Which database may you never touch?",
        answer="lantern_prod. I work on lantern_stage only.",
    ),
)
FOCUS: Final = "amounts, days, limits and commits"
GOAL: Final = "Clear the billing bugs before the half-year close"
CRITERIA: Final = ("all tests green", "one commit for each bug", "migrations/ untouched")
DONE: Final = ("VAT", "refund limit", "send day", "discount codes", "letters that are tried too often", "exact amounts")
PLAN: Final = ("the nightly job", "reverse charge", "reminders after the due day")
NOTES: Final[tuple[tuple[NoteKind, str, bool], ...]] = (
    ("constraints", "Invoices go out on the 5th, not on the 1st.", True),
    ("constraints", "Only lantern_stage; never lantern_prod. migrations/ stays as it is.", True),
    ("bugs", "Discount codes: the case is folded on reading and on writing.", False),
    ("task_progress", "VAT, refunds, send day, codes: done. Open: reminders, credit notes, the nightly job.", False),
)
PROPOSED: Final[tuple[tuple[MemoryKind, str, str], ...]] = (
    ("correction", "Invoices go out on the 5th of each month, not on the 1st.", "the 5th, not on the 1st"),
    ("procedure", "Never run anything against lantern_prod; lantern_stage is there for trying things.", "lantern_prod"),
    ("preference", "Commit messages are in the present tense and name the ticket.", "present tense"),
)
"""Memory that waits for a decision: its kind, its text, and words of the message it was learnt from."""


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
