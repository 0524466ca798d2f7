"""The user's own words, and which of their sentences hold until they are taken back.

The user's own words, sentence by sentence: no code, no quotations, no injected blocks.

Agents put reminders, command output, summaries and skill bodies into messages under the user's name. Such blocks are
recognized by their tags and openings.

Standing statements: which of a user's sentences hold until they are taken back.

A sentence is kept unless it is shown to be none. Questions, thanks, small talk, reports of what happened and requests
that are over once they are carried out are none; everything that says how to act from now on, what is allowed or
forbidden, what was decided, preferred, corrected or left open is kept, and so is what the user states about themselves
and their environment. The rules read grammar, not meaning.

Similarity to a later statement closes nothing (`takes_back`). A statement is taken back by a correction of it, by a
permission for what it forbids, by a prohibition of what it allows, by an explicit withdrawal that names its subject, or
by the other value of the same choice (tabs for spaces, English for German).

Blocks that coding agents add to what the user says, which the user did not type.

Claude Code and those after it write `<system-reminder>`, goose writes `<turn-context>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from recto.context.facts import patterns
from recto.context.facts._grammars import Grammar, grammar
from recto.context.facts.classifier import supersession_score
from recto.context.facts.patterns import Wording
from recto.context.facts.types import Fact, FactKind
from recto.text.lazy_re import lazy_re

MAX_SENTENCE_CHARS = 300
"""Characters of a sentence, cut between words."""
CUT_SIGN = " …"
CUT_START = "… "
"""What a text ends with whose end was cut off, and begins with whose beginning was."""
_MAX_OWN_CHARS = 3_000
"""Maximum length of own words; anything longer was pasted."""
_HEAD_CHARS, _TAIL_CHARS = 1_200, 600
"""Characters read of a pasted text: own words come before and after it."""
_MAX_READ_CHARS = 200_000

_INJECTED = (
    "Base directory for this skill:",
    "Caveat: The messages below were generated",
    "Your task is to create a detailed summary of the conversation",
    "# AGENTS.md instructions for",
    "# CLAUDE.md",
    "# AGENTS.md",
)
"""Openings of messages under the user's name in which a client tells the model what to do: instruction files, bodies of
skills and commands."""
_REPORTED = (
    "This session is being continued from a previous conversation",
    "Stop hook feedback:",
    "[SYSTEM NOTIFICATION",
    "Contents of /",
    "Please always provide EXACTLY ONE action",
    "Observation:",
    "OBSERVATION:",
    "The last command <command>",
    "diff --git ",
    *(
        "<returncode>",
        "<exit_code>",
        "<output>",
        "<observation>",
        "<stdout>",
        "<stderr>",
        "<tool_result",
        "<function_re",
    ),
)
"""Openings of messages under the user's name in which a client reports something: recaps, files, and outputs and format
errors of agents that write their commands as text."""
_REPORTED_TAGS = ("<task-notification>", "<bash-stdout>", "<bash-stderr>")
"""The same for reports behind which the user may have typed something."""
_INTERRUPTED = "[Request interrupted by user"
"""A line that a client writes; what follows it is the user's."""
_COMMAND_BODY = lazy_re(r"\s*Invoke the \S{1,80} skill and follow it")
_SKILL_ARGUMENTS = "ARGUMENTS:"
"""What the user typed after a command, behind the command's body."""
_COMMAND_ARGUMENTS = lazy_re(r"<command-args>([^<]{1,4000})</command-args>")
"""What the user typed after a command."""
_TYPED_TAGS = frozenset(("command-args", "bash-input"))
_CLIENT_TAG = lazy_re(
    r"(?<![^\n>])[ \t]*<(command-(?:name|message|contents|args)|local-command-(?:caveat|stdout|stderr)|bash-input"
    r"|user-prompt-submit-hook|ide_(?:opened_file|selection|diagnostics)|environment_context|user_instructions"
    r"|INSTRUCTIONS)>"
)
"""Blocks that a client puts into the user's messages, at the beginning of a line or behind each other. The user typed
what is in those of `_TYPED_TAGS`."""
_TAG = lazy_re(r"\s*<([A-Za-z][\w-]{1,60})(?:\s[^<>\n]{0,300})?>")
_INJECTED_TAG = lazy_re(
    r"\s*<(?:system|command|local-command|task|user-prompt|bash|ide|antml)[\w:-]*(?:\s[^<>\n]{0,300})?>"
)
"""Tags after which nothing is the user's, even if they are never closed."""
_FENCE = lazy_re(r"\s{0,12}(```+|~~~+)")
_SPEAKER_LABEL = lazy_re(
    r"\s*[*_#\[]{0,3}(?:user|human|assistant|system|tool|developer|ai|claude|model)[*_\]]{0,3}\s?:", re.IGNORECASE
)
"""A line of a pasted conversation."""
_LIST_MARKER = lazy_re(r"\s*(?:[-*•+]\s+|#{1,6}\s+|\d{1,3}[.)]\s+|\[[ xX~]\]\s+){1,3}")
_SENTENCE = lazy_re(r"[.!?…][\"'”’)\]*_`]{0,3}\s+(?=[^a-z\s])|[。！？؟]")
_BREAK = lazy_re(r"[.!?…][\"'”’)\]*_`]{0,3}\s+(?=[^a-z\s])|[。！？؟]|\n")
"""The end of a sentence or of a line."""
_QUOTED = lazy_re(r"(?<!\w)\"[^\"]{1,600}\"(?!\w)|“[^“”]{1,600}”")
"""A quotation within a line."""
_MIN_WRAPPED_CHARS = 50
_MAX_TYPED_CHARS, _MAX_TYPED_LINES = 1_000, 12
"""Length up to which own words count as typed in one go."""
_MIN_HEADINGS = 2
_HEADING = lazy_re(r"^#{1,6} \S", re.MULTILINE)
_PERSONA = lazy_re(r"\s*you are (?:an?|the|now) ", re.IGNORECASE)
"""How prompts begin that define a role for the model."""


