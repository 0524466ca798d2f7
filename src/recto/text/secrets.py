"""Find keys and passwords in a text by their known formats.

Most issuers give their keys a fixed prefix. Passwords have no format and are found by the words before them. Whether a
key is real or in use is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from recto.text.lazy_re import lazy_re

SecretSpan = tuple[int, int, str]
"""Start and end of a secret, and the name of its format."""


class _SecretFormat(NamedTuple):
    name: str
    mark: str
    """A literal that every secret of this format contains; searched first, because that is fast."""
    back: int
    """Maximum number of characters before the mark."""
    pattern: re.Pattern[str]


_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""Where a key may begin: not inside a word, but directly after an escaped line break."""


def _prefixed(name: str, mark: str, rest: str) -> _SecretFormat:
    return _SecretFormat(name, mark, 0, lazy_re(_EDGE + re.escape(mark) + rest))


_FORMATS = (
    _prefixed("anthropic", "sk-ant-", r"[A-Za-z0-9_-]{20,200}"),
    _prefixed("openrouter", "sk-or-v1-", r"[0-9a-f]{40,80}"),
    _prefixed(
        "openai", "sk-", r"(?!ant-|or-v1-)(?=[a-z_-]{0,60}[A-Z0-9])(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{20,220}"
    ),
    _prefixed("recto_key", "rk-", r"[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    *(_prefixed("aws_access_key", mark, r"[A-Z2-7]{16}(?![A-Za-z0-9])") for mark in ("AKIA", "ASIA", "ABIA", "ACCA")),
    _prefixed("gcp_api_key", "AIza", r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _prefixed("gcp_access_token", "ya29.", r"[A-Za-z0-9_-]{20,400}"),
    _prefixed("gcp_client_secret", "GOCSPX-", r"[A-Za-z0-9_-]{20,40}"),
    _prefixed("azure_storage_key", "AccountKey=", r"[A-Za-z0-9+/]{80,90}={0,2}"),
    _SecretFormat("azure_client_secret", "Q~", 4, lazy_re(_EDGE + r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}")),
    _prefixed("azure_shared_signature", "sig=", r"(?=[^\s&]{0,80}%)[A-Za-z0-9%]{40,120}"),
    *(_prefixed("github_token", mark, r"[A-Za-z0-9]{36,255}") for mark in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    _prefixed("github_token", "github_pat_", r"[A-Za-z0-9_]{22,255}"),
    *(_prefixed("gitlab_token", mark, r"[A-Za-z0-9_-]{20,60}") for mark in ("glpat-", "gldt-", "glrt-", "glptt-")),
    *(_prefixed("slack_token", f"xox{kind}-", r"[0-9][A-Za-z0-9-]{10,250}") for kind in "abeoprs"),
    _prefixed("slack_token", "xapp-", r"[0-9]-[A-Za-z0-9-]{10,250}"),
    _prefixed(
        "slack_webhook", "hooks.slack.com/services/", r"T[A-Za-z0-9_]{6,14}/B[A-Za-z0-9_]{6,14}/[A-Za-z0-9]{16,32}"
    ),
    *(
        _prefixed("stripe_key", f"{kind}_{mode}_", r"[A-Za-z0-9]{16,250}")
        for kind in ("sk", "rk")
        for mode in ("live", "test")
    ),
    _prefixed("stripe_webhook_secret", "whsec_", r"[A-Za-z0-9+/=]{24,80}"),
    _prefixed("twilio_key", "SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _prefixed("sendgrid_key", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}"),
    _prefixed("npm_token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _prefixed("pypi_token", "pypi-AgE", r"[A-Za-z0-9_-]{50,400}"),
    _prefixed("hugging_face_token", "hf_", r"[A-Za-z0-9]{30,64}(?![A-Za-z0-9_])"),
    _prefixed("jwt", "eyJ", r"[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{10,2000}"),
    _SecretFormat("telegram_token", ":AA", 10, lazy_re(_EDGE + r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])")),
    _prefixed("discord_webhook", "discord.com/api/webhooks/", r"[0-9]{15,22}/[A-Za-z0-9_-]{50,90}"),
    *(_prefixed("digitalocean_token", f"do{kind}_v1_", r"[0-9a-f]{64}") for kind in "opr"),
    _prefixed("databricks_token", "dapi", r"[0-9a-f]{32}(?![0-9a-z])"),
    *(_prefixed("shopify_token", f"shp{kind}_", r"[0-9a-fA-F]{32}") for kind in ("at", "ca", "pa", "ss")),
    *(_prefixed("square_token", f"sq0{kind}-", r"[A-Za-z0-9_-]{22,50}") for kind in ("atp", "csp", "idp")),
    _prefixed("square_token", "EAAA", r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{60}(?![A-Za-z0-9_-])"),
    _prefixed("mailgun_key", "key-", r"[0-9a-f]{32}(?![0-9a-z])"),
    _SecretFormat("mailchimp_key", "-us", 32, lazy_re(_EDGE + r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9A-Za-z])")),
    _prefixed("linear_key", "lin_api_", r"[A-Za-z0-9]{32,48}"),
    _prefixed("notion_token", "secret_", r"(?=[A-Za-z]{0,43}[0-9])[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    _prefixed("notion_token", "ntn_", r"[A-Za-z0-9]{40,60}"),
    _prefixed("groq_key", "gsk_", r"[A-Za-z0-9]{40,60}"),
    _prefixed("xai_key", "xai-", r"[A-Za-z0-9]{60,100}"),
    _prefixed("perplexity_key", "pplx-", r"[A-Za-z0-9]{40,60}"),
    _prefixed("replicate_token", "r8_", r"[A-Za-z0-9]{36,40}"),
    _prefixed("vault_token", "hvs.", r"[A-Za-z0-9_-]{24,200}"),
    _prefixed("postman_key", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    _prefixed("grafana_token", "glsa_", r"[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _prefixed("new_relic_key", "NRAK-", r"[A-Z0-9]{27}"),
    _prefixed("sentry_token", "sntrys_", r"[A-Za-z0-9_=+/-]{40,300}"),
    _prefixed("atlassian_token", "ATATT3", r"[A-Za-z0-9_=-]{60,250}"),
    _prefixed("docker_token", "dckr_pat_", r"[A-Za-z0-9_-]{20,40}"),
    _prefixed("figma_token", "figd_", r"[A-Za-z0-9_-]{36,60}"),
    _prefixed("supabase_token", "sbp_", r"[0-9a-f]{40}"),
    _prefixed("rubygems_key", "rubygems_", r"[0-9a-f]{48}"),
    _prefixed("age_key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
)
_MARKS = tuple(dict.fromkeys(form.mark for form in _FORMATS))
_DIVIDED_MARKS = {
    form.mark: form.mark.rstrip("=~")
    for form in _FORMATS
    if form.name.startswith("azure_") or form.name in ("sentry_token", "atlassian_token", "stripe_webhook_secret")
}
"""Marks of formats with characters at which a text is divided into chunks, so that no chunk of theirs need be long: the
part of each mark that is inside a chunk."""
_DISCORD = lazy_re(r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])")
_BEFORE_DISCORD = lazy_re(_EDGE + r"[MNO][A-Za-z0-9_-]{23,27}$")
_AWS_SECRET = lazy_re(
    r"(?<![A-Za-z0-9/+])(?=[A-Za-z/+]{0,39}[0-9])(?=[a-z0-9/+]{0,39}[A-Z])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
)
_URL = lazy_re(r"://[^\s/:@\"'<>]{0,64}:([^\s/@\"'<>]{3,128})@")
_BEARER = lazy_re(
    r"(?i:bearer|basic|(?<=: )token)[ \t]{1,3}(?=[A-Za-z_.~+/-]{0,60}[0-9])([A-Za-z0-9_.~+/-]{20,2000}={0,2})"
)
MIN_MARKED_CHARS = 20
"""Characters of the shortest word that contains a key with a mark."""
_MAX_REMEMBERED_CHARS = 600
"""Characters of a text that is remembered with its secrets replaced."""
_MAX_HARMLESS = 100_000
"""Words that are remembered because they are no part of a secret."""
_MAX_SPLIT_CHARS = 1 << 20
"""Characters of a text that is split into words."""

_PASSWORD_NAMES = (
    "password", "passwd", "passphrase", "passcode", "passwort", "mot de passe", "pwd", "contraseña", "senha", "пароль",
    "密码",
)  # fmt: skip
_KEY_NAMES = (
    "apikey", "api_key", "api-key", "api key", "access_key", "access-key", "accesskey", "private_key", "encryption_key",
    "signing_key", "secret", "auth_token", "auth-token", "authtoken", "access_token", "accesstoken", "refresh_token",
    "api_token", "bot_token",
)  # fmt: skip
"""Words before a password or a key, in lower case."""
_ROOTS = {
    root: tuple(name for name in (*_PASSWORD_NAMES, *_KEY_NAMES) if root in name)
    for root in ("pass", "pwd", "key", "secret", "token", "contrase", "senha", "пароль", "密码")
}
"""The same names by a common substring, so that most of them need not be searched."""
CUES = ("PRIVATE", *_DIVIDED_MARKS.values())
CASELESS_CUES = ("aws", "bearer", "basic", "://", "@", *_ROOTS)
"""A word that is shorter than `MIN_MARKED_CHARS` and has none of either is of no account to `may_hold_secrets`; the
latter are in lower case, whatever case the word has."""
_ASSIGNED = lazy_re(
    r"(?:[_-]?[A-Za-z0-9]{1,12}){0,2}+(?:\\?[\"'`*]|\]){0,2}[ \t]{0,3}(?:=>|:=|[:=：])[ \t*]{0,3}"
    r"(?:\\?([\"'`])([^\s\"'`\\]{6,200})\\?\1|([^\s\"'`,;<>(){}\[\]\\]{8,200})(?![\"'`(\[{]))"
)
_STATED = lazy_re(
    r"[ \t]{1,3}(?:(?:for|to|of|für|pour|para)(?:[ \t]{1,3}[^\s,.;:]{1,30}){1,4}?[ \t]{1,3})?"
    r"(?:is|was|ist|lautet|est|es|é|это)(?:[ \t]{1,3}(?:now|set[ \t]to|jetzt))?[: \t]{1,3}[\"'`“]?([^\s\"'`“”]{6,100})"
    r"|(?:是|は)[：: ]?([!-~]{6,100})"
)
_PLACEHOLDERS = (
    "your", "example", "placeholder", "xxxx", "***", "...", "…", "changeme", "change_me", "change-me", "dummy",
    "redacted", "<", "${", "$(", "{{", "%(", "todo", "environ", "getenv", "process.", "secret.", "secrets.", "config",
    "settings", "self.", "args.", "null", "none", "undefined",
)  # fmt: skip
_EXPRESSION = lazy_re(r"\{[A-Za-z_][\w.]{0,60}(?:![rsa])?\}|\$[A-Z_][A-Z0-9_]{0,60}")
"""A variable in a template or a shell word, as in `f"postgres://{user}:{p.password}@{host}"`."""
_POSSESSIVE = lazy_re(r"(?i)(?<!\w)(?:my|our|mein|unser|mon|mi|minha|мой)[ \t]{1,3}(?:[^\s.,:;]{1,20}[ \t]{1,3})?$")
_NOT_PASSWORDS = frozenset(
    """
    correct incorrect invalid required missing expired working stored hashed encrypted hidden secure strong weak broken
    compromised protected forgotten unknown accepted rejected wrong always really still likely probably something
    """.split()  # noqa: SIM905  read as prose
)
"""Words said about a password that are not a password."""
_PROGRAM_NAME = lazy_re(
    r"[A-Za-z_][A-Za-z_]*(?:\.[A-Za-z_]\w*)+|[A-Z][A-Z0-9_]+|[a-z]+(?:[_-][a-z]+)*[0-9]?|--?[a-z].*|[\w-]*/[\w./-]*"
)
"""A name in a program rather than a value: `settings.key`, `DB_PASSWORD_2`, `token2`, a path."""


def find_secrets(text: str) -> list[SecretSpan]:
    """All secrets in the text in order, without overlaps. Linear in the length of the text."""
    spans = _all_spans(text)
    if not spans:
        return spans
    spans.sort(key=lambda span: (span[0], -span[1]))
    merged: list[SecretSpan] = []
    for span in spans:
        if not merged or span[0] >= merged[-1][1]:
            merged.append(span)
        elif span[1] > merged[-1][1]:
            merged[-1] = (merged[-1][0], span[1], merged[-1][2])
    return merged


def may_hold_secrets(text: str, chunks: str) -> bool:
    """Whether `find_secrets` might find any; far quicker.

    `chunks` are the `distinct_chunks` of the text; those without cues may be missing.
    """
    lowered = chunks.lower()
    if "aws" in lowered or "bearer" in lowered or "basic" in lowered or "PRIVATE" in chunks:
        return True
    if "://" in chunks and "@" in chunks:
        return True
    long_words = " ".join([word for word in chunks.split() if len(word) >= MIN_MARKED_CHARS])
    if long_words and (any(mark in long_words for mark in _MARKS) or _DISCORD.search(long_words)):
        return True
    if any(start in chunks and mark in text for mark, start in _DIVIDED_MARKS.items()):
        return True
    roots = [root for root in _ROOTS if root in lowered]
    if not roots:
        return False
    lowered = text.lower()
    return ": token" in lowered or any(name in lowered for root in roots for name in _ROOTS[root])


class HarmlessWords:
    """Remembers words that are no part of a secret: most words of a text were read before."""

    def __init__(self, cues: Sequence[str] = ()) -> None:
        """`cues` are what else makes a word suspect, as the cues of `may_hold_secrets` do."""
        self._cues = (*CUES, *cues)
        self._known: set[str] = set()

    def others(self, words: Collection[str]) -> str:
        """The words that may be part of a secret, or contain a cue."""
        known = self._known
        if known.issuperset(words):
            return ""
        unknown = [word for word in words if word not in known]
        text = " ".join(unknown)
        lowered = text.lower()
        suspects = {word for word in unknown if len(word) >= MIN_MARKED_CHARS}
        for cue in self._cues:
            if cue in text:
                suspects.update([word for word in unknown if cue in word])
        for cue in CASELESS_CUES:
            if cue in lowered:
                suspects.update([word for word in unknown if cue in word.lower()])
        if len(known) + len(unknown) > _MAX_HARMLESS:
            # Other threads may be reading the old set, so it is replaced and not cleared.
            known = self._known = set()
        known.update([word for word in unknown if word not in suspects])
        return " ".join(suspects)


def mask_secrets(text: str) -> str:
    """The text with every secret replaced by a note."""
    return _mask_short(text) if len(text) <= _MAX_REMEMBERED_CHARS else _mask(text)


def _mask(text: str) -> str:
    parts, at = [], 0
    for start, end, name in find_secrets(text):
        parts += [text[at:start], f"[secret left out: {name}]"]
        at = end
    return "".join((*parts, text[at:])) if at else text


_mask_short = lru_cache(4096)(_mask)
"""Summaries and records quote the same sentences and paths again and again."""


def _all_spans(text: str) -> list[SecretSpan]:
    # Every message is searched when it is stored, and few contain anything that looks like a secret: patterns run only
    # where a literal is found. A key with a mark is part of a long word, and few words are long. The words of a very
    # long text would take ten times its memory.
    spans: list[SecretSpan] = []
    long_words = text
    if len(text) <= _MAX_SPLIT_CHARS:
        long_words = " ".join([word for word in text.split() if len(word) >= MIN_MARKED_CHARS])
    if long_words:
        for form in _FORMATS:
            if form.mark in long_words:
                spans += _marked_spans(text, form)
        if _DISCORD.search(long_words):
            spans += _discord_spans(text)
        if "://" in long_words:
            spans += ((*match.span(1), "url_password") for match in _URL.finditer(text) if _looks_secret(match[1], 3))
    if "PRIVATE KEY" in text:
        spans += _pem_spans(text)
    lowered = text.lower()
    if "aws" in lowered or "AKIA" in long_words:
        spans += ((match.start(), match.end(), "aws_secret_key") for match in _AWS_SECRET.finditer(text))
    if "bearer" in lowered or "basic" in lowered or ": token" in lowered:
        spans += ((*match.span(1), "authorization") for match in _BEARER.finditer(text) if _looks_secret(match[1], 20))
    if len(lowered) != len(text):
        lowered = text
    for root, names in _ROOTS.items():
        if root in lowered:
            spans += _named_spans(text, lowered, names)
    return spans


def _marked_spans(text: str, form: _SecretFormat) -> Iterator[SecretSpan]:
    at = text.find(form.mark)
    while at >= 0:
        end = at + len(form.mark)
        for start in range(max(0, at - form.back), at + 1) if form.back else (at,):
            if match := form.pattern.match(text, start):
                yield (match.start(), match.end(), form.name)
                end = max(end, match.end())
                break
        at = text.find(form.mark, end)


def _pem_spans(text: str) -> Iterator[SecretSpan]:
    at = text.find("PRIVATE KEY")
    while at >= 0:
        start = text.rfind("-----BEGIN", max(0, at - 40), at)
        end = at + 11
        if start >= 0:
            close = text.find("-----END", end, end + 20_000)
            stop = text.find("-----", close + 8, close + 80) if close >= 0 else -1
            end = stop + 5 if stop >= 0 else min(len(text), end + 4_000)
            if end - start > 120:
                yield (start, end, "private_key")
        at = text.find("PRIVATE KEY", end)


def _discord_spans(text: str) -> Iterator[SecretSpan]:
    for match in _DISCORD.finditer(text):
        if before := _BEFORE_DISCORD.search(text[max(0, match.start() - 30) : match.start()]):
            yield (match.start() - len(before[0]), match.end(), "discord_token")


def _named_spans(text: str, lowered: str, names: Iterable[str]) -> Iterator[SecretSpan]:
    """Values that the word before them marks as secret: `password = …`, `"api_key": "…"`, `my password is …`."""
    for name in names:
        at = lowered.find(name)
        while at >= 0:
            end = at + len(name)
            if span := _value_after(text, at, name):
                yield span
            at = lowered.find(name, end)


def _value_after(text: str, at: int, name: str) -> SecretSpan | None:
    end, password = at + len(name), name in _PASSWORD_NAMES
    assigned = _ASSIGNED.match(text, end)
    if assigned and _looks_secret(assigned[2] or assigned[3], 8 if assigned[3] else 6):
        return (*assigned.span(2 if assigned[2] else 3), "password" if password else "named_key")
    if password and (stated := _STATED.match(text, end)):
        group = 1 if stated[1] else 2
        value = stated[group].rstrip(".,;!?)")
        is_own_word = (
            value.isalpha() and value.lower() not in _NOT_PASSWORDS and _POSSESSIVE.search(text[max(0, at - 50) : at])
        )
        if is_own_word or _looks_secret(value, 6):
            return (stated.start(group), stated.start(group) + len(value), "password")
    return None


def _looks_secret(value: str, min_chars: int) -> bool:
    """Whether a value looks like a secret and not like a word, a variable, or a placeholder."""
    bare = value.strip(".,;:!?-_=")
    if _EXPRESSION.fullmatch(value):
        return False
    if len(value) < min_chars or len(set(value)) < 3 or bare.isalpha() or _PROGRAM_NAME.fullmatch(bare):
        return False
    lowered = value.lower()
    return not any(hint in lowered for hint in _PLACEHOLDERS)
