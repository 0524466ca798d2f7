"""A text as a reader sees it: one form for what can be written in many, and nothing that is there but cannot be seen.

What a text claims is looked for in this form alone, so that a number in the digits of another script, with an invisible
character or half a tag inside, is the number it looks like. Whoever checks a text gives back this form of it: what was
checked is what is read. What the text says is not known here.
"""

from __future__ import annotations

import html
import re
import unicodedata

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])|[\u200c\u200d]{2,}"
)
"""Controls, direction marks, fillers, selectors, tags, surrogates, private characters; joiners where they join nothing.
Between letters of other scripts and in pictures a joiner is part of the writing."""
_NAMED = 5


def plain(text: str) -> str:
    """The text without what cannot be seen. The same for what it returns; never raises."""
    while _UNSEEN.search(text):
        text = _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return text


def unseen_in(text: str) -> list[str]:
    """The names of characters that cannot be seen, such as `U+202E`, each once, a few at most."""
    found = dict.fromkeys(char for one in _UNSEEN.finditer(text) for char in one[0])
    return [f"U+{ord(char):04X}" for char in found][:_NAMED]


def shown(text: str) -> str:
    """The text with the name of each such character in its place, so that nothing in it is hidden."""
    return _UNSEEN.sub(lambda found: "".join(f"⟨U+{ord(char):04X}⟩" for char in found[0]), text)


_KEPT = frozenset("\n\t")


def safe(text: str) -> str:
    """The text with nothing left in it that a terminal would obey: controls, escapes, direction overrides."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _KEPT else _picture(char) for char in text)


def one_line(text: str, width: int) -> str:
    """The beginning of a text, safe and without line breaks."""
    flat = " ".join(safe(text[: width * 4]).split())
    return flat if len(flat) <= width and len(text) <= width * 4 else flat[: max(width - 1, 0)] + "…"


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if unicodedata.category(char) in {"Zs", "Zl", "Zp"}:
        return " "
    return "\N{REPLACEMENT CHARACTER}"


_LINES = re.compile("\r\n|[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    "|(?:\x1b[\\]P_^X]|[\x9d\x90])[^\x07\x1b\x9c\n]{0,512}(?:\x07|\x9c|\x1b\\\\)"
)
_UNSEEN_VISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Controls, marks that turn the direction of text, fillers, tags and selectors of a form."""
_JOINERS = re.compile("(?<=[!-~])[\u200c\u200d]+|[\u200c\u200d]+(?=[!-~])")
"""Joiners make words and pictures of other scripts; beside ASCII they only hide something."""
_OVERLAYS = re.compile("(?<=[0-9./\\\\:_-])[\u0300-\u036f\u0483-\u0489\u20d0-\u20ff]+")
"""Marks drawn over a digit or a sign: keycaps, strokes."""
_STACKED = re.compile(r"([^\w\s\x00-\x7f]{32})[^\w\s\x00-\x7f]+")
"""Long runs of signs. Runs of combining marks are sorted in quadratic time when a text is normalised."""
_SURROGATES = re.compile("[\ud800-\udfff]+")
_LOOKALIKES = str.maketrans(
    {
        **dict.fromkeys("∕⁄⧸╱⟋᜵", "/"),
        **dict.fromkeys("∖⧵⧹╲⟍", "\\"),
        **dict.fromkeys("․‧⸳۔܁܂", "."),
        **dict.fromkeys("‐‑‒−⁃﹣╌", "-"),
        **dict.fromkeys("٫", "."),
        **dict.fromkeys("٬", ","),
        **dict.fromkeys("ː∶։׃᛬", ":"),
        **dict.fromkeys("ˍ", "_"),
    }
)
_ALIKE = frozenset(map(chr, _LOOKALIKES))
_DOTTED = frozenset("。｡·∙⋅•・ᐧ")
_DOTS = re.compile(rf"(?<=[0-9A-Za-z])[{''.join(sorted(_DOTTED))}](?=[0-9A-Za-z])")
"""Dots that are dots of a name or a number where letters of ASCII stand on both sides."""
_ENTITY = re.compile(r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};)")
_LAYERS = 4
"""How often a text is unescaped; what is escaped deeper is broken up."""
_TAG = r"/?(?:a|abbr|b|bdi|bdo|big|code|del|em|font|i|ins|kbd|mark|q|s|small|span|strong|sub|sup|tt|u|var|wbr)"
_TAGS = re.compile(
    rf"<(?<=\w<){_TAG}(?:\s[^<>\n]{{0,200}})?/?>(?:<{_TAG}(?:\s[^<>\n]{{0,200}})?/?>)*+(?=\w)", re.IGNORECASE
)
"""Tags inside a word: they show nothing."""
_EMPTY_LINKS = re.compile(r"\[\]\([^()\s]{0,200}\)")
_TICKS = re.compile(r"`{1,3}+(?:(?:(?<=\d`)|(?<=\d``)|(?<=\d```))(?=\w)|(?:(?<=\w`)|(?<=\w``)|(?<=\w```))(?=\d))")
"""Code marks in the midst of a number."""