def user_sentences(text: str) -> list[str]:
    """The speaker's own sentences and prose lines. Linear; never raises."""
    return split_sentences("\n".join(own_lines(text)))


def split_sentences(text_lines: str) -> list[str]:
    """The sentences and prose lines of own lines; of a long text only those of its beginning and end."""
    if len(text_lines) > _MAX_OWN_CHARS:
        text_lines = "\n\n".join(_both_ends(text_lines))
    return [
        cut_words(sentence) for line in _join_wrapped(text_lines.split("\n")) for sentence in _split_sentences(line)
    ]


def _both_ends(text: str) -> tuple[str, str]:
    """The beginning and the end of a long text, in whole sentences; half a sentence may say the opposite.

    Where no sentence ends nearby, a sign says that the rest is missing.
    """
    start = len(text) - _TAIL_CHARS
    end = _BREAK.search(text, _HEAD_CHARS, _HEAD_CHARS + MAX_SENTENCE_CHARS)
    before = [match.end() for match in _BREAK.finditer(text, start - MAX_SENTENCE_CHARS, start)]
    head = text[: end.end()] if end else f"{text[:_HEAD_CHARS].rpartition(' ')[0]}{CUT_SIGN}"
    return head, text[before[-1] :] if before else f"{CUT_START}{text[start:].partition(' ')[2]}"


def own_lines(text: str) -> list[str]:
    """The lines that are the speaker's own."""
    text = text[:_MAX_READ_CHARS]
    if _is_injected(text) or text.lstrip().startswith(_REPORTED):
        return _skill_arguments(text).splitlines()
    typed = [match[1].strip() for match in _COMMAND_ARGUMENTS.finditer(text)] if "<command-args>" in text else []
    own: list[str] = []
    fence, tag, announced = "", "", False
    for line in text.splitlines():
        # An indented block after a line that ends with a colon was copied from elsewhere.
        announced = announced and (not line.strip() or line.startswith(("  ", "\t"))) and not _LIST_MARKER.match(line)
        if announced:
            continue
        announced = line.rstrip().endswith(":")
        if tag:
            tag = "" if f"</{tag}>" in line else tag
        elif match := _FENCE.match(line):
            fence = "" if fence and match[1].startswith(fence) else fence or match[1]
        elif not fence and (_TAG.match(line) or _INJECTED_TAG.match(line)):
            opened = _TAG.match(line)
            name = opened[1] if opened else ""
            if name and f"</{name}>" in text:
                tag = "" if f"</{name}>" in line else name
            elif _INJECTED_TAG.match(line):
                break
        elif (
            not fence
            and not line.lstrip().startswith((">", "|", _INTERRUPTED))
            and not _SPEAKER_LABEL.match(line)
            and not _is_quoted_object(own, line)
        ):
            own.append(line)
    return [*own, *typed]


