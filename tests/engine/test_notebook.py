"""A prompt in a notebook: one picture shows all its messages, and hostile text is escaped."""

from __future__ import annotations

import asyncio
import re

import recto


def test_a_notebook_shows_every_message_with_its_tokens_and_the_bar_adds_up():
    with recto.open("memory:", model="gpt-4o", recall={"inject": False}) as session:
        session.append({"role": "system", "content": "You fix bugs."})
        session.append({"role": "user", "content": "<img src=x onerror=alert(1)> & what about\n\n\u202ethis?"})
        prompt = session.prompt()
        drawn = prompt._repr_html_()
        assert "&lt;img src=x onerror=alert(1)&gt; &amp; what about" in drawn
        assert "<img" not in drawn
        assert "\u202e" not in drawn
        assert f"{prompt.tokens:,} of {prompt.room:,} tokens" in drawn
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", drawn)]
        assert abs(sum(widths) - 100 * prompt.tokens / prompt.room) < 0.01
        assert [int(tokens) for tokens in re.findall(r"right'>(\d+)<", drawn)] == list(prompt.built.costs)


def test_reprs_are_one_short_line():
    with recto.open("memory:", model="gpt-4o", session="agent:default:main") as session:
        session.append({"role": "user", "content": "word " * 500})
        prompt = session.prompt()
        assert repr(prompt) == f"<Prompt: 1 messages, {prompt.tokens:,} of {prompt.room:,} tokens, openai.chat>"
        assert repr(session) == "<Session agent:default:main>"
        entry = session.tail(1)[0]
        assert repr(entry).startswith("<Entry agent:default:main/")
        assert len(repr(entry)) < 80
        found = session.recall("number")
        assert repr(found).startswith("<SearchResult 'number': ")
        assert all(len(repr(hit)) < 140 for hit in found.hits)

    async def opened() -> str:
        async with await recto.open_async("memory:", model="gpt-4o", session="agent:default:main") as session:
            return repr(session)

    assert asyncio.run(opened()) == "<AsyncSession agent:default:main>"