_BREAKS = frozenset("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
_ESCAPING = frozenset("\x1b\x9b\x9d\x90")


def visible(text: str) -> str:
    """The text as it is seen. The same for what it returns; never raises; linear in the length of the text."""
    for _ in range(_LAYERS):
        before, text = text, _once(text)
        if text == before:
            return text
    return _once(_settled(text))


def _settled(text: str) -> str:
    """What changes again and again was made to: its escapes and tags are broken up."""
    for pattern in (_ENTITY, _TAGS, _EMPTY_LINKS, _TICKS):
        text = pattern.sub(" ", text)
    return text.replace("<!--", " ")


def _once(text: str) -> str:
    chars = frozenset(text)
    if chars & _BREAKS:
        text = _LINES.sub("\n", text)
    if chars & _ESCAPING:
        text = _ESCAPES.sub("", text)
    if _UNSEEN_VISIBLE.search("".join(chars)):
        text = _UNSEEN_VISIBLE.sub("", text)
    if not text.isascii():
        text = _folded(text)
    if "&" in chars:
        text = _ENTITY.sub(lambda found: html.unescape(found[0]), text)
    if "<" in chars:
        text = _TAGS.sub("", _uncommented(text))
    if "[](" in text:
        text = _EMPTY_LINKS.sub("", text)
    return _TICKS.sub("", text) if "`" in chars else text


def _folded(text: str) -> str:
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", _STACKED.sub(r"\1", text.translate(_LOOKALIKES)))
    chars = frozenset(text)
    if any("\ud800" <= char <= "\udfff" for char in chars):
        text = _SURROGATES.sub("\ufffd", text)
    if "\u200c" in chars or "\u200d" in chars:
        text = _JOINERS.sub("", text)
    if chars & _ALIKE:
        text = text.translate(_LOOKALIKES)
    if chars & _DOTTED:
        text = _DOTS.sub(".", text)
    if any(unicodedata.category(char)[0] == "M" for char in chars):
        text = _OVERLAYS.sub("", text)
    digits = {char for char in chars if char.isdecimal() and not char.isascii()}
    return text.translate({ord(char): str(unicodedata.decimal(char)) for char in digits}) if digits else text


def _uncommented(text: str) -> str:
    """Without comments of HTML. One that does not end hides nothing."""
    parts, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts.append(text[at:start])
        at = end + 3
    return "".join((*parts, text[at:])) if at else text


LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
"""Everything that Unicode, Python or a terminal takes for the end of a line."""
_TERMINAL_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    "|(?:\x1b[\\]P_^X]|[\x9d\x90])[^\x07\x1b\x9c\n\r]{0,512}(?:\x07|\x9c|\x1b\\\\)"
)
"""Colours, moves of the cursor and commands to a terminal."""
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e01ef]+"
)
"""Marks that turn the direction of text or cannot be seen. Joiners stay: words and pictures are made with them."""
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_TEMPLATE = re.compile("<(?=[|｜])|(?<=[|｜])>")
"""Where a tag such as `<|im_start|>` begins or ends: some backends read it out of any text."""


def harmless(text: str) -> str:
    """The text without what hides or moves; what is left of control characters is shown as �."""
    if not (text.isascii() and text.isprintable()):
        parts = (_INVISIBLE.sub("", _TERMINAL_ESCAPES.sub("", line)) for line in LINE_BREAK.split(text))
        text = "\n".join(_CONTROLS.sub("\ufffd", part) for part in parts)
    return _TEMPLATE.sub(lambda found: "< " if found[0] == "<" else " >", text)