def _is_injected(text: str) -> bool:
    return text.lstrip().startswith(_INJECTED) or _COMMAND_BODY.match(text) is not None


def _skill_arguments(text: str) -> str:
    return text.partition(f"\n{_SKILL_ARGUMENTS}")[2]


def without_injected(text: str) -> str:
    """Return a text of the user without reminders, echoes of commands, bodies of skills and instruction files.

    Unlike `own_lines` it keeps what the user pasted, and what a client reports (`is_reported`). Linear.
    """
    if _is_injected(text):
        return _skill_arguments(text).strip()
    if _INTERRUPTED in text:
        text = "\n".join(line for line in text.split("\n") if not line.startswith(_INTERRUPTED))
    text = without_reminders(text)
    kept, at, unclosed = list[str](), 0, set[str]()
    for opening in _CLIENT_TAG.finditer(text) if "<" in text else ():
        if opening.start() < at or opening[1] in unclosed:
            continue
        end = text.find(f"</{opening[1]}>", opening.end())
        if end < 0:
            unclosed.add(opening[1])
            continue
        kept.append(text[at : opening.start()])
        if opening[1] in _TYPED_TAGS:
            kept.append(text[opening.end() : end])
        at = end + len(opening[1]) + 3
    return "".join((*kept, text[at:])).strip() if at else text


def is_reported(text: str) -> bool:
    """Whether a client reports something under the user's name: an output, a file, what another agent has found."""
    return text.lstrip().startswith((*_REPORTED, *_REPORTED_TAGS))


def _is_quoted_object(own: list[str], line: str) -> bool:
    """Whether a line is a quotation that the unfinished line before it speaks of: `change`, `"…"`, `to …`."""
    if not _QUOTED.fullmatch(line.strip()):
        return False
    before = next((each.rstrip() for each in reversed(own) if each.strip()), "")
    return before[-1:].isalpha()


def is_document(text: str) -> bool:
    """Whether own lines read as a document that was pasted or generated, such as a plan or a command's body."""
    return (
        len(text) > _MAX_TYPED_CHARS
        or text.count("\n") >= _MAX_TYPED_LINES
        or len(_HEADING.findall(text[:_MAX_OWN_CHARS])) >= _MIN_HEADINGS
        or _PERSONA.match(text) is not None
    )


def cut_words(text: str, max_chars: int = MAX_SENTENCE_CHARS) -> str:
    """The beginning of a text with single spaces; a long one is cut between words and ends with `CUT_SIGN`."""
    plain = " ".join(text[: max_chars * 8].split())
    if len(plain) <= max_chars:
        return plain
    most = max_chars - len(CUT_SIGN)
    space = plain.rfind(" ", 0, most + 1)
    return f"{plain[:space] if space > max_chars // 2 else plain[:most]}{CUT_SIGN}"


def _join_wrapped(lines: list[str]) -> Iterator[str]:
    """Lines of prose; sentences broken across lines are joined."""
    paragraph = ""
    for line in lines:
        plain = line.strip()
        continues = (
            len(paragraph) >= _MIN_WRAPPED_CHARS
            and paragraph[-1] not in ".!?:;。"
            and plain[:1].islower()
            and not _LIST_MARKER.match(line)
        )
        if continues and len(paragraph) < 4 * MAX_SENTENCE_CHARS:
            paragraph += " " + plain
            continue
        if paragraph:
            yield paragraph
        marker = _LIST_MARKER.match(plain)
        paragraph = plain[marker.end() :] if marker else plain
    if paragraph:
        yield paragraph


def _split_sentences(line: str) -> Iterator[str]:
    """The sentences of a line. What is in quotation marks is not divided: half a quotation says something else."""
    quoted = [match.span() for match in _QUOTED.finditer(line)]
    start = 0
    for match in _SENTENCE.finditer(line):
        if any(begin < match.start() and match.end() < end for begin, end in quoted):
            continue
        yield line[start : match.end()].strip()
        start = match.end()
    if rest := line[start:].strip():
        yield rest


