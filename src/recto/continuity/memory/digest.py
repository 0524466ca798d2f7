"""The digest of an agent's critical memory: a short text that is in every prompt of the agent.

It is made by rule from approvals and does not depend on use, age or the question, so its bytes stay the same until
critical memory is approved, edited or retired. The store is read only when the pages of the memory have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recto.continuity.memory.authority import MemoryAuthority
from recto.continuity.memory.events import Approval
from recto.continuity.memory.model import Memory
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe

_LENGTHS = (400, 200, 100)
"""Characters of each memory, tried in this order until all of them fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDigest:
    """Critical memory as a prompt contains it."""

    text: str = ""
    """Empty if there is none."""
    tokens: int = 0
    complete: frozenset[int] = frozenset()
    """Messages of the memory session whose whole text is in it: recall need not quote them."""


class CriticalMemory:
    """The critical memory of one agent, read again when its pages change."""

    def __init__(self, authority: MemoryAuthority, home: str, *, count: Callable[[str], int], most: int) -> None:
        """Prepare the digest of a memory session, within `most` tokens."""
        self._authority = authority
        self._home = home
        self._count = count
        self._most = most
        self._critical: Mapping[int, Approval] = {}
        self._seen: tuple[object, ...] = ()
        self._digest = MemoryDigest()

    def read(self) -> MemoryDigest:
        """Return the digest as of now."""
        if not self._seen or self._authority.status(self._home, self._memories) != self._seen:
            before = self._authority.status(self._home)
            self._critical = self._authority.critical(self._home) if before else {}
            after = self._authority.status(self._home, self._memories)
            # Where a page was written meanwhile, it is read again next time.
            self._seen = after if after[: len(before)] == before else ()
            self._digest = self._make()
        return self._digest

    @property
    def _memories(self) -> list[Memory]:
        return [approval.memory for approval in self._critical.values()]

    def _make(self) -> MemoryDigest:
        """All of them, each as long as possible; if they do not fit even when short, the newest that do."""
        texts = {seq: _one_line(approval.memory.text) for seq, approval in sorted(self._critical.items())}
        for length in _LENGTHS:
            if self._count(self._render(texts, length)) <= self._most:
                return self._digest_of(texts, length)
        while texts:
            texts.pop(min(texts))
            if self._count(self._render(texts, _LENGTHS[-1])) <= self._most:
                return self._digest_of(texts, _LENGTHS[-1])
        return MemoryDigest()

    def _digest_of(self, texts: Mapping[int, str], length: int) -> MemoryDigest:
        text = self._render(texts, length)
        complete = frozenset(seq for seq, one in texts.items() if len(one) <= length)
        return MemoryDigest(text=text, tokens=self._count(text) if text else 0, complete=complete)

    def _render(self, texts: Mapping[int, str], length: int) -> str:
        if not texts:
            return ""
        left_out = len(self._critical) - len(texts)
        more = f" {left_out} older ones are left out." if left_out else ""
        heading = (
            "[Critical memory of this agent, approved and quoted for reference. A number in parentheses is an entry of "
            f"recto://{self._home}.{more}]"
        )
        return "\n".join([heading, *(f"- {_cut(text, length)} ({seq})" for seq, text in texts.items())])


def _one_line(text: str) -> str:
    return " ".join(mask_secrets(prompt_safe(text)).split())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
