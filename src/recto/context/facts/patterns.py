"""Wordings, language by language: how people correct, forbid, decide, prefer, agree, promise and report success.

Two families of wordings. Those with a mark classify messages (`recto.context.facts.classifier`); all of them extract
facts (`recto.context.facts.extraction`). Who said it, and whether that counts, is decided there. Texts are passed in
lower case with straight apostrophes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from recto.context.facts.types import Mark
from recto.text.lazy_re import lazy_re


class Wording(NamedTuple):
    """One way to express a kind of statement."""

    mark: Mark
    cues: tuple[str, ...]
    """Every matching text contains one of these; they are searched first, because that is fast."""
    pattern: re.Pattern[str]


_SENTENCE_START = r"(?:^\W{0,8}|[.!?;:]\s{1,3}|\s[—–-]\s)"
"""Where a sentence begins, in a text of several."""
_CLAUSE_START = r"(?:^\W{0,8}|[;:]\s{1,3}|\s[—–-]\s)"
"""Where a clause begins, in a single sentence."""
_I_AM = r"(?:i'm|i am)"
_HAVE = r"(?:'ve| have| had)?(?: just| now| recently| since| also)?"
_YES = r"(?:yes|yep|yeah|yup|sure|ok|okay|alright|great|perfect|cool|nice|absolutely|definitely|of course)"
_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_MOVED = "changed|moved|switched|renamed|postponed|rescheduled|pushed back|pushed|brought forward|migrated|upgraded"
_AMOUNT = r"[$€£]?\d"


def _wording(mark: Mark, cues: str, pattern: str) -> Wording:
    """A wording searched in a text of several lines."""
    return Wording(mark, tuple(cues.split("|")), lazy_re(pattern, re.MULTILINE))


def _sentence(cues: str, pattern: str) -> Wording:
    """A wording searched in a single sentence; it marks no message."""
    return Wording(Mark.NONE, tuple(cues.split("|")), lazy_re(pattern))


_PHRASES: dict[str, dict[Mark, str]] = {
    "de": {
        Mark.CORRECTION: "das_stimmt_nicht das_ist_falsch ich_meinte korrektur nicht_mehr stattdessen doch_nicht "
        "vergiss_was nein,_das",
        Mark.CONSTRAINT: "darf_nicht dürfen_nicht auf_keinen_fall muss_immer niemals nur_verwenden höchstens",
        Mark.DECISION: "wir_haben_entschieden wir_haben_beschlossen wir_nehmen wir_verwenden entscheidung",
        Mark.PREFERENCE: "ich_bevorzuge ich_mag ich_hätte_lieber mir_gefällt lieblings bitte_verwende",
        Mark.CRITICAL: "wichtig: merk_dir vergiss_nicht denk_daran",
        Mark.EVERGREEN: "ich_heiße mein_name_ist ich_wohne ich_bin_allergisch mein_geburtstag ich_wurde_geboren",
    },
    "fr": {
        Mark.CORRECTION: "non,_c'est c'est_faux ce_n'est_pas_correct je_voulais_dire n'est_plus oublie_ce_que "
        "plutôt_que au_lieu_de",
        Mark.CONSTRAINT: "il_ne_faut_pas il_faut ne_jamais toujours_utiliser au_maximum obligatoire",
        Mark.DECISION: "on_a_décidé nous_avons_décidé décision on_part_sur",
        Mark.PREFERENCE: "je_préfère j'aime mon_préféré ma_préférée",
        Mark.CRITICAL: "important: souviens-toi n'oublie_pas retiens",
        Mark.EVERGREEN: "je_m'appelle mon_nom_est j'habite je_suis_allergique mon_anniversaire je_suis_né",
    },
    "es": {
        Mark.CORRECTION: "en_realidad está_mal es_incorrecto quise_decir quería_decir corrección ya_no en_vez_de "
        "olvida_lo_que me_equivoqué",
        Mark.CONSTRAINT: "no_debe debe_ser nunca siempre_usa como_máximo obligatorio",
        Mark.DECISION: "hemos_decidido decidimos vamos_a_usar vamos_con decisión",
        Mark.PREFERENCE: "prefiero me_gusta mi_favorito mi_favorita por_favor_usa",
        Mark.CRITICAL: "importante: recuerda_que no_olvides",
        Mark.EVERGREEN: "me_llamo mi_nombre_es vivo_en soy_alérgico soy_alérgica mi_cumpleaños nací_en",
    },
    "pt": {
        Mark.CORRECTION: "na_verdade está_errado quis_dizer correção já_não não_é_mais em_vez_de esquece_o_que",
        Mark.CONSTRAINT: "não_deve não_pode sempre_use no_máximo obrigatório",
        Mark.DECISION: "decidimos_usar vamos_usar decisão",
        Mark.PREFERENCE: "prefiro eu_gosto meu_favorito minha_favorita por_favor_use",
        Mark.CRITICAL: "lembre-se não_esqueça",
        Mark.EVERGREEN: "meu_nome_é eu_moro moro_em sou_alérgico sou_alérgica meu_aniversário",
    },
    "it": {
        Mark.CORRECTION: "in_realtà è_sbagliato volevo_dire correzione non_è_più invece_di dimentica_quello",
        Mark.CONSTRAINT: "non_deve non_devi usa_sempre al_massimo obbligatorio",
        Mark.DECISION: "abbiamo_deciso usiamo decisione",
        Mark.PREFERENCE: "preferisco mi_piace il_mio_preferito",
        Mark.CRITICAL: "ricorda_che non_dimenticare",
        Mark.EVERGREEN: "mi_chiamo vivo_a sono_allergico sono_allergica il_mio_compleanno",
    },
    "nl": {
        Mark.CORRECTION: "dat_klopt_niet ik_bedoelde correctie niet_meer in_plaats_van vergeet_wat",
        Mark.CONSTRAINT: "mag_niet moet_altijd nooit maximaal",
        Mark.DECISION: "we_hebben_besloten we_gebruiken beslissing",
        Mark.PREFERENCE: "ik_heb_liever mijn_favoriete ik_hou_van",
        Mark.CRITICAL: "belangrijk: onthoud vergeet_niet",
        Mark.EVERGREEN: "mijn_naam_is ik_heet ik_woon ben_allergisch mijn_verjaardag",
    },
    "ru": {
        Mark.CORRECTION: "на_самом_деле это_неверно неправильно я_имел_в_виду я_имела_в_виду исправление больше_не "
        "вместо",
        Mark.CONSTRAINT: "нельзя никогда_не обязательно не_более только_используй",
        Mark.DECISION: "мы_решили решено будем_использовать",
        Mark.PREFERENCE: "я_предпочитаю мне_нравится мой_любимый моя_любимая",
        Mark.CRITICAL: "важно запомни не_забудь",
        Mark.EVERGREEN: "меня_зовут я_живу у_меня_аллергия мой_день_рождения я_родился я_родилась",
    },
    "ar": {
        Mark.CORRECTION: "في_الواقع هذا_خطأ أقصد قصدت تصحيح بدلا_من بدلاً_من لم_يعد",
        Mark.CONSTRAINT: "يجب_أن يجب_ألا ممنوع لا_تستخدم",
        Mark.DECISION: "قررنا سنستخدم",
        Mark.PREFERENCE: "أفضل_أن أفضّل أحب المفضل",
        Mark.CRITICAL: "مهم: تذكر_أن لا_تنس",
        Mark.EVERGREEN: "اسمي أعيش_في عيد_ميلادي لدي_حساسية",
    },
    "zh": {
        Mark.CORRECTION: "不对 而是 我的意思是 更正 改成 改为 说错了 弄错了 搞错了 不再",
        Mark.CONSTRAINT: "必须 不得 不要 绝对不 禁止 只能 最多",
        Mark.DECISION: "我们决定 决定 就用 采用",
        Mark.PREFERENCE: "我喜欢 我更喜欢 我偏好 我最喜欢 请用",
        Mark.CRITICAL: "重要 记住 别忘 请记住",
        Mark.EVERGREEN: "我叫 我的名字 我住在 我对 过敏 我的生日",
    },
    "ja": {
        Mark.CORRECTION: "違います 訂正 間違えました ではなく じゃなくて に変更",
        Mark.CONSTRAINT: "してはいけない してください 必ず しないで 以内",
        Mark.DECISION: "に決めました に決定 にしましょう を採用",
        Mark.PREFERENCE: "私は好き が好き の方がいい",
        Mark.CRITICAL: "覚えて 忘れないで 重要:",
        Mark.EVERGREEN: "私の名前 に住んで アレルギー 誕生日",
    },
    "ko": {
        Mark.CORRECTION: "정정 틀렸 이_아니라 가_아니라 (으)로_변경 로_변경 로_바꿔 더_이상",
        Mark.CONSTRAINT: "해야_합니다 하지_마 반드시 금지 절대",
        Mark.DECISION: "하기로_했 결정 로_하자",
        Mark.PREFERENCE: "좋아해 좋아합니다 선호",
        Mark.CRITICAL: "기억해 잊지_마 중요",
        Mark.EVERGREEN: "제_이름 살고_있 알레르기 생일",
    },
}
"""Fixed phrases of languages without patterns of their own; `_` means a space. A new language is one entry."""


def _phrases(mark: Mark) -> Wording:
    """The phrases of all languages for a mark; they do not match inside a longer word."""
    written = " ".join(language[mark] for language in _PHRASES.values()).split()
    cues = tuple(phrase.replace("_", " ") for phrase in written)
    bounded = (rf"(?<!\w){re.escape(cue)}(?!\w)" if cue[0] < "\u0e00" else re.escape(cue) for cue in cues)
    return Wording(mark, cues, lazy_re("|".join(bounded)))


CORRECTIONS = (
    _wording(
        Mark.CORRECTION,
        "no|nope|wait",
        _SENTENCE_START
        + r"(?:no|nope|wait)\b[,.!;]?\s{1,3}(?:no\b|that(?!'s (?:all|it|fine|okay|ok|enough|good))|it'?s"
        r"|it is|i (?:meant|said|want|need)|the |we |you |use "
        r"|not |don't|wait|actually|sorry|my |make |in fact|rather|instead)",
    ),
    _wording(
        Mark.CORRECTION,
        "actually|in fact|sorry|oops",
        _SENTENCE_START
        + r"(?:oh,? |well,? |hmm,? |but |wait,? )?(?:actually|in fact|sorry|oops)\b[,.:!]?\s{1,3}(?:it'?s "
        r"|it is |it was "
        r"|that'?s |that was |the [^.?!\n]{2,60} (?:is|are|was|should)|my [^.?!\n]{2,60} (?:is|are|was)"
        r"|i meant|i was wrong"
        r"|make (?:it|that)|let'?s |we'?re |we (?:use|have|moved|need)|no\b|not )",
    ),
    _wording(
        Mark.CORRECTION,
        "wrong|correct|right|mistake|true|what i|misspoke|misremembered|mixed up",
        r"\b(?:that|this|it|which)(?:'s| is| was)(?: just| simply| actually)? (?:not (?:right|correct|true"
        r"|quite right|what i)|wrong\b|incorrect"
        r"|a mistake)|\bthat isn't (?:right|correct|true|what i)|\byou(?:'re| are| were) (?:wrong|mistaken)"
        r"|\byou got (?:it|that|this) wrong"
        r"|\bi was (?:wrong|mistaken)|\bmy mistake\b|\bi made a mistake|\bi misspoke|\bi misremembered"
        r"|\bi mixed up|\blet me correct"
        r"|\b(?:a )?correction[:,]|\bto correct (?:myself|that|what)|\bnot what i (?:asked|meant|said|wanted)",
    ),
    _wording(
        Mark.CORRECTION,
        "meant|scratch|strike|forget|ignore|disregard|revert|undo|take",
        r"\bi (?:actually )?meant\b(?! to (?:ask|tell|be|send))|\b(?:scratch|strike) that\b|\bforget (?:what i"
        r"|about (?:that|what)|that[,.]|my (?:last|previous|earlier))"
        r"|\b(?:ignore|disregard) (?:what i|that[,.]|my (?:last|previous|earlier)|the (?:last|previous"
        r"|earlier) (?:message|instruction|request))"
        r"|" + _SENTENCE_START + r"(?:please )?(?:revert|undo) (?:that|this|it|your|the last)"
        r"|\bi (?:have to |must |need to |want to |will )?take (?:that|this|it|something|one thing) back\b",
    ),
    _wording(
        Mark.CORRECTION,
        "not |n't ",
        r"\b(?:not (?!only|just|merely|necessarily|sure|to )(?:[^\s.,;!?]+ ){0,2}?[^\s.,;!?]+ but (?:rather |instead )?"
        r"(?!i |also|we |you |it |he |she |they |what|how|can|could|still|maybe)"
        r"|(?:it|that|he|she|they)(?:'s| is|'re| are)(?: not|n't) [^.;!?\n]{1,60}[,;.] ?(?:it|that|he|she"
        r"|they)(?:'s| is|'re| are)\b"
        r"|(?:is|are|was"
        r"|were) [^\s.,;!?]+(?: [^\s.,;!?]+){0,3}, not [^\s.,;!?]+(?: [^\s.,;!?]+){0,2}\s*(?:[.!;]|$))",
    ),
    _wording(
        Mark.CORRECTION,
        "instead|make that|rather than",
        _SENTENCE_START
        + r"(?:please |let's |no,? |can you |could you |we should |you should )?(?:use|make|try|go with|put"
        r"|call|take) [^.;!?\n]{1,60}"
        r" instead\b|\bshould (?:be|use) [^.;!?\n]{1,60} (?:instead of|rather than)\b|\bmake that (?:a |an )?\d",
    ),
    _wording(
        Mark.CORRECTION,
        "change that|change it|change this|change the |change my ",
        _SENTENCE_START + r"(?:please |can you |could you |let's )?change (?:that|it|this|the [^.;!?\n]{1,40}"
        r"|my [^.;!?\n]{1,40}) (?:to|from)\b",
    ),
    _wording(
        Mark.CORRECTION,
        "no longer|anymore|any more|now|used to",
        r"\b(?:no longer|(?:not|n't) [^.;!?\n]{1,60} any ?more)\b|\b(?:it|that|which|deadline|date|name"
        r"|version|budget|limit|address|number"
        r"|price|goal|plan|port|path|url|rate|time|team|target|count|total|score|branch)(?:'s| is"
        r"| are) now (?:at |set to |up to |down to )?"
        rf"(?:{_AMOUNT}|called|named)|\b(?:deadline|date|name|version|budget|limit|address|port|path|url"
        r"|branch) is now\b"
        r"|\b(?:i|we) now (?:have|use|prefer|want|live|work|need|own|weigh|pay|run|earn)\b"
        r"|\b(?<!get )(?<!getting )used to (?:be|have|live|work|use|like|go|do|own|pay"
        r"|think) [^.;!?\n]{2,80} (?:but|now)\b",
    ),
    _wording(
        Mark.CORRECTION,
        "changed|moved|switched|updated|renamed|postponed|rescheduled|pushed|brought|extended|increased"
        "|reduced|graded|migrated|raised|lowered",
        rf"\b(?:(?:{_MOVED}) (?:it |them |that )?(?:to|from|until)\b|(?:updated|extended|increased|reduced"
        r"|raised|lowered|changed|moved"
        rf"|postponed|rescheduled|upgraded) (?:[^\s.;!?]+ ){{0,5}}?(?:to|until) {_AMOUNT}|(?:changed|moved"
        rf"|renamed|rescheduled) (?:[^\s.;!?]+ ){{1,5}}?from\b"
        rf"|i{_HAVE} changed my mind|plans? (?:has |have |had )?changed)",
    ),
    _phrases(Mark.CORRECTION),
)

CONSTRAINTS = (
    _wording(
        Mark.CONSTRAINT,
        "must",
        r"(?<!a )\bmust(?:n't| not)?\b(?!-| have been| be (?:nice|hard|so|such|a (?:great|lot)|tough"
        r"|exhausting|exciting))",
    ),
    _wording(
        Mark.CONSTRAINT,
        "never|always|n't|do not|only|avoid",
        _SENTENCE_START + r"(?:please |and |but |so |also,? |just |from now on,? )?(?:never|always|don't|do not|only"
        r"|avoid)\s(?!know|think|worry|you|i\b|forget|hesitate|have|a\b|the\b|one\b|if\b|when\b|in\b)\w"
        r"|\b(?:should|shall|please|must) (?:never|always|only|not ever)\s\w|\b(?:should not|shouldn't"
        r"|shall not|may not) (?:be|use|exceed|change|contain|include|run|call|touch)",
    ),
    _wording(
        Mark.CONSTRAINT,
        "at most|no more|no less|no later|not exceed|limit|maximum of|minimum of|only use|use only|without "
        "|under no|not allowed|forbidden|make sure|ensure|required|mandatory|under ",
        r"\bat most (?:\d|one|two|three|a )|\bno (?:more|less|fewer|later|longer|earlier) than\b|\bnot exceed"
        r"|\blimit(?:ed)? (?:\w+ ){0,3}to\b|\b(?:maximum|minimum) of\b|\bonly use\b"
        r"|\buse only\b|\bwithout (?:using|changing|modifying|touching|breaking|adding)"
        r"|\bunder no circumstances|\bnot allowed|\bforbidden|(?:^\W{0,8}|[.!?;:] |\bplease "
        r"|\band )make sure (?:that|to|you|it|the|not|we)"
        r"|\bis (?:required|mandatory)|\b(?:keep|stay|remain) [^.;!?\n]{0,30}\bunder [$€£]?\d",
    ),
    _wording(
        Mark.CONSTRAINT,
        "deadline|due |budget|by ",
        rf"\bdeadline\b[^.?!\n]{{0,40}}(?:\d|{_DAYS}|tomorrow|week|month)|\b(?:is|are) due (?:on|by|in|at"
        rf"|{_DAYS}|tomorrow)|\bbudget (?:is|of|for [^.?!\n]{{1,30}} is)\b"
        rf"|\b(?:done|finished|ready|delivered|shipped|submitted|completed) by (?:\d|{_DAYS}|tomorrow|the end"
        r"|end of|next)",
    ),
    _phrases(Mark.CONSTRAINT),
)

STRICT_CONSTRAINTS = (
    _wording(
        Mark.CONSTRAINT,
        "must|not allowed|forbidden|under no|constraint:|requirement:",
        r"\bmust (?:not|never|always|only)\b|\bnot allowed\b|\bforbidden\b|\bunder no circumstances"
        r"|\b(?:constraint|requirement):",
    ),
)
"""Only wordings that cannot be mere advice."""

DECISIONS = (
    _wording(
        Mark.DECISION,
        "decided|agreed|settled|chose|opted|decision|approved",
        rf"\b(?:we|i|they|the team){_HAVE} (?:finally )?(?:decided|agreed|settled|chosen|chose|opted"
        rf"|approved)\b(?! (?:yet|if|whether))|^\W{{0,6}}decision\s?:|\bthe decision (?:is|was)\b"
        r"|"
        + _SENTENCE_START
        + r"agreed[,.!:]|\bit(?:'s| is| was) (?:decided|agreed)\b|\bdecided (?:to|on|against|that)\b",
    ),
)
USER_DECISIONS = (
    _wording(
        Mark.DECISION,
        "let's|let us|we'll|we will|i'll|i will|going with|go with|final",
        r"\b(?:let's|let us) (?:go with|use|stick with|stick to|keep(?! going)|switch to|choose|pick|adopt"
        r"|settle on)\b|\b(?:we|i)(?:'ll| will)(?: just)? (?:go with|go for|use|stick with|stick to|adopt)\b"
        rf"|(?:we're|we are|{_I_AM}) going (?:to go )?with\b|"
        + _SENTENCE_START
        + r"(?:ok,? |okay,? |yes,? )?go with\b|\bfinal (?:answer|choice|version) is",
    ),
    _phrases(Mark.DECISION),
)

PREFERENCES = (
    _wording(
        Mark.PREFERENCE,
        "prefer|rather|favorite|favourite|fan of|fond of|i like|i love|i hate|i enjoy|dislike|can't stand"
        "|don't like|really|absolutely",
        r"\bi(?:'d| would)?(?: really| much| always| generally| usually)? prefer|\bi'd rather\b"
        rf"|\bi would rather\b|\bmy (?:preferred|favou?rite)|\bmy preference\b|{_I_AM} (?:a )?(?:big |huge "
        r"|real )?(?:fan of|fond of)"
        r"|\bi (?:really |absolutely |also |don't |do not |don't really )?(?:like|love|hate|enjoy|dislike"
        r"|can't stand)\b(?! to (?:know|ask)| if\b| how you)",
    ),
    _wording(
        Mark.PREFERENCE,
        "please |from now on|want you to",
        r"\b(?:please (?:always |only |never )?(?:use|write|keep|call me|respond|reply|answer|format|stick)\b"
        r"|from now on\b|i want you to\b)",
    ),
    _phrases(Mark.PREFERENCE),
)

CRITICAL = (
    _wording(
        Mark.CRITICAL,
        "important|remember|forget|critical|keep in mind|do_not_evict|note |for the record",
        r"\b(?:very |really |extremely |most )?important[:!]|\bthis is (?:very |really "
        r"|extremely )?(?:important|critical)|\bit(?:'s| is) (?:very |really |extremely )?(?:important"
        r"|critical|crucial) (?:that|to remember)"
        r"|\bimportantly\b|(?<!i )(?<!you )(?<!can't )(?<!i'll )(?<!don't )\bremember (?:that|this|to|my|:)"
        r"|\bplease remember|\bkeep in mind|\bdon't (?:ever )?forget|\bdo not forget|\bnever forget"
        r"|\bcritical[:!]"
        r"|\bdo_not_evict\b|\bnote (?:to self|that|this down)|\bmake a note|\bfor the record|\bplease note",
    ),
    _phrases(Mark.CRITICAL),
)

_OWNED = (
    *("repo", "codebase", "tech stack", "stack", "company", "team", "domain", "production ", "staging "),
    *("main branch", "default branch"),
)

EVERGREEN = (
    _wording(
        Mark.EVERGREEN,
        "my |i'm |i am |i was |i live|i work|i grew up|call me",
        rf"\bmy (?:full |first |last )?name(?:'s| is)|(?<!you )\bcall me \w|{_I_AM} (?:called|from|allergic"
        r"|vegan|vegetarian|diabetic|left-handed|colou?r ?blind|married|\d+ years old)\b|\bi was born"
        r"|\bi (?:live|work|grew up) (?:in|at|for|as|with|near)\b|\bmy (?:birthday|email|e-mail|phone"
        r"|phone number|address|pronouns|time ?zone|native language|mother tongue|job|wife|husband|partner|son"
        r"|daughter|dog|cat|mother|father|mom|dad|brother|sister|boss|manager|company"
        r"|employer)(?:'s)?(?: name)? (?:is|was|are)\b"
        r"|\bmy (?:wife|husband|partner|son|daughter|dog|cat|brother|sister)(?:,|'s) \w",
    ),
    _wording(
        Mark.EVERGREEN,
        "|".join(f"{whose} {what}" for whose in ("our", "the") for what in _OWNED),
        r"\b(?:our|the) (?:repository|repo|codebase|tech stack|stack|company|team|domain|production (?:server|url"
        r"|database)|staging (?:server|url|database)|main branch|default branch) (?:is|are|lives|uses)\b",
    ),
    _phrases(Mark.EVERGREEN),
)


APPROVALS = (
    _sentence(
        "go|do |proceed|continue|ship|merge|approve|lgtm|good|works|fine by|let's|make it so",
        rf"^\W{{0,4}}(?:{_YES}[,.!\s]{{1,3}}){{0,3}}(?:please |let's |you can |you may "
        rf"|i think we can )?(?:go ahead|go for it|do it"
        r"|do that|do so|please do|proceed|continue|ship it|merge it|approved?\b|i approve|lgtm|looks? good"
        r"|sounds good|that works"
        r"|works for me|fine by me|let's go\b|let's do (?:it|that|this)|all good|good to go"
        r"|make it so)(?!\w)(?!.{0,40}\bbut\b)",
    ),
    _sentence(
        "y|sure|ok|alright|approved|agreed|confirmed|correct|absolutely|definitely|of course"
        "|ja|oui|s|да|نعم|好|是|可以|はい|네",
        rf"^\W{{0,4}}(?:{_YES}|approved|agreed|confirmed|correct|ja|oui|sí|si|sim|да|نعم|好的?|是的?|可以|はい|네)"
        r"(?:[,.!\s]{1,3}(?:please|thanks|thank you|that's right|exactly|correct)){0,2}[.!\s👍]{0,4}$",
    ),
)
"""An affirmation as a sentence of its own."""
NEGATIVE_START = lazy_re(r"\W{0,4}(?:no|nope|nah|don't|do not|not yet|please don't|nein|non|нет|不|いいえ|아니)\b")
"""How a refusing answer to a question begins."""
PROHIBITIONS = (
    _sentence(
        "let's not|no need|n't need|don't want|do not want|should not|shouldn't|avoid|stop |keep |no ",
        r"\bkeep (?:each|all|every|everything)\b|(?:^|[(,;] ?)no [a-z-]{3,30}ing\b|\blet's not\b|\bno need (?:to"
        r"|for)\b|\b(?:we|you|i) (?:don't|do not) (?:need|want) (?:to|you to|any|the)\b"
        r"|\b(?:we|you|it) (?:shouldn't|should not)\b|" + _CLAUSE_START + r"(?:please )?(?:avoid|stop) \w+ing\b",
    ),
)
"""Prohibitions in passing."""
REBUTTALS = (
    _sentence(
        "not correct|n't correct|not right|n't right|not true|n't true|incorrect|not what",
        r"\b(?:is|are|was|were|does|do|sounds?|looks?)(?: not|n't)(?: sound| look| seem)? (?:quite )?(?:correct"
        r"|right|rigth|true|what)\b|\bis incorrect\b",
    ),
)
"""Statements that something is wrong."""
OBLIGATIONS = (
    _sentence(
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
PROMISE_START = lazy_re(
    r"\W{0,6}(?:(?:then|next|after that|once [^.?!\n]{3,80}),? )?(?:next,? )?(?:i'll|i will|i'm going to"
    r"|i am going to|i'm about to)"
    r" (?!wait\b|be (?:here|happy|glad|ready)|let you|leave (?:it|that|this) (?:to|up)|stop\b|explain"
    r"|summari[sz]e|note\b|assume|need\b)"
    r"(?:now |then |also |first |next )?[a-z]{2,}"
)
"""How a promise begins."""
CHOICES = (
    _sentence(
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
"""A choice with its reason."""
DONE = lazy_re(
    r"\b(?:done|fixed|works?(?: now)?|working now|passes|passing|passed|solved|resolved|completed?|finished"
    r"|implemented|added|merged)\b"
)
