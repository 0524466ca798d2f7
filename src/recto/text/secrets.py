"""Keys and passwords in a text, told by the forms that are known for them.

Most issuers mark their keys by what they begin with; those are found by that mark. Passwords have no form and are found
by the words before them. It is not known here whether a key is real or in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

Span = tuple[int, int, str]
"""Where a secret begins, where it ends, and which format it has."""


class _Form(NamedTuple):
    name: str
    mark: str
    """A literal that every secret of this form contains; searched for first, because that is quick."""
    back: int
    """How many characters at most stand before the mark."""
    pattern: re.Pattern[str]


_EDGE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""Where a key may begin: not inside a word, but right after a line break that is written as an escape."""


def _starting(name: str, mark: str, rest: str) -> _Form:
    return _Form(name, mark, 0, re.compile(_EDGE + re.escape(mark) + rest))


_FORMS = (
    _starting("anthropic", "sk-ant-", r"[A-Za-z0-9_-]{20,200}"),
    _starting("openrouter", "sk-or-v1-", r"[0-9a-f]{40,80}"),
    _starting(
        "openai", "sk-", r"(?!ant-|or-v1-)(?=[a-z_-]{0,60}[A-Z0-9])(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{20,220}"
    ),
    *(_starting("aws_access_key", mark, r"[A-Z2-7]{16}(?![A-Za-z0-9])") for mark in ("AKIA", "ASIA", "ABIA", "ACCA")),
    _starting("gcp_api_key", "AIza", r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _starting("gcp_access_token", "ya29.", r"[A-Za-z0-9_-]{20,400}"),
    _starting("gcp_client_secret", "GOCSPX-", r"[A-Za-z0-9_-]{20,40}"),
    _starting("azure_storage_key", "AccountKey=", r"[A-Za-z0-9+/]{80,90}={0,2}"),
    _Form("azure_client_secret", "Q~", 4, re.compile(_EDGE + r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}")),
    _starting("azure_shared_signature", "sig=", r"(?=[^\s&]{0,80}%)[A-Za-z0-9%]{40,120}"),
    *(_starting("github_token", mark, r"[A-Za-z0-9]{36,255}") for mark in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    _starting("github_token", "github_pat_", r"[A-Za-z0-9_]{22,255}"),
    *(_starting("gitlab_token", mark, r"[A-Za-z0-9_-]{20,60}") for mark in ("glpat-", "gldt-", "glrt-", "glptt-")),
    *(_starting("slack_token", f"xox{kind}-", r"[0-9][A-Za-z0-9-]{10,250}") for kind in "abeoprs"),
    _starting("slack_token", "xapp-", r"[0-9]-[A-Za-z0-9-]{10,250}"),
    _starting(
        "slack_webhook", "hooks.slack.com/services/", r"T[A-Za-z0-9_]{6,14}/B[A-Za-z0-9_]{6,14}/[A-Za-z0-9]{16,32}"
    ),
    *(
        _starting("stripe_key", f"{kind}_{mode}_", r"[A-Za-z0-9]{16,250}")
        for kind in ("sk", "rk")
        for mode in ("live", "test")
    ),
    _starting("stripe_webhook_secret", "whsec_", r"[A-Za-z0-9+/=]{24,80}"),
    _starting("twilio_key", "SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    _starting("sendgrid_key", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}"),
    _starting("npm_token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _starting("pypi_token", "pypi-AgE", r"[A-Za-z0-9_-]{50,400}"),
    _starting("hugging_face_token", "hf_", r"[A-Za-z0-9]{30,64}(?![A-Za-z0-9_])"),
    _starting("jwt", "eyJ", r"[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,8000}\.[A-Za-z0-9_-]{10,2000}"),
    _Form("telegram_token", ":AA", 10, re.compile(_EDGE + r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])")),
    _starting("discord_webhook", "discord.com/api/webhooks/", r"[0-9]{15,22}/[A-Za-z0-9_-]{50,90}"),
    *(_starting("digitalocean_token", f"do{kind}_v1_", r"[0-9a-f]{64}") for kind in "opr"),
    _starting("databricks_token", "dapi", r"[0-9a-f]{32}(?![0-9a-z])"),
    *(_starting("shopify_token", f"shp{kind}_", r"[0-9a-fA-F]{32}") for kind in ("at", "ca", "pa", "ss")),
    *(_starting("square_token", f"sq0{kind}-", r"[A-Za-z0-9_-]{22,50}") for kind in ("atp", "csp", "idp")),
    _starting("square_token", "EAAA", r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{60}(?![A-Za-z0-9_-])"),
    _starting("mailgun_key", "key-", r"[0-9a-f]{32}(?![0-9a-z])"),
    _Form("mailchimp_key", "-us", 32, re.compile(_EDGE + r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9A-Za-z])")),
    _starting("linear_key", "lin_api_", r"[A-Za-z0-9]{32,48}"),
    _starting("notion_token", "secret_", r"(?=[A-Za-z]{0,43}[0-9])[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    _starting("notion_token", "ntn_", r"[A-Za-z0-9]{40,60}"),
    _starting("groq_key", "gsk_", r"[A-Za-z0-9]{40,60}"),
    _starting("xai_key", "xai-", r"[A-Za-z0-9]{60,100}"),
    _starting("perplexity_key", "pplx-", r"[A-Za-z0-9]{40,60}"),
    _starting("replicate_token", "r8_", r"[A-Za-z0-9]{36,40}"),
    _starting("vault_token", "hvs.", r"[A-Za-z0-9_-]{24,200}"),
    _starting("postman_key", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    _starting("grafana_token", "glsa_", r"[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    _starting("new_relic_key", "NRAK-", r"[A-Z0-9]{27}"),
    _starting("sentry_token", "sntrys_", r"[A-Za-z0-9_=+/-]{40,300}"),
    _starting("atlassian_token", "ATATT3", r"[A-Za-z0-9_=-]{60,250}"),
    _starting("docker_token", "dckr_pat_", r"[A-Za-z0-9_-]{20,40}"),
    _starting("figma_token", "figd_", r"[A-Za-z0-9_-]{36,60}"),
    _starting("supabase_token", "sbp_", r"[0-9a-f]{40}"),
    _starting("rubygems_key", "rubygems_", r"[0-9a-f]{48}"),
    _starting("age_key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
)
_DISCORD = re.compile(r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])")
_BEFORE_DISCORD = re.compile(_EDGE + r"[MNO][A-Za-z0-9_-]{23,27}$")
_AWS_SECRET = re.compile(
    r"(?<![A-Za-z0-9/+])(?=[A-Za-z/+]{0,39}[0-9])(?=[a-z0-9/+]{0,39}[A-Z])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
)
_URL = re.compile(r"://[^\s/:@\"'<>]{0,64}:([^\s/@\"'<>]{3,128})@")
_BEARER = re.compile(
    r"(?i:bearer|basic|(?<=: )token)[ \t]{1,3}(?=[A-Za-z_.~+/-]{0,60}[0-9])([A-Za-z0-9_.~+/-]{20,2000}={0,2})"
)
_SHORTEST = 20
"""Characters of the shortest written word that holds a key with a mark."""

_PASSWORDS = (
    "password", "passwd", "passphrase", "passcode", "passwort", "mot de passe", "pwd", "contraseña", "senha", "пароль",
    "密码",
)  # fmt: skip
_KEYS = (
    "apikey", "api_key", "api-key", "api key", "access_key", "access-key", "accesskey", "private_key", "encryption_key",
    "signing_key", "secret", "auth_token", "auth-token", "authtoken", "access_token", "accesstoken", "refresh_token",
    "api_token", "bot_token",
)  # fmt: skip
"""What stands before a password or a key, in small letters."""
_ROOTS = {
    root: tuple(name for name in (*_PASSWORDS, *_KEYS) if root in name)
    for root in ("pass", "pwd", "key", "secret", "token", "contrase", "senha", "пароль", "密码")
}
"""The same by what they have in common, so that most of them need not be looked for."""
_ASSIGNED = re.compile(
    r"(?:[_-]?[A-Za-z0-9]{1,12}){0,2}+(?:\\?[\"'`*]|\]){0,2}[ \t]{0,3}(?:=>|:=|[:=：])[ \t*]{0,3}"
    r"(?:\\?([\"'`])([^\s\"'`\\]{6,200})\\?\1|([^\s\"'`,;<>(){}\[\]\\]{8,200})(?![\"'`(\[{]))"
)
_SAID = re.compile(
    r"[ \t]{1,3}(?:(?:for|to|of|für|pour|para)(?:[ \t]{1,3}[^\s,.;:]{1,30}){1,4}?[ \t]{1,3})?"
    r"(?:is|was|ist|lautet|est|es|é|это)(?:[ \t]{1,3}(?:now|set[ \t]to|jetzt))?[: \t]{1,3}[\"'`“]?([^\s\"'`“”]{6,100})"
    r"|(?:是|は)[：: ]?([!-~]{6,100})"
)
_PLACEHOLDERS = (
    "your", "example", "placeholder", "xxxx", "***", "...", "…", "changeme", "change_me", "change-me", "dummy",
    "redacted", "<", "${", "$(", "{{", "%(", "todo", "environ", "getenv", "process.", "secret.", "secrets.", "config",
    "settings", "self.", "args.", "null", "none", "undefined",
)  # fmt: skip
_OWN = re.compile(r"(?i)(?<!\w)(?:my|our|mein|unser|mon|mi|minha|мой)[ \t]{1,3}(?:[^\s.,:;]{1,20}[ \t]{1,3})?$")
_NO_PASSWORD = frozenset(
    """
    correct incorrect invalid required missing expired working stored hashed encrypted hidden secure strong weak broken
    compromised protected forgotten unknown accepted rejected wrong always really still likely probably something
    """.split()  # noqa: SIM905  read as prose
)
"""What is said of a password without telling it."""
_CODE = re.compile(
    r"[A-Za-z_][A-Za-z_]*(?:\.[A-Za-z_]\w*)+|[A-Z][A-Z0-9_]+|[a-z]+(?:[_-][a-z]+)*[0-9]?|--?[a-z].*|[\w-]*/[\w./-]*"
)
"""What is rather a name in a program than a value: `settings.key`, `DB_PASSWORD_2`, `token2`, a path."""


def secrets_in(text: str) -> list[Span]:
    """Every secret in the text by its place, none inside another. Linear in the length of the text."""
    found = sorted(_everything(text), key=lambda span: (span[0], -span[1]))
    kept: list[Span] = []
    for span in found:
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
        elif span[1] > kept[-1][1]:
            kept[-1] = (kept[-1][0], span[1], kept[-1][2])
    return kept


def masked(text: str) -> str:
    """The text with a note in the place of every secret."""
    parts, at = [], 0
    for start, end, name in secrets_in(text):
        parts += [text[at:start], f"[secret left out: {name}]"]
        at = end
    return "".join((*parts, text[at:])) if at else text


def _everything(text: str) -> Iterator[Span]:
    # Every key with a mark stands in a long written word, and few words are long: the rest need not be searched.
    long = " ".join([word for word in text.split() if len(word) >= _SHORTEST])
    for form in _FORMS:
        if form.mark in long:
            yield from _marked(text, form)
    yield from _pem(text)
    lowered = text.lower()
    if "aws" in lowered or "AKIA" in long:
        yield from ((found.start(), found.end(), "aws_secret_key") for found in _AWS_SECRET.finditer(text))
    if _DISCORD.search(long):
        yield from _discord(text)
    if "://" in long:
        yield from ((*found.span(1), "url_password") for found in _URL.finditer(text) if _is_value(found[1], 3))
    if "bearer" in lowered or "basic" in lowered or ": token" in lowered:
        yield from ((*found.span(1), "authorization") for found in _BEARER.finditer(text) if _is_value(found[1], 20))
    yield from _named(text, lowered if len(lowered) == len(text) else text)


def _marked(text: str, form: _Form) -> Iterator[Span]:
    at = text.find(form.mark)
    while at >= 0:
        end = at + len(form.mark)
        for start in range(max(0, at - form.back), at + 1) if form.back else (at,):
            if found := form.pattern.match(text, start):
                yield (found.start(), found.end(), form.name)
                end = max(end, found.end())
                break
        at = text.find(form.mark, end)


def _pem(text: str) -> Iterator[Span]:
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


def _discord(text: str) -> Iterator[Span]:
    for found in _DISCORD.finditer(text):
        if before := _BEFORE_DISCORD.search(text[max(0, found.start() - 30) : found.start()]):
            yield (found.start() - len(before[0]), found.end(), "discord_token")


def _named(text: str, lowered: str) -> Iterator[Span]:
    """Values that a word before them says are secret: `password = …`, `"api_key": "…"`, `my password is …`."""
    for root, names in _ROOTS.items():
        for name in names if root in lowered else ():
            at = lowered.find(name)
            while at >= 0:
                end = at + len(name)
                if span := _value_after(text, at, name):
                    yield span
                at = lowered.find(name, end)


def _value_after(text: str, at: int, name: str) -> Span | None:
    end, password = at + len(name), name in _PASSWORDS
    found = _ASSIGNED.match(text, end)
    if found and _is_value(found[2] or found[3], 8 if found[3] else 6):
        return (*found.span(2 if found[2] else 3), "password" if password else "named_key")
    if password and (said := _SAID.match(text, end)):
        group = 1 if said[1] else 2
        value = said[group].rstrip(".,;!?)")
        told = value.isalpha() and value.lower() not in _NO_PASSWORD and _OWN.search(text[max(0, at - 50) : at])
        if told or _is_value(value, 6):
            return (said.start(group), said.start(group) + len(value), "password")
    return None


def _is_value(value: str, least: int) -> bool:
    """Whether this looks like a secret and not like a word, a variable, or a hint where to put one."""
    bare = value.strip(".,;:!?-_=")
    if len(value) < least or len(set(value)) < 3 or bare.isalpha() or _CODE.fullmatch(bare):
        return False
    lowered = value.lower()
    return not any(hint in lowered for hint in _PLACEHOLDERS)
