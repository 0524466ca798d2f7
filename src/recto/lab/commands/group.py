"""`recto lab`: experiments on recorded sessions."""

from __future__ import annotations

import click

from recto.cli._lazy_group import LazyGroup

LAB_COMMANDS: dict[str, tuple[str, str]] = {
    "bench": ("recto.lab.commands.bench", "Measure Recto on this machine and its disk."),
    "compare": ("recto.lab.commands.compare", "Compare modes and windows on one session."),
    "fidelity": ("recto.lab.commands.fidelity", "Check what the prompt of a session still answers."),
    "mine": ("recto.lab.commands.mine", "Report what a smaller window would cost you."),
    "replay": ("recto.lab.commands.replay", "Run recorded sessions again under other policies."),
    "simulate": ("recto.lab.commands.simulate", "Generate an agent's session with facts needed later."),
    "trial": ("recto.lab.commands.trial", "Compare prompts with the whole history, step by step."),
    "tune": ("recto.lab.commands.tune", "Search settings that suit your recorded sessions."),
}
"""The module of each experiment and its line of help."""


@click.group("lab", cls=LazyGroup, modules=LAB_COMMANDS)
def lab_command() -> None:
    """Experiments on recorded sessions. Nothing is written into your store.

    \b
    Examples:
      recto lab compare session.jsonl --window 16k
      recto lab trial session.jsonl --window 8k --html trial.html
      recto lab mine --window 32k --html mine.html
      recto lab replay session.jsonl --window 16k
    """
