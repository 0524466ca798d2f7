"""Memories of an agent, each with a question that a user may ask in a new session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recto.continuity.memory import MemoryKind


@dataclass(frozen=True, slots=True)
class Asked:
    """A memory, and a question that it answers."""

    kind: MemoryKind
    text: str
    question: str
    critical: bool = False


MEMORIES: Final = (
    Asked(
        "preference",
        "Marlow & Sons want their invoices on the 5th of each month.",
        "When do Marlow & Sons want their invoices?",
    ),
    Asked(
        "decision",
        "We chose PostgreSQL for the ledger, because two services write to it at once.",
        "Which database did we choose for the ledger?",
    ),
    Asked(
        "fact",
        "The staging cluster runs in eu-central-1 under the account name heron-staging.",
        "In which region does the staging cluster run?",
    ),
    Asked(
        "procedure",
        "To rotate the signing key, run tools/rotate_key.py, then restart the gateway pods one by one.",
        "How do we rotate the signing key?",
    ),
    Asked(
        "correction",
        "Refunds above 200.00 need two approvals, not one.",
        "How many approvals does a refund above 200.00 need?",
        critical=True,
    ),
    Asked(
        "lesson",
        "The import job fails on files with a byte order mark; strip it before parsing.",
        "Why does the import job fail on some files?",
    ),
    Asked(
        "preference",
        "Ada reads German and wants release notes in German.",
        "In which language does Ada want the release notes?",
    ),
    Asked(
        "decision",
        "Feature flags are kept in flags.toml and not in the database.",
        "Where are feature flags kept?",
    ),
    Asked(
        "fact",
        "The office in Porto is closed on the first Friday of each month.",
        "When is the office in Porto closed?",
    ),
    Asked(
        "procedure",
        "Before a release, tag the commit, wait for the nightly suite, and ask Grace to sign it off.",
        "What has to happen before a release?",
    ),
    Asked(
        "lesson",
        "Retrying the payment call without an idempotency key charged 14 customers twice.",
        "What happened when the payment call was retried without an idempotency key?",
    ),
    Asked(
        "fact",
        "The backup of the ledger is written to bucket kestrel-backups at 02:30 UTC.",
        "At what time is the backup of the ledger written?",
    ),
    Asked(
        "preference",
        "Tests are written with pytest and without mocks of our own code.",
        "How do we write tests?",
    ),
    Asked(
        "decision",
        "The mobile app supports iOS 16 and later; iOS 15 was dropped in March.",
        "Which versions of iOS does the mobile app support?",
    ),
    Asked(
        "fact",
        "Customer 4411 pays by bank transfer only.",
        "How does customer 4411 pay?",
    ),
    Asked(
        "correction",
        "The discount for resellers is 12 percent, not 15 percent.",
        "What is the discount for resellers?",
    ),
    Asked(
        "fact",
        "Nothing may be pushed to main without the approval of Grace.",
        "May I push this to main?",
        critical=True,
    ),
    Asked(
        "lesson",
        "The test suite hangs when the Redis container has less than 256 MB of memory.",
        "Why does the test suite hang?",
    ),
    Asked(
        "fact",
        "The support line is staffed from 8:00 to 18:00 Lisbon time.",
        "When is the support line staffed?",
    ),
    Asked(
        "procedure",
        "To restore a deleted order, set deleted_at to null in orders_archive and replay its events.",
        "How can I restore a deleted order?",
    ),
    Asked(
        "preference",
        "Commit messages begin with the name of the module in lower case.",
        "How should commit messages begin?",
    ),
    Asked(
        "decision",
        "We cache exchange rates for six hours and never for weekends.",
        "How long do we cache exchange rates?",
    ),
    Asked(
        "fact",
        "The domain kestrel.example renews on the 14th of September.",
        "When does the domain kestrel.example renew?",
    ),
    Asked(
        "lesson",
        "Upgrading numpy to 2.3 broke the forecast job; it is held at 2.2.",
        "Which version of numpy is the forecast job held at?",
    ),
    Asked(
        "fact",
        "Grace is the owner of the billing service, Linus of the search service.",
        "Who is the owner of the billing service?",
    ),
    Asked(
        "preference",
        "Charts use the colours of the Okabe and Ito palette.",
        "Which palette do charts use?",
    ),
    Asked(
        "decision",
        "Passwords are hashed with argon2id with 64 MB of memory.",
        "How are passwords hashed?",
    ),
    Asked(
        "fact",
        "Customer data of French shops must not leave the data centre in Paris.",
        "Where may customer data of French shops be stored?",
        critical=True,
    ),
    Asked(
        "procedure",
        "When the queue grows above 10,000 messages, scale the workers to 24 and page Linus.",
        "What do we do when the queue grows above 10,000 messages?",
    ),
    Asked(
        "correction",
        "The API limit is 300 requests per minute per key, not per account.",
        "What is the API limit per minute?",
    ),
    Asked(
        "fact",
        "The warehouse in Ghent ships on Mondays and Thursdays.",
        "On which days does the warehouse in Ghent ship?",
    ),
    Asked(
        "lesson",
        "The PDF renderer leaks memory with embedded fonts, so it is restarted every 500 documents.",
        "Why is the PDF renderer restarted?",
    ),
    Asked(
        "preference",
        "Dates in reports are written as day, month in letters, year.",
        "How are dates written in reports?",
    ),
    Asked(
        "decision",
        "The old SOAP interface is switched off on 1 July.",
        "When is the SOAP interface switched off?",
    ),
    Asked(
        "fact",
        "The emergency contact for the payment provider is +351 21 555 0199.",
        "What is the emergency contact for the payment provider?",
        critical=True,
    ),
    Asked(
        "procedure",
        "Schema changes are made with alembic and reviewed by two people.",
        "How are schema changes made?",
    ),
    Asked(
        "fact",
        "The quarterly audit takes place in the last week of each quarter.",
        "When does the quarterly audit take place?",
    ),
    Asked(
        "lesson",
        "Parallel runs of the settlement job corrupt the balance table.",
        "What happens when the settlement job runs in parallel?",
    ),
    Asked(
        "preference",
        "The user wants short answers with the command first.",
        "What kind of answers does the user want?",
    ),
    Asked(
        "decision",
        "Logs are kept for 30 days and traces for 7.",
        "How long are logs kept?",
    ),
    Asked(
        "fact",
        "The printer on the third floor is called Gutenberg.",
        "What is the printer on the third floor called?",
    ),
    Asked(
        "correction",
        "The seller in Spain is taxed at 21 percent since January, not at 18.",
        "At which rate is the seller in Spain taxed?",
    ),
    Asked(
        "procedure",
        "To onboard a shop, create its tenant, import the catalogue, and send the welcome mail.",
        "What are the steps to onboard a shop?",
    ),
    Asked(
        "fact",
        "The load test may run on Sundays only, between 3:00 and 6:00 UTC.",
        "When may the load test run?",
    ),
)
