"""Whether a user's later statement takes an earlier one back.

Similarity alone closes nothing. A statement is taken back by a correction of it, by a permission for what it forbids,
by a prohibition of what it allows, by an explicit withdrawal that names its subject, or by the other value of the same
choice (tabs for spaces, English for German).
"""

from __future__ import annotations

from functools import lru_cache

from recto.context.facts.classifier import supersession_score
from recto.context.facts.statements import FUNCTION_WORDS
from recto.context.facts.types import Fact, FactKind
from recto.text.lazy_re import lazy_re

STANDING: frozenset[FactKind] = frozenset(
    ("constraint", "instruction", "preference", "correction", "decision", "approval", "deferral", "circumstance")
)
"""Kinds of statements that hold until they are taken back."""
_MIN_SUPERSESSION_SCORE = 0.5
_MIN_SHARED = 0.75
"""Share of the words of both statements that a permission and a prohibition of the same thing have in common."""
_MIN_NAMED = 0.6
"""Share of the words of a withdrawal that the withdrawn statement contains."""
_MAX_STEMMED_CHARS = 600

_NEGATION = lazy_re(
    r"(?<!\w)(?:no(?! need)|not|never|without|avoid|stop|forbidden|prohibited|off[- ]limits|nothing|nobody|nie|niemals"
    r"|nicht|kein\w*|ohne|verboten|tabu|pas|jamais|sans|interdi\w*|aucune?|nunca|jamás|sin|ningún|ninguna|nada"
    r"|prohibid\w*|refrain|hands off|finger weg)(?!\w)|n't\b|不|别|禁|勿|没"
)
_WITHDRAWAL = lazy_re(
    r"(?<!\w)(?:forget|ignore|disregard|scrap|scratch|drop|lift|cancel|revoke|withdraw|never ?mind|take back"
    r"|no longer (?:\w+ )?(?:appl\w+|need\w*|necessary|required|valid|true|holds?|matters?)"
    r"|(?:don't|do not|doesn't|needn't) (?:need|have) to [^.?!]{1,80} any ?more|not (?:needed|necessary|required)"
    r" any ?more|vergiss|ignoriere|streich\w*|gilt nicht mehr|(?:musst|brauchst) [^.?!]{0,80}nicht mehr"
    r"|hebe? [^.?!]{1,60} auf|oublie\w*|ne s'applique plus|n'est plus (?:nécessaire|valable)|plus besoin"
    r"|olvida\w*|ya no (?:hace falta|es necesari\w+|aplica|vale))(?!\w)|忘掉|忘了|忽略|作废|取消|不用再|不再需要|收回"
)
_CUE_WORDS = frozenset(
    """
    always never only every each time whenever please must should shall may can could would will want need rule rules
    any more instruction instructions restriction thing said say about earlier previous now again anymore
    longer forget ignore disregard scratch scrap drop lift cancel apply applies approval permission ask asking okay fine
    free feel
    allowed forbidden without before after from use using used make sure let lets go ahead actually instead rather
    regel immer nie niemals bitte darfst dürfen kannst können sollst musst vergiss jetzt wieder ohne mehr nutze verwende
    règle toujours jamais peux pouvez dois oublie maintenant utilise regla siempre nunca puedes debes olvida ahora usa
    """.split()  # noqa: SIM905  read as prose
)
"""Words that carry the force of a statement, not its subject."""


def _stem(word: str) -> str:
    for ending in ("ations", "ation", "ings", "ing", "ers", "ed", "es", "en", "er", "s", "e"):
        if len(word) - len(ending) >= 3 and word.endswith(ending):
            return word[: -len(ending)]
    return word


_CHOICES = tuple(
    frozenset(_stem(value) for value in values.split())
    for values in (
        "tab space leerzeichen tabulator",
        "english german french spanish chinese italian dutch portuguese japanese englisch deutsch französisch spanisch",
        "français anglais allemand espagnol español inglés alemán francés",
        "british american",
        "npm yarn pnpm bun",
        "postgres postgresql mysql sqlite mariadb mongodb oracle",
        "snake_case camelcase pascalcase kebab-case",
        "rest graphql grpc soap",
        "merge rebase squash",
        "light dark",
        "kafka rabbitmq nats",
    )
)
"""Values that exclude each other where the subject is the same."""
_ALL_CHOICES = frozenset().union(*_CHOICES)
_TOKEN = lazy_re(r"[^\W_]+(?:['_-][^\W_]+)*|[\u3400-\u9fff]+")
_HAN = lazy_re(r"[\u3400-\u9fff]{2,}")


def takes_back(later: str, kind: FactKind, earlier: Fact) -> bool:
    """Whether a user's statement of a kind takes an earlier one back."""
    if earlier.kind not in STANDING:
        return False
    new, old = subject_of(later), subject_of(earlier.text)
    shared = len(new & old)
    if shared and shared / len(new) >= _MIN_NAMED and _is_withdrawal(later):
        return True
    if shared and shared >= _MIN_SHARED * max(len(new), len(old)) and _are_opposed(later, kind, earlier):
        return True
    if _chooses_otherwise(new, old, earlier.kind):
        return True
    return kind == "correction" and supersession_score(later, earlier.text) >= _MIN_SUPERSESSION_SCORE


@lru_cache(1024)
def subject_of(text: str) -> frozenset[str]:
    """The words that say what a statement is about, without endings; pairs of characters where words are not spaced."""
    lowered = text[:_MAX_STEMMED_CHARS].lower().replace("’", "'")
    words = {word for word in _TOKEN.findall(lowered) if word not in FUNCTION_WORDS and word not in _CUE_WORDS}
    pairs = {run[at : at + 2] for run in _HAN.findall(lowered) for at in range(len(run) - 1)}
    return frozenset({_stem(word) for word in words if not _HAN.match(word) and len(word) > 1} | pairs)


@lru_cache(1024)
def _is_withdrawal(text: str) -> bool:
    return _WITHDRAWAL.search(text.lower()) is not None


@lru_cache(1024)
def is_negative(text: str) -> bool:
    """Whether a statement denies or forbids something."""
    return _NEGATION.search(text.lower().replace("’", "'")) is not None


def _are_opposed(later: str, kind: FactKind, earlier: Fact) -> bool:
    permits, permitted = kind == "approval", earlier.kind == "approval"
    if permits and not permitted:
        return earlier.kind in ("constraint", "deferral") and is_negative(earlier.text) and not is_negative(later)
    return permitted and kind == "constraint" and is_negative(later) and not is_negative(earlier.text)


def _chooses_otherwise(new: frozenset[str], old: frozenset[str], kind: FactKind) -> bool:
    if kind not in ("instruction", "preference", "decision", "circumstance"):
        return False
    if old.isdisjoint(_ALL_CHOICES) or new.isdisjoint(_ALL_CHOICES):
        return False
    for values in _CHOICES:
        chosen, before = new & values, old & values
        if chosen and before and not chosen & before:
            rest_new, rest_old = new - values, old - values
            return rest_new <= rest_old or rest_old <= rest_new
    return False
