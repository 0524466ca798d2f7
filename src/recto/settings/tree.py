"""The whole tree of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recto.core.entries import DEFAULT_SESSION
from recto.settings.groups import Compress, Continuity, Limits, Memory, Recall, Standing, Window
from recto.settings.operating import Gateway, Health, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set."""

    store: str = "~/.recto/transcript.db"
    """Where transcripts are kept: a path, `postgresql://…`, or `memory:` for a store that goes with the process."""
    replica: Replica = field(default_factory=Replica)
    session: str = DEFAULT_SESSION
    """The session that is meant when none is named."""
    tenant: str = ""
    """Whose sessions these are, where several customers share a store. No tenant ever sees another's."""
    model: str = ""
    """The model whose window and tokenizer count. Empty: unknown, so the most careful assumptions."""
    limits: Limits = field(default_factory=Limits)
    window: Window = field(default_factory=Window)
    recall: Recall = field(default_factory=Recall)
    compress: Compress = field(default_factory=Compress)
    standing: Standing = field(default_factory=Standing)
    memory: Memory = field(default_factory=Memory)
    continuity: Continuity = field(default_factory=Continuity)
    health: Health = field(default_factory=Health)
    gateway: Gateway = field(default_factory=Gateway)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What you know better about a model than the registry: `{my-model: {window: 32768, tokenizer: llama3}}`."""
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    """Tokenizers of your own: `{my-tokenizer: path/to/tokenizer.json}`, usable as a model's `tokenizer`."""
