"""Text as a reader sees it: invisible, hidden and look-alike characters made harmless.

Four views of a text, for four readers:

- `strip_invisible`, `invisible_characters` and `reveal_invisible` find characters that cannot be seen. Memory is stored
  without them and reviewed with their names.
- `safe` and `one_line` print a text on a terminal: nothing in it can move the cursor or change colours.
- `prompt_safe` quotes a text in a prompt: nothing in it can hide, or open a chat template.
- `visible_text` reduces a text to one canonical form. Claims are compared in this form, so that a number in the digits
  of another script, or with an invisible character or half a tag inside, is the number it looks like.

The functions do not interpret what a text says. The sets of invisible characters differ on purpose: stored memory loses
private-use characters too, a quotation keeps joiners and selectors, which words and emoji need.
"""

from __future__ import annotations

import html
import re
import unicodedata

from recto.text.lazy_re import lazy_re

LINE_BREAK = lazy_re("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
"""Everything that Unicode, Python or a terminal treats as the end of a line."""
_TERMINAL_ESCAPES = lazy_re(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"
    "|(?:\x1b[\\]P_^X]|[\x9d\x90])[^\x07\x1b\x9c\n\r]{0,512}(?:\x07|\x9c|\x1b\\\\)"
)
"""Colours, cursor movements and commands to a terminal, within one line."""

_UNSEEN = lazy_re(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])|[\u200c\u200d]{2,}"
)
"""Controls, direction marks, fillers, selectors, tags, surrogates, private characters; joiners that join nothing.
Between letters of other scripts and in emoji a joiner is part of the writing."""
_MAX_NAMED = 5


def strip_invisible(text: str) -> str:
    """The text without invisible characters. Idempotent; never raises."""
    while _UNSEEN.search(text):
        text = _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return text


def invisible_characters(text: str) -> list[str]:
    """The names of invisible characters in a text, such as `U+202E`, each once, a few at most."""
    characters = dict.fromkeys(char for match in _UNSEEN.finditer(text) for char in match[0])
    return [f"U+{ord(char):04X}" for char in characters][:_MAX_NAMED]


def reveal_invisible(text: str) -> str:
    """The text with the name of each invisible character in its place."""
    return _UNSEEN.sub(lambda match: "".join(f"⟨U+{ord(char):04X}⟩" for char in match[0]), text)


