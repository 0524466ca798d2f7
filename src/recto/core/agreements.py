"""What people and models say when they allow, forbid in passing, promise, choose or finish something, beyond `phrases`.

Only wording is known here; who said it, and whether that counts, is decided in `recto.core.ledger`. Texts are single
sentences in small letters with straight apostrophes.
"""

from __future__ import annotations

import re

from recto.core.phrases import Wording
from recto.core.recall import Mark

_START = r"(?:^\W{0,8}|[;:]\s{1,3}|\s[—–-]\s)"


def _said(cues: str, pattern: str) -> Wording:
    return Wording(Mark.NONE, tuple(cues.split("|")), re.compile(pattern))


_YES = r"(?:yes|yep|yeah|yup|sure|ok|okay|alright|great|perfect|cool|nice|absolutely|definitely|of course)"
APPROVALS = (
    _said(
        "go|do |proceed|continue|ship|merge|approve|lgtm|good|works|fine by|let's|make it so",
        rf"^\W{{0,4}}(?:{_YES}[,.!\s]{{1,3}}){{0,3}}(?:please |let's |you can |you may "
        rf"|i think we can )?(?:go ahead|go for it|do it"
        r"|do that|do so|please do|proceed|continue|ship it|merge it|approved?\b|i approve|lgtm|looks? good"
        r"|sounds good|that works"
        r"|works for me|fine by me|let's go\b|let's do (?:it|that|this)|all good|good to go"
        r"|make it so)(?!\w)(?!.{0,40}\bbut\b)",
    ),
    _said(
        "y|sure|ok|alright|approved|agreed|confirmed|correct|absolutely|definitely|of course"
        "|ja|oui|s|да|نعم|好|是|可以|はい|네",
        rf"^\W{{0,4}}(?:{_YES}|approved|agreed|confirmed|correct|ja|oui|sí|si|sim|да|نعم|好的?|是的?|可以|はい|네)"
        r"(?:[,.!\s]{1,3}(?:please|thanks|thank you|that's right|exactly|correct)){0,2}[.!\s👍]{0,4}$",
    ),
)
"""What a yes looks like, as a sentence of its own."""
AGREEING = re.compile(r"\W{0,4}(?:yes|yep|yeah|yup|sure|ok|okay)\b[,.!]?(?!\s{0,2}but\b)")
DENYING = re.compile(r"\W{0,4}(?:no|nope|nah|don't|do not|not yet|please don't|nein|non|нет|不|いいえ|아니)\b")
"""How the answer to a question begins."""
FORBIDDING = (
    _said(
        "let's not|no need|n't need|don't want|do not want|should not|shouldn't|avoid|stop |keep |no ",
        r"\bkeep (?:each|all|every|everything)\b|(?:^|[(,;] ?)no [a-z-]{3,30}ing\b|\blet's not\b|\bno need (?:to"
        r"|for)\b|\b(?:we|you|i) (?:don't|do not) (?:need|want) (?:to|you to|any|the)\b"
        r"|\b(?:we|you|it) (?:shouldn't|should not)\b|" + _START + r"(?:please )?(?:avoid|stop) \w+ing\b",
    ),
)
"""What people forbid in passing."""
REBUTTALS = (
    _said(
        "not correct|n't correct|not right|n't right|not true|n't true|incorrect|not what",
        r"\b(?:is|are|was|were|does|do|sounds?|looks?)(?: not|n't)(?: sound| look| seem)? (?:quite )?(?:correct"
        r"|right|rigth|true|what)\b|\bis incorrect\b",
    ),
)
"""What people say of something that is wrong, whatever it is."""
OBLIGATIONS = (
    _said(
        "remind me|forget|later|afterwards|after that|eventually|todo|to do|remaining|follow|next step|still |yet to"
        "|come back to|revisit|return to|pick ",
        r"\bremind me\b|\b(?:don't|do not) (?:let me |ever )?forget\b|\b(?:later|afterwards|after that"
        r"|eventually),? (?:we|i|you)(?:'ll| will)?"
        r" (?:need|have|should|must|want) to\b|\b(?:we|i|you)(?:'ll| will)? (?:need|have|should|must"
        r"|want) to [^.?!\n]{3,100} (?:later|afterwards"
        r"|eventually)\b|(?:^|\s)todos?\s?[:(-]|\bstill (?:to do|to be done|need(?:s|ed)? to|outstanding"
        r"|remain(?:s|ing)?|missing)\b"
        r"|\bleft to do\b|\bremaining (?:work|tasks?|items?|steps?|issues?)\b|\b(?:as a )?follow[- ]up(?: pr"
        r"| issue| task| item|:)"
        r"|\bnext steps?(?: is| are|:)|\byet to (?:do|be done|implement|fix|write|test|add)\b|\b(?:i'll|i will"
        r"|we'll|let's|we should|we can)"
        r" (?:come back to|revisit|return to|pick (?:this|that|it) up)\b",
    ),
)
PROMISES = re.compile(
    r"\W{0,6}(?:(?:then|next|after that|once [^.?!\n]{3,80}),? )?(?:next,? )?(?:i'll|i will|i'm going to"
    r"|i am going to|i'm about to)"
    r" (?!wait\b|be (?:here|happy|glad|ready)|let you|leave (?:it|that|this) (?:to|up)|stop\b|explain"
    r"|summari[sz]e|note\b|assume|need\b)"
    r"(?:now |then |also |first |next )?[a-z]{2,}"
)
"""How a promise begins."""
CHOICES = (
    _said(
        "because|instead of|rather than|so that|in favor of|in favour of",
        r"^\W{0,6}(?:so,? |therefore,? |then,? |here,? )?(?:i|we)(?:'ll| will|'ve| have|'m| am|'re"
        r"| are)? (?:just |now |also |will |going to |)?(?:use|used|using|chose|choose|chosen|went with"
        r"|going with|go with|pick|picked|keep|kept|keeping|switch(?:ed)? to|opt(?:ed)? for|prefer(?:red)?"
        r"|adopt(?:ed)?|drop(?:ped)?|replac(?:e|ed)"
        r"|mov(?:e|ed)|made|avoid(?:ed)?|decided|skip(?:ped)?)\b[^.?!\n]{2,200}\b(?:because|instead of"
        r"|rather than|so that|in favou?r of)\b"
        r"|\b(?:the )?(?:decision|choice|rationale|approach)(?: here)?(?: is| was|:) [^.?!\n]{2,200}\b(?:because"
        r"|instead of|rather than)\b",
    ),
)
"""A choice told with its reason."""
DONE = re.compile(
    r"\b(?:done|fixed|works?(?: now)?|working now|passes|passing|passed|solved|resolved|completed?|finished"
    r"|implemented|added|merged)\b"
)