_WORD = lazy_re(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_HAN = lazy_re(r"[\u3400-\u9fff]")
_OTHER_SCRIPT = lazy_re(r"[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7a3]")
"""Greek to Georgian and beyond, Japanese and Korean: scripts of languages without a grammar."""
_FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": """
            the a an is are was were be to of and in for on with it this that you i we my your our not don't do no
            please it's i'm let's can will have has if at by from as but there me they he she its what one per all
            every each when use never before after more new""",
        "de": """
            der die das den dem des ein eine einen einem einer ist sind war nicht und ich wir du sie es mit von zu
            auf für im in bitte kein keine noch auch wenn dass mir mich dich uns unsere unser bei nach vor oder aber
            nur schon wie was hat haben wird zum zur am dann immer mach zeig heute gut danke gestern alle jeden jede
            lass sehr hier so""",
        "fr": """
            le la les un une des du de et est sont pas ne je tu il elle on nous vous mon ma mes ton ta nos notre pour
            avec dans sur que qui ce cette ces au aux en plus c'est j'ai d'accord s'il si avant très bien ça a deux
            heures hier été merci beaucoup leur leurs par entre""",
        "es": """
            el la los las un una unos unas de del y es son no en con para por que se lo le me te mi tu nos nuestro
            nuestra nuestros está están muy pero si como más al sin antes cada puedes usa hoy ya ahora esta este otra
            qué ver pasa será a dos ayer horas mucho muchas gracias hay fue ser entre desde""",
        "pt": """
            o a os as um uma de do da dos das e é são não em no na com para por que se eu você nós meu minha está
            muito mas como mais ao antes cada ele ela isso""",
        "it": """
            il lo la i gli le un uno una di del della e è sono non in con per che si io tu noi mio mia questo questa
            molto ma come più al prima ogni nel""",
        "nl": """
            de het een en is zijn niet ik wij we je jij u met van op voor in dat die dit deze maar ook naar bij geen
            nog wel mijn onze moet wordt heeft""",
    }.items()
}
FUNCTION_WORDS = frozenset().union(*_FUNCTION_WORDS.values())
_ACCENTED = lazy_re("[À-ÖØ-öø-ÿ¿¡]")
_LETTERS = {"de": lazy_re("[äöüß]"), "es": lazy_re("[ñ¡¿áíóú]"), "fr": lazy_re("[éèêàçùâîô]")}
_LANGUAGES = tuple(_FUNCTION_WORDS)
_MAX_REMEMBERED_CHARS = 500
"""Characters of a sentence whose kind is remembered."""
_MIN_WORDS = 3
"""Words of a statement without any cue; shorter ones say nothing on their own."""
_MIN_HAN = 5
_MIN_WORDS_PER_NAME = 4
"""Words per identifier in a sentence that speaks about code rather than being a part of it."""
_QUESTION_ENDS = ("?", "？", "؟")
_NOT_PROSE = lazy_re(
    r"^[\W\d_]*$|^(?:-> )?(?:https?://|[/~.]?[\w.-]+/)\S*$|^(?:[$#>%❯+]|//|---) |^[✓✗✔✘⏺●│├└─╭╰]|^\[[^\]]*\]$"
    r"|^(?:fatal|error|warning|panic|info|debug|traceback)\b[^.?!]{0,20}:|^\S{1,200}\.\w{1,5}:\d+|[:：]$"
    r"|\bavailable at:? [/~]|^plan: |[\U0001f600-\U0001f64f]$"
)
"""Paths, addresses, command lines, log lines, placeholders, smileys, and lines that announce what follows."""
_CODE_WORD = lazy_re(r"\w\(\)|[a-z][A-Z]|\w_\w|\w\.\w{1,5}\W?$|\w:\d|::|->|==|[{}<>]")
_APPROVAL = lazy_re(
    r"\W{0,4}(?:(?:yes|yep|yeah|sure|ok|okay|great|cool|perfect|please|let's|you can)[,.!\s]{1,3}){0,3}"
    r"(?:go ahead|go for it|do it|do that|please do|proceed|ship it|merge it|approved?|lgtm|let's go"
    r"|let's do (?:it|that)|good to go|make it so)(?!\w)(?!.{0,40}\bbut\b)"
)
"""An approval that says what is to happen; `looks good` alone counts only as an answer."""
_WISH = lazy_re(r"\w,? (?:please|bitte|s'il (?:te|vous) plaît|por favor)[.!]*$")
"""A wish without a verb: `British spelling, please.`"""
_LASTING_REQUEST = lazy_re(
    r"\b(?:always|never|from now on|in (?:the )?future|every time|whenever|going forward|immer|ab jetzt|künftig|nie"
    r"|toujours|désormais|jamais|dorénavant|siempre|nunca|a partir de ahora)\b|以后|每次|一直|总是"
)
"""What makes a rule out of a question: `can you always …?`"""
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


def statement_kind(sentence: str, *, strict: bool = False) -> FactKind | None:
    """What kind of standing statement a user's sentence makes; None if it makes none.

    Args:
        sentence: One sentence in the user's own words.
        strict: Whether to keep only sentences with a cue of their own, as in texts that may have been pasted.
    """
    return (_short_kind if len(sentence) <= _MAX_REMEMBERED_CHARS else _find_kind)(sentence, strict)


def _find_kind(sentence: str, strict: bool) -> FactKind | None:
    lowered = sentence.lower().replace("’", "'").strip().removeprefix(CUT_START)
    if _NOT_PROSE.search(lowered):
        return None
    rules = grammar(detect_language(lowered))
    if lowered.endswith(_QUESTION_ENDS):
        lasting = len(lowered) < 200 and _LASTING_REQUEST.search(lowered) and _asks_for_action(lowered)
        return "instruction" if lasting else None
    if rules is None:
        return phrase_kind(lowered)
    opener = rules.opener.match(lowered)
    core = lowered[opener.end() :] if opener else lowered
    if not core or rules.question.match(core):
        return None
    explicit = _explicit_kind(lowered, core, rules)
    if explicit or strict or _is_code(sentence):
        return explicit
    return _implicit_kind(core, rules)


_short_kind = lru_cache(maxsize=4096)(_find_kind)
"""A message is read again with every eviction before its own."""


def _is_code(sentence: str) -> bool:
    """Whether a sentence consists of identifiers rather than of words, as in pasted logs."""
    words = sentence.split()
    names = sum(_CODE_WORD.search(word) is not None for word in words)
    return names > 1 and names * _MIN_WORDS_PER_NAME > len(words) and not _HAN.search(sentence)


def mentions_code(sentence: str) -> bool:
    """Whether a sentence names something of a program: an identifier, a call, a file, a line."""
    return any(_CODE_WORD.search(word) for word in sentence.split()) or "`" in sentence


def is_momentary(sentence: str) -> bool:
    """Whether a sentence is a request that is over once it is carried out, thanks, a reaction or a report."""
    lowered = sentence.lower().replace("’", "'").strip()
    rules = grammar(detect_language(lowered))
    if rules is None:
        return False
    opener = rules.opener.match(lowered)
    core = lowered[opener.end() :] if opener else lowered
    return any(pattern.match(core) for pattern in (rules.once, rules.reaction)) or rules.report.search(core) is not None


def is_passing(sentence: str) -> bool:
    """Whether nothing of a sentence can hold later: it is shown to be a question, a remark, code or momentary."""
    if statement_kind(sentence) is not None:
        return False
    lowered = sentence.lower().replace("’", "'").strip()
    rules = grammar(detect_language(lowered))
    if rules is None or lowered.endswith(_QUESTION_ENDS) or _NOT_PROSE.search(lowered) or _is_code(sentence):
        return True
    opener = rules.opener.match(lowered)
    core = lowered[opener.end() :] if opener else lowered
    is_long = len(_HAN.findall(core)) >= _MIN_HAN or len(_WORD.findall(core)) >= _MIN_WORDS
    passes = rules.question.match(core) or rules.remark.search(core)
    return not is_long or passes is not None or is_momentary(sentence)


def _explicit_kind(lowered: str, core: str, rules: Grammar) -> FactKind | None:
    """The kind of a sentence that says what it is."""
    reports = rules.report.search(core) is not None
    if rules.correct.search(lowered) or (
        not reports and not rules.once.match(core) and _matches(lowered, patterns.CORRECTIONS)
    ):
        return "correction"
    if _APPROVAL.match(lowered) and not rules.forbid.search(core):
        return "approval"
    if rules.reaction.match(core) and not rules.forbid.search(core) and not rules.require.search(core):
        return None
    if reports and not rules.decide.search(core):
        return phrase_kind(lowered) if rules.require.search(core) and rules.forbid.search(core) else None
    if _matches(lowered, patterns.OBLIGATIONS):
        return "obligation"
    if rules.defer.search(core):
        return "deferral"
    if rules.forbid.search(core):
        return "constraint"
    if rules.allow.search(core):
        return "approval"
    if rules.prefer.search(core):
        return "preference"
    if rules.decide.search(core):
        return "decision"
    if rules.require.search(core):
        return "constraint" if _matches(lowered, patterns.CONSTRAINTS) else "instruction"
    phrase = None if rules.once.match(core) else phrase_kind(lowered)
    return None if phrase == "approval" else phrase  # a bare `yes` says nothing without its question


def _implicit_kind(core: str, rules: Grammar) -> FactKind | None:
    """The kind of a sentence that is not shown to be a request of the moment, a report, a reaction or a remark."""
    if rules.reaction.match(core) or rules.report.search(core):
        return None
    lasting = rules.lasting.search(core) is not None
    if rules.once.match(core):
        return "instruction" if lasting else None
    if rules.remark.search(core):
        return None
    if lasting:
        return "instruction"
    if _WISH.search(core):
        return "preference"
    is_long = len(_HAN.findall(core)) >= _MIN_HAN or len(_WORD.findall(core)) >= _MIN_WORDS
    return "circumstance" if is_long else None


def phrase_kind(lowered: str) -> FactKind | None:
    """The kind of a sentence by the fixed phrases of all languages."""
    for kind, wordings in _PHRASE_KINDS:
        if _matches(lowered, wordings):
            return kind
    return None


_PHRASE_KINDS: tuple[tuple[FactKind, tuple[Wording, ...]], ...] = (
    ("correction", (*patterns.CORRECTIONS, *patterns.REBUTTALS)),
    ("constraint", (*patterns.CONSTRAINTS, *patterns.PROHIBITIONS)),
    ("obligation", patterns.OBLIGATIONS),
    ("constraint", patterns.CRITICAL),
    ("preference", (*patterns.PREFERENCES, *patterns.EVERGREEN)),
    ("decision", (*patterns.DECISIONS, *patterns.USER_DECISIONS, *patterns.CHOICES)),
    ("approval", patterns.APPROVALS),
)


@lru_cache(1024)
def detect_language(lowered: str) -> str:
    """The language of a sentence by its script and its function words; English if nothing speaks against it."""
    if _OTHER_SCRIPT.search(lowered):
        return ""
    if _HAN.search(lowered):
        return "zh"
    words = set(_WORD.findall(lowered))
    best, most = (
        "en",
        len(words & _FUNCTION_WORDS["en"]) - (not lowered.isascii() and _ACCENTED.search(lowered) is not None),
    )
    for language in _LANGUAGES[1:]:
        known = len(words & _FUNCTION_WORDS[language])
        if known > most:
            best, most = language, known
    if most <= 0 and not lowered.isascii():
        return next((language for language, letters in _LETTERS.items() if letters.search(lowered)), best)
    return best


def _asks_for_action(lowered: str) -> bool:
    return re.match(r"\W{0,4}(?:please |bitte |and |so )?(?:can|could|would|will|kannst|könntest|würdest|peux|pouvez"
                    r"|pourrais|puedes|podrías|你能|能不能|可以)", lowered) is not None  # fmt: skip


def _matches(lowered: str, wordings: tuple[Wording, ...]) -> bool:
    return any(
        any(cue in lowered for cue in wording.cues) and wording.pattern.search(lowered) is not None
        for wording in wordings
    )


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
_HAN_RUN = lazy_re(r"[\u3400-\u9fff]{2,}")


def may_take_back(later: str, kind: FactKind) -> bool:
    """Whether a user's statement of a kind could take any statement back; few can, and this is quicker to tell."""
    return (
        kind in ("approval", "constraint", "correction")
        or _is_withdrawal(later)
        or not subject_of(later).isdisjoint(_ALL_CHOICES)
    )


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
    pairs = {run[at : at + 2] for run in _HAN_RUN.findall(lowered) for at in range(len(run) - 1)}
    return frozenset({_stem(word) for word in words if not _HAN_RUN.match(word) and len(word) > 1} | pairs)


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


_TAGS: Final = tuple((f"<{name}>", f"</{name}>") for name in ("system-reminder", "turn-context"))


def has_reminders(text: str | bytes) -> bool:
    """Whether a text contains reminders."""
    if isinstance(text, bytes):
        return any(opens.encode() in text for opens, _ in _TAGS)
    return any(opens in text for opens, _ in _TAGS)


def without_reminders(text: str) -> str:
    """Return a text without the reminders in it; one that is not closed is a part of the text."""
    for opens, closes in _TAGS:
        if opens in text:
            text = _without(text, opens, closes)
    return text


def _without(text: str, opens: str, closes: str) -> str:
    kept, at = list[str](), 0
    while (start := text.find(opens, at)) >= 0 and (end := text.find(closes, start)) >= 0:
        kept.append(text[at:start])
        at = end + len(closes)
    return "".join((*kept, text[at:])).strip()