def safe(text: str) -> str:
    """The text without anything a terminal would interpret: controls, escapes, direction overrides."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _control_picture(char) for char in text)


def one_line(text: str, width: int) -> str:
    """The beginning of a text, safe for a terminal and without line breaks."""
    flat = " ".join(safe(text[: width * 4]).split())
    return flat if len(flat) <= width and len(text) <= width * 4 else flat[: max(width - 1, 0)] + "…"


def _control_picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if unicodedata.category(char) in {"Zs", "Zl", "Zp"}:
        return " "
    return "\N{REPLACEMENT CHARACTER}"


_HIDDEN_IN_PROMPT = lazy_re(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e01ef]+"
)
"""Direction marks and invisible characters. Joiners stay: words and emoji need them."""
_CONTROLS = lazy_re("[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_TEMPLATE = lazy_re(
    "<(?=[|｜]"
    r"|/?(?:s|bos|eos|pad|unk|mask|sop|eop|start_of_turn|end_of_turn|start_of_image|end_of_image|unused[0-9]{1,3}"
    r"|tools?|tool_calls?|tool_responses?|tool_results?|tool_use|function_calls?|function_results?|functions?|invoke"
    r"|parameter|think|thinking|system|system[_-]reminder|system[_-]prompt|user|assistant|human"
    r"|(?:antml|atml):[a-z_]{1,40})(?:[ \t=/][^<>\n]{0,200})?>"
    r"|</?SYS>>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|CALL_ID|ARGS"
    r"|gMASK|sMASK|IMG|BEGIN_OF_TEXT)\])"
    "|>(?<=[|｜]>)",
    re.IGNORECASE,
)
"""Where a control tag of a chat template begins, such as `<|im_start|>`, `[INST]`, `<<SYS>>`, `<start_of_turn>`,
`</s>`, `<tool_call>` or `<system-reminder>`: some backends and clients interpret it in any text."""


def prompt_safe(text: str) -> str:
    """The text without hidden characters and terminal escapes; remaining control characters become �.

    Control tags of chat templates get a space behind their first character, so that nothing interprets them.
    """
    if not (text.isascii() and text.replace("\n", "").replace("\t", "").isprintable()):
        chars = frozenset(text)
        if chars & _BREAK_CHARS:
            text = LINE_BREAK.sub("\n", text)
        if chars & _ESCAPE_CHARS:
            text = _TERMINAL_ESCAPES.sub("", text)  # none spans two lines
        text = _CONTROLS.sub("\ufffd", _HIDDEN_IN_PROMPT.sub("", text))
    if "<" not in text and "[" not in text and ">" not in text:
        return text
    return _TEMPLATE.sub(lambda match: " >" if match[0] == ">" else f"{match[0]} ", text)


_IGNORED = lazy_re(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
"""Controls, direction marks, fillers, tags and variation selectors."""
_JOINERS = lazy_re("(?<=[!-~])[\u200c\u200d]+|[\u200c\u200d]+(?=[!-~])")
"""Joiners build words and emoji of other scripts; next to ASCII they only hide something."""
_OVERLAYS = lazy_re("(?<=[0-9./\\\\:_-])[\u0300-\u036f\u0483-\u0489\u20d0-\u20ff]+")
"""Marks drawn over a digit or a sign: keycaps, strokes."""
_STACKED = lazy_re(r"([^\w\s\x00-\x7f]{32})[^\w\s\x00-\x7f]+")
"""Long runs of signs. Normalization sorts runs of combining marks in quadratic time."""
_SURROGATES = lazy_re("[\ud800-\udfff]+")
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
_LOOKALIKE_CHARS = frozenset(map(chr, _LOOKALIKES))
_LOOKALIKE = lazy_re(f"[{re.escape(''.join(sorted(_LOOKALIKE_CHARS)))}]")
_DOT_LOOKALIKES = frozenset("。｡·∙⋅•・ᐧ")
_DOTS = lazy_re(rf"(?<=[0-9A-Za-z])[{''.join(sorted(_DOT_LOOKALIKES))}](?=[0-9A-Za-z])")
"""Dots between ASCII letters or digits: they are dots of a name or a number."""
_ENTITY = lazy_re(r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};)")
_MAX_LAYERS = 4
"""How often a text is unescaped; deeper escapes are broken up."""
_TAG = r"/?(?:a|abbr|b|bdi|bdo|big|code|del|em|font|i|ins|kbd|mark|q|s|small|span|strong|sub|sup|tt|u|var|wbr)"
_TAGS = lazy_re(
    rf"<(?<=\w<){_TAG}(?:\s[^<>\n]{{0,200}})?/?>(?:<{_TAG}(?:\s[^<>\n]{{0,200}})?/?>)*+(?=\w)", re.IGNORECASE
)
"""Tags inside a word: they display nothing."""
_EMPTY_LINKS = lazy_re(r"\[\]\([^()\s]{0,200}\)")
_TICKS = lazy_re(r"`{1,3}+(?:(?:(?<=\d`)|(?<=\d``)|(?<=\d```))(?=\w)|(?:(?<=\w`)|(?<=\w``)|(?<=\w```))(?=\d))")
"""Code marks inside a number."""
_BREAK_CHARS = frozenset("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
_ESCAPE_CHARS = frozenset("\x1b\x9b\x9d\x90")


def visible_text(text: str) -> str:
    """The canonical visible form of a text. Idempotent; never raises; linear in the length of the text."""
    for _ in range(_MAX_LAYERS):
        before, text = text, _fold_once(text)
        if text == before:
            return text
    return _fold_once(_break_escapes(text))


def _break_escapes(text: str) -> str:
    """Break up escapes and tags of a text that keeps changing, which only a deliberately nested one does."""
    for pattern in (_ENTITY, _TAGS, _EMPTY_LINKS, _TICKS):
        text = pattern.sub(" ", text)
    return text.replace("<!--", " ")


def _fold_once(text: str) -> str:
    chars = frozenset(text)
    if chars & _BREAK_CHARS:
        text = LINE_BREAK.sub("\n", text)
    if chars & _ESCAPE_CHARS:
        text = _TERMINAL_ESCAPES.sub("", text)
    if _IGNORED.search("".join(chars)):
        text = _IGNORED.sub("", text)
    if not text.isascii():
        text = _fold_lookalikes(text)
    if "&" in chars:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "<" in chars:
        text = _TAGS.sub("", _strip_comments(text))
    if "[](" in text:
        text = _EMPTY_LINKS.sub("", text)
    return _TICKS.sub("", text) if "`" in chars else text


def _fold_lookalikes(text: str) -> str:
    if not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", _STACKED.sub(r"\1", _replace_lookalikes(text)))
    chars = frozenset(text)
    if any("\ud800" <= char <= "\udfff" for char in chars):
        text = _SURROGATES.sub("\ufffd", text)
    if "\u200c" in chars or "\u200d" in chars:
        text = _JOINERS.sub("", text)
    if chars & _LOOKALIKE_CHARS:
        text = _replace_lookalikes(text)
    if chars & _DOT_LOOKALIKES:
        text = _DOTS.sub(".", text)
    if any(unicodedata.category(char)[0] == "M" for char in chars):
        text = _OVERLAYS.sub("", text)
    for char in chars:
        if char.isdecimal() and not char.isascii():
            text = text.replace(char, str(unicodedata.decimal(char)))
    return text


def _replace_lookalikes(text: str) -> str:
    """The text with ASCII in place of look-alikes. Few texts have any, and `translate` looks up each character."""
    return _LOOKALIKE.sub(lambda match: _LOOKALIKES[ord(match[0])], text)


def _strip_comments(text: str) -> str:
    """Remove HTML comments. An unterminated one hides nothing."""
    parts, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts.append(text[at:start])
        at = end + 3
    return "".join((*parts, text[at:])) if at else text


def has_half_characters(text: str) -> bool:
    """Whether a text contains a lone surrogate, which no encoding can express."""
    return not text.isascii() and _SURROGATES.search(text) is not None
