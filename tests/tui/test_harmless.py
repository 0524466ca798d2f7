"""Transcript text is drawn literally: it neither controls the terminal nor acts as markup."""

from __future__ import annotations

import asyncio

from tests.gateway.upstream import Says
from tests.hostile_texts import TERMINAL, TURNED, UNSEEN, acts, storable
from tests.tui.driving import drawn, driven, press, running_gateway, strips, wait_until_idle

from recto.config.factory import open_memory
from recto.gateway.api_keys import Key
from recto.text.unicode import safe
from recto.transcript.session_keys import pointer_to
from recto.tui.widgets.header import PLACES

HOSTILE = (
    "[bold red]alarm[/] [@click=app.quit]quit[/] \x1b]52;c;cm0gLXJmIH4K\x07\x9d52;c;eA==\x9c\x9b2J\u202egnp.exe\u2066"
)
INERT = "[bold red]alarm[/] [@click=app.quit]quit[/] ␛]52;c;cm0gLXJmIH4K␇"
EVERYTHING = "\n".join(storable())
NAME = "agent:default:[link=http://evil.invalid/]main[/link]"


def poison(made) -> None:
    """Stores hostile text in every field that holds text."""
    with made.gateway.sessions.use(Key(name="test"), NAME) as session:
        for text in (HOSTILE, EVERYTHING):
            call = {"id": "c1", "type": "function", "function": {"name": "[red]run[/]", "arguments": "{}"}}
            session.append({"role": "user", "content": text})
            session.append({"role": "assistant", "content": text, "tool_calls": [call]})
            session.append({"role": "tool", "tool_call_id": "c1", "content": text})
            session.prompt()
            session.append({"role": "assistant", "content": text})
        session.note("misc", HOSTILE)
        session.checkpoint(goal=HOSTILE)
        session.compact(HOSTILE)
    known = open_memory(made.gateway.settings, made.store)
    known.propose("fact", "Plain [bold]words[/] of a page.", sources=[pointer_to(NAME, 1)], why=HOSTILE)


def problems(pilot) -> list[str]:
    """Active content on the screen: control codes, bidirectional overrides, and links and clicks made by markup."""
    lines = strips(pilot)
    found = [code for line in lines for code in acts(line.text)]
    styles = [segment.style for line in lines for segment in line if segment.style is not None]
    found += [f"a link to {style.link}" for style in styles if style.link]
    return found + [f"a click {style.meta}" for style in styles if "@click" in style.meta]


def test_hostile_texts_stay_inert_and_readable_on_every_screen(tmp_path):
    async def tour() -> None:
        async with driven(made, NAME, size=(110, 30)) as pilot:
            assert problems(pilot) == []
            for place in PLACES:
                await press(pilot, "escape", place.key)
                assert problems(pilot) == [], place.name
            await press(pilot, "5", "home", "enter")
            assert INERT in drawn(pilot)
            assert problems(pilot) == []
            await press(pilot, "c")
            assert problems(pilot) == []
            await press(pilot, "escape", "slash", *"alarm", "enter")
            assert problems(pilot) == []
            await press(pilot, "6", "slash", *"alarm quit", "enter")
            assert "[bold red]alarm[/]" in drawn(pilot)
            assert problems(pilot) == []
            await press(pilot, "1", "i", *"[bold]hello[/]", "enter")
            await wait_until_idle(pilot, lambda: not pilot.app.screen.query(".live"))
            assert "[bold]hello[/]" in drawn(pilot)
            assert problems(pilot) == []

    with running_gateway(tmp_path, lambda request: Says(text=HOSTILE)) as made:
        poison(made)
        asyncio.run(tour())


def test_sanitised_text_keeps_its_length_and_has_no_control_codes():
    for text in (*TERMINAL, *TURNED, *UNSEEN, EVERYTHING):
        assert len(safe(text)) == len(text)
        assert acts(safe(text)) == []
    assert acts(HOSTILE) != []
