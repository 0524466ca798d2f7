"""The blocks of a prompt in words: what each is, what it costs, and why it is in the prompt."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content

from recto.engine.window_view import BlockKind, BlockReason, PromptBlock
from recto.text.unicode import safe
from recto.tui.display_text import full_number, plural, right_aligned, safe_content
from recto.tui.widgets.table import TableRow

_KINDS: Mapping[BlockKind, str] = {
    "tools": "Tool definitions",
    "instructions": "System text",
    "message": "",
    "placeholder": "Placeholder",
    "marker": "Eviction notice",
    "record": "Working record",
    "notes": "Notes",
    "summary": "Summary",
    "recalled": "Recalled",
    "handoff": "Handoff",
    "frame": "Format overhead",
}
_REASONS: Mapping[BlockReason, tuple[str, str]] = {
    "system": ("system text", "Protected: system text is never evicted"),
    "task": ("task", "Protected: the task of the session"),
    "pinned": ("pinned", "Pinned: kept in the prompt by hand"),
    "question": ("question", "Protected: it is being answered"),
    "answered": ("replied to", "Protected: the current question answers it"),
    "unanswered": ("latest step", "Protected: the model has not answered it yet"),
    "recent": ("recent", "Protected: one of the newest messages"),
    "tool": ("by its tool", "Protected by a setting: calls and results of this tool stay"),
    "kind": ("by its kind", "Protected by a setting: messages of this kind stay"),
    "marked": ("protected", "Protected: it carries the protecting mark"),
    "fits": ("fits", "It fits: it may be evicted when the prompt is too full"),
    "written": ("by Recto", "Written by Recto; no message of the session"),
    "client": ("each request", "The client or the format adds it to every request"),
}


def block_key(block: PromptBlock, place: int) -> str:
    """The key of a block among those of its prompt; the same message has the same key in another prompt."""
    return f"{block.what} {place if block.seq is None else block.seq}"


def block_name(block: PromptBlock) -> str:
    """What a block is."""
    return _KINDS[block.what] or block.role


def block_row(block: PromptBlock, place: int) -> TableRow:
    """A block as a row: entry, block, tokens, why, text."""
    entry = right_aligned("" if block.seq is None else full_number(block.seq))
    cells = (entry, block_name(block), right_aligned(full_number(block.tokens)), _REASONS[block.reason][0], block.text)
    return TableRow(key=block_key(block, place), cells=cells)


def describe_block(block: PromptBlock) -> Content:
    """A block with its whole text, as far as it was loaded."""
    entry = "" if block.seq is None else f"entry {block.seq:,}: "
    trimmed = f", trimmed from {full_number(block.stored_tokens)}" if block.stored_tokens > block.tokens else ""
    lines = [
        Content.assemble((f"{entry}{safe(block_name(block))}", "bold"), f"  {plural(block.tokens, 'token')}{trimmed}"),
        Content.styled(_REASONS[block.reason][1], "$text-muted"),
    ]
    if block.sources:
        sources = ", ".join(full_number(seq) for seq in block.sources)
        lines.append(Content.styled(f"↺ quotes {'entry' if len(block.sources) == 1 else 'entries'} {sources}", "bold"))
    return Content("\n").join([*lines, safe_content(block.text + (" …" if block.cut else ""))])
