"""The subject of a question: the question without the phrases that say how to answer it or point to the conversation.

"Can you list the order in which I brought up different aspects of my garden throughout our conversations? Mention only
five items." is about a garden. Its other words occur in every conversation, and a search that counts them finds talk
about lists and conversations instead.
"""

from __future__ import annotations

import re

from recto.recall.stemmer import STOP_WORDS
from recto.text.lazy_re import lazy_re

_MAX_CHARACTERS = 1000
"""A longer text is no question: it is searched for as it is."""
_FORM = r"(?:summary|overview|recap|outline|timeline|list|order|sequence)"
_TALK = r"(?:conversation|chat|discussion|session)"
_FRAME = lazy_re(
    "|".join(
        (
            r"\bwalk me through\b|\b(?:summari[sz]e|recap)\b",
            rf"\b(?:an?|the) (?:(?:clear|complete|comprehensive|detailed|brief|short|full|chronological) )*{_FORM} "
            r"(?:of|in which|that)\b",
            r"\b(?:i|we)(?:[’']ve| have| had)? (?:ever |already )?(?:brought up|mentioned|discussed|talked about)\b",
            r"\b(?:throughout|across|during|in|over|through|from|to|at|based on) (?:all )?(?:of )?(?:our|my|these|the) "
            rf"(?:previous |past |earlier |last )?(?:{_TALK}s\b|{_TALK}\b(?= about\b|\s*(?:[,.;:?!]|$)))(?: about\b)?",
            r"\bin (?:chronological )?order\b(?! to\b)",
            r"\b(?:mention|list|name|give)(?: (?:me|us|only|exactly|just|and))+ \w+ (?:items|things|points)\b",
        )
    ),
    re.IGNORECASE,
)
"""Phrases that name a form of answer or the conversation. `the order of my parcels` is one; `my order` is none."""
_FILLERS = lazy_re(
    r"\b(?:can|could|would|will) you\b|\bplease\b|\b(?:give|show|tell|remind) (?:me|us)(?: of)?\b|\bprovide\b|\blist\b"
    r"|\b(?:going|looking) (?:back|through)\b"
    r"|\b(?:the )?(?:different|various) (?:aspects|topics|parts|stages|steps|things|points)(?: (?:of|about))?\b",
    re.IGNORECASE,
)
"""What comes with such a phrase. Without one it is left: `can you provide the file` is about a file."""


def subject_of(question: str) -> str:
    """Return a question without such phrases; as it is where it has none, or nothing else."""
    if len(question) > _MAX_CHARACTERS or _FRAME.search(question) is None:
        return question
    words = _FILLERS.sub(" ", _FRAME.sub(" ", question)).split()
    while words and _says_nothing(words[0]):
        del words[0]
    while words and _says_nothing(words[-1]):
        del words[-1]
    return " ".join(words) or question


def _says_nothing(word: str) -> bool:
    bare = word.strip(".,;:?!\"'()").lower()
    return not bare or bare in STOP_WORDS
