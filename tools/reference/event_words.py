"""Each kind of event in one sentence, and the page that tells more. The code has the names; people need a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from recto.transcript.audit import Topic

TOPICS: Mapping[Topic, str] = {
    "decision": "What was evicted or became shorter",
    "undo": "What was undone",
    "pin": "What was pinned",
    "memory": "Memory",
    "continuity": "Continuity",
    "recall": "Recall",
    "pressure": "Pressure and budgets",
    "failure": "What went wrong",
    "session": "The session itself",
    "note": "Notes",
    "bookkeeping": "Bookkeeping",
    "other": "Others",
}
"""How the topics of an audit are headed."""
KINDS: Mapping[str, tuple[str, str]] = {
    "auto_compact_required": (
        "The compaction threshold is passed: a compaction is carried out now.",
        "compression.md#modes",
    ),
    "auto_compact_warning": ("A compaction is near; checkpoint and handoff are written.", "compression.md#modes"),
    "branch": (
        "The session and the entry from which this session continues, or the session that continues from here.",
        "library.md#fork-a-session",
    ),
    "session_renamed": ("The session has a new title.", "library.md#titles"),
    "budget_violation": ("A component has passed its budget.", "window.md#pressure-and-budget"),
    "budget_warning": ("A component has passed 80 % of its budget.", "window.md#pressure-and-budget"),
    "checkpoint_saved": ("The state of the work, for programs.", "continuity.md#checkpoints"),
    "consolidation_due": (
        "At a compaction: how many entries consolidation has not reviewed yet, and since which.",
        "memory.md#consolidation",
    ),
    "memory_file_indexed": (
        "A section of a file in the memory folder; the message after it has its text.",
        "memory.md#files-in-the-memory-folder",
    ),
    "tools_missing": (
        "Tools that the work of a checkpoint used and that the prompt after it did not have.",
        "continuity.md#missing-tools",
    ),
    "checkpoint_unsaved": ("The files of a checkpoint could not be written; why.", "continuity.md#checkpoints"),
    "compaction": ("All but the newest messages were replaced by a summary.", "compression.md"),
    "consolidated": ("How far a session was reviewed for memory.", "memory.md#consolidation"),
    "consolidation_finished": ("What a cycle of consolidation did.", "memory.md#consolidation"),
    "content_compressed": ("Results or exchanges became shorter texts.", "compression.md#compression-methods"),
    "context_window_pruned": ("Whole units were evicted, oldest first.", "window.md#when-messages-are-evicted"),
    "conversation_opened": (
        "A client opened a conversation.",
        "gateway.md#conversations-and-server-side-history",
    ),
    "delegated": ("Work was given to a sub-agent: its session, and how it ended.", "compression.md"),
    "delegated_from": ("In the session of a sub-agent: the session that gave it the work.", "compression.md"),
    "erasure_finished": ("An erasure is complete.", "transcript.md#erasing"),
    "fidelity_judged": (
        "A model compared answers from the prompt with answers from the whole history.",
        "compression.md",
    ),
    "fidelity_low": ("The fidelity of a summary, or of a judged prompt, is below its threshold.", "compression.md"),
    "handoff_replayed": ("A handoff was shown, and before which question.", "continuity.md#handoff"),
    "handoff_written": ("The state of the work, for readers.", "continuity.md#handoff"),
    "host_compacted": ("A host compacted its own history: the entries that it no longer has.", "continuity.md#handoff"),
    "imported": ("The end of an import: which file, and its digest.", "files.md"),
    "index_failed": (
        "The index of recall failed: why, and which messages stay in the prompt because of it.",
        "recall.md#events",
    ),
    "instructions_given": ("System text that a client sent to the gateway, once for each.", "gateway.md"),
    "lineage": ("The hashes of the history by which the gateway recognizes a session.", "gateway.md"),
    "memory_applied": ("A memory was used.", "memory.md#events"),
    "memory_approved": ("A proposal became memory; by whom.", "memory.md#proposals-and-approvals"),
    "memory_noted": ("The state of a proposal.", "memory.md#events"),
    "memory_proposed": ("Something that should be remembered, with its sources.", "memory.md#proposals-and-approvals"),
    "memory_rejected": ("A proposal was rejected for good; by whom and why.", "memory.md#proposals-and-approvals"),
    "memory_approval_undone": ("An approval was undone; by whom.", "memory.md#proposals-and-approvals"),
    "memory_retired": (
        "A memory was retired, so that recall does not find it; by whom and why.",
        "memory.md#aging-and-retirement",
    ),
    "model_changed": ("Known, and written by no part of this version.", "versioning.md"),
    "note": ("A note of the agent.", "compression.md"),
    "note_file": ("A note file of an agent was written or appended to.", "agents.md#windows-of-codex"),
    "pinned": ("Messages that stay in the prompt until they are unpinned.", "window.md#what-is-protected"),
    "recall_injected": ("What was recalled for a question, with scores.", "recall.md#events"),
    "recall_miss": (
        "Nothing was recalled for a question: the chance of the best hit, or the reason.",
        "recall.md#events",
    ),
    "recall_judged": ("Whether a person found a recalled message helpful.", "recall.md#judge-recalled-messages"),
    "recall_used": ("Which recalled entries an answer used.", "recall.md#events"),
    "message_refused": ("The provider refused this message; it is out of the prompt.", "gateway.md#refused-messages"),
    "message_retried": ("The client sent a refused message again; it is in the prompt.", "gateway.md#refused-messages"),
    "reply_cut": ("A response that was cut off; what arrived of it is stored.", "gateway.md"),
    "report": ("Known, and written by no part of this version.", "versioning.md"),
    "relief_postponed": ("Nothing is evicted yet although the ceiling is passed, and why.", "window.md#events"),
    "restored": ("A decision was undone.", "window.md#when-messages-are-evicted"),
    "session_erased": ("A session was removed on purpose: its end, by whom and why.", "transcript.md#erasing"),
    "session_opened": ("Known, and written by no part of this version.", "versioning.md"),
    "standing_changed": ("Standing files or critical memory changed: their sizes.", "window.md#standing-files"),
    "task_completed": ("A task is over: its last checkpoint, and how its turns went.", "library.md#the-manager"),
    "thinking_cleared": (
        "The thinking of older turns was removed from the prompt.",
        "window.md#modes-and-eviction-policies",
    ),
    "tool_result_held": ("A tool result that is sent with the others of its step.", "library.md#the-manager"),
    "tool_results_trimmed": ("Old tool results were shortened to a line.", "window.md#when-messages-are-evicted"),
    "tools_left_out": (
        "Definitions of unused tools are left out of requests, or some are sent again; which, and why.",
        "gateway.md#tools-that-are-left-out",
    ),
    "tools_offered": ("Tools that a client sent to the gateway, once for each list.", "gateway.md"),
    "units_evicted": ("Units were evicted by their score.", "window.md#modes-and-eviction-policies"),
    "units_merged": ("Units that a newer one repeats were merged into it.", "window.md#modes-and-eviction-policies"),
    "unpinned": ("Messages that may be evicted again.", "window.md#what-is-protected"),
    "upstream_failed": ("The upstream could not be reached, or closed the connection.", "gateway.md#errors"),
    "usage_reported": ("What the provider counted, and what Recto counted.", "library.md#count-tokens"),
    "velocity_spike": ("A turn added more than three times the usual.", "window.md#pressure-and-budget"),
    "window_opened": (
        "A new window: everything that is not protected was evicted; a summary may replace it.",
        "continuity.md#resume",
    ),
    "window_tools_answered": (
        "Calls of the tools for new windows, which the gateway answered.",
        "gateway.md#new-windows",
    ),
    "window_overflow": ("The protected messages do not fit; names the largest.", "window.md#events"),
    "window_snapshot": ("The state of the window, so that opening reads little.", "window.md#performance"),
    "zone_changed": ("Pressure moved to another zone.", "window.md#pressure-and-budget"),
}
"""Every kind that Recto knows."""
