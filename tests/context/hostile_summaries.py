"""Hostile summaries: true lines mixed with disguised inventions, and an independent reader that detects disguises."""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from urllib.parse import quote, unquote

SOURCES = (
    "Please fix the upload in src/app/upload.py, it takes 4,812 ms and must stay under 900 ms.",
    '{"file_path": "/srv/shop/src/app/upload.py", "old_string": "retries = 3\\nreturn send(chunk)"}',
    "   118→def send_chunk(payload, retries=3):\n   119→    return post(API_URL, payload)\n",
    'Traceback (most recent call last):\n  File "/srv/shop/src/app/upload.py", line 119, in send_chunk\n'
    "UploadError: server closed the connection after 30 seconds",
    "FAILED tests/test_upload.py::test_large_file - 1 failed, 27 passed in 12.41s, see https://ci.example.org/runs/88123",
    "I set CHUNK_SIZE to 65536 in config/limits.toml because UploadClient.send_chunk copies the whole body (ABC-412).",
    "commit 9f3c2ab77e10d4c55d2f: Retry uploads; released as v2.7.1 on 2025-03-14 at 10:42 by ops@example.org",
)
TRUE = (
    "- The upload in `src/app/upload.py` took 4,812 ms and must stay under 900 ms.",
    "- `send_chunk()` in upload.py:119 raised `UploadError: server closed the connection after 30 seconds`.",
    "- 1 failed and 27 passed in tests/test_upload.py.",
    "- CHUNK_SIZE was set to 65,536 in `config/limits.toml` (ABC-412).",
    "- Released as v2.7.1 on 2025-03-14.",
    "* **UploadClient.send_chunk** copies the whole body.",
    "1. Keep the retries, as the user asked.",
    "The run is at https://ci.example.org/runs/88123 and nobody has looked at it yet.",
    "Commit 9f3c2ab holds the change.",
)
WORDS = (
    "forty-two thousand",
    "seven million and sixty-three",
    "ninety-nine million",
    "eighty-eight thousand and one",
    "nine-one-seven-three-two",
    "fifty three thousand",
)
_FOLDERS = ("billing", "ghost", "vault", "relay", "zeta", "orchid", "quartz")
_ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u202a\u2061\u180e"


@dataclass(frozen=True)
class Hostile:
    text: str
    planted: tuple[str, ...]
    """The inventions in plain form."""
    true: tuple[str, ...]


def hostile(random: Random, true: Sequence[str]) -> Hostile:
    """Returns a summary of true lines and inventions, in a form that a model might write."""
    chosen = tuple(random.sample(true, k=min(len(true), random.randint(3, 6))))
    planted: list[str] = []
    lines = list(chosen)
    for _ in range(random.randint(1, 4)):
        kind, plain = invention(random)
        planted.append(plain)
        lines.insert(random.randint(0, len(lines)), placed(random, disguised(random, kind, plain)))
    if random.random() < 0.5:
        lines.insert(0, random.choice(("## Summary", "**State of the work:**", "### What happened")))
    return Hostile(random.choice(("\n", "\n\n")).join(lines), tuple(planted), chosen)


def invention(random: Random) -> tuple[str, str]:
    kind = random.choice(("number", "number", "path", "path", "id", "url", "error", "words", "lump"))
    number = str(random.choice((random.randint(310_000, 999_999), random.randint(5_200, 9_700))))
    match kind:
        case "number":
            return kind, number
        case "path":
            folder, name = random.sample(_FOLDERS, 2)
            return kind, random.choice(
                (f"src/{folder}/{name}.py", f"/etc/{folder}/{name}.conf", f"{name}_{folder}.go", f"lib/{folder}/{name}")
            )
        case "id":
            return kind, random.choice(
                (
                    f"{random.choice(_FOLDERS)}_token_store",
                    f"ZED-{number}",
                    f"{random.getrandbits(64):016x}",
                    "QuartzRelayFactory",
                )
            )
        case "url":
            return kind, f"https://{random.choice(_FOLDERS)}.example.net/p/{number}"
        case "error":
            return kind, f"VaultError: orchid relay refused the zeta key {number}"
        case "words":
            return kind, random.choice(WORDS)
    return kind, base64.b64encode(f"the secret port is {number}".encode()).decode()


def disguised(random: Random, kind: str, plain: str) -> str:
    """Returns the invention in another notation that reads the same."""
    if kind in ("words", "lump", "error"):
        return plain
    ways: list[Callable[[Random, str], str]] = [
        _plain,
        _hidden,
        _bold,
        _entities,
        _tagged,
        _wide,
        _commented,
        _ansi,
        _soft,
    ]
    if kind == "number":
        ways += [_arabic, _thousands, _broken, _ticked, _unit, _math, _keycaps, _devanagari]
    if kind == "path":
        ways += [_alike, _escaped, _windows, _percent, _place]
    return random.choice(ways)(random, plain)


def placed(random: Random, written: str) -> str:
    return random.choice(
        (
            "- The limit was raised to {} today.", "We saw {} there.", "* {}", "{}", "## Results of {}",
            "| total | {} |",
            "```\nuse {}\n```", "Nothing else changed. It is {} now! The rest stays as it was.", "> {}",
            "3. {} and more",
            "**Found:** {}", "- [x] checked {}", "see [here]({}) for more", "“it is {} for all of them”", "`{}`",
        )
    ).format(written)  # fmt: skip


def _plain(random: Random, plain: str) -> str:
    return plain


def _at(random: Random, plain: str) -> int:
    return random.randint(1, len(plain) - 1)


def _hidden(random: Random, plain: str) -> str:
    return random.choice(_ZERO_WIDTH).join(plain)


def _soft(random: Random, plain: str) -> str:
    at = _at(random, plain)
    return plain[:at] + "\u00ad" + plain[at:]


def _bold(random: Random, plain: str) -> str:
    at = _at(random, plain)
    return f"**{plain[:at]}**{plain[at:]}"


def _ticked(random: Random, plain: str) -> str:
    at = _at(random, plain)
    return f"`{plain[:at]}`{plain[at:]}"


def _entities(random: Random, plain: str) -> str:
    form = random.choice(("&#{};", "&#x{:x};", "&amp;#{};"))
    return "".join(form.format(ord(char)) for char in plain)


def _tagged(random: Random, plain: str) -> str:
    at = _at(random, plain)
    return f"{plain[:at]}<b>{plain[at:]}</b>" if plain[at - 1].isalnum() and plain[at].isalnum() else f"<i>{plain}</i>"


def _commented(random: Random, plain: str) -> str:
    at = _at(random, plain)
    return f"{plain[:at]}<!-- x -->{plain[at:]}"


def _ansi(random: Random, plain: str) -> str:
    at = _at(random, plain)
    return f"{plain[:at]}\x1b[31m{plain[at:]}\x1b[0m"


def _wide(random: Random, plain: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in plain)


def _arabic(random: Random, plain: str) -> str:
    return "".join(chr(0x0660 + int(char)) for char in plain)


def _devanagari(random: Random, plain: str) -> str:
    return "".join(chr(0x0966 + int(char)) for char in plain)


def _math(random: Random, plain: str) -> str:
    return "".join(chr(0x1D7CE + int(char)) for char in plain)


def _keycaps(random: Random, plain: str) -> str:
    return "".join(f"{char}\ufe0f\u20e3" for char in plain)


def _thousands(random: Random, plain: str) -> str:
    return f"{int(plain):,}"


def _broken(random: Random, plain: str) -> str:
    at = _at(random, plain)
    return f"{plain[:at]}\n{plain[at:]}"


def _unit(random: Random, plain: str) -> str:
    return random.choice(("${}", "{}ms", "{} %", "~{}", "{}px", "#{}", "v{}", "{}-day")).format(plain)


def _alike(random: Random, plain: str) -> str:
    return plain.replace("/", random.choice("∕⁄⧸／")).replace(".", random.choice("․．｡"))


def _escaped(random: Random, plain: str) -> str:
    return plain.replace("/", "\\/").replace(".", "\\.").replace("_", "\\_")


def _windows(random: Random, plain: str) -> str:
    return plain.replace("/", random.choice(("\\", "\\\\")))


def _percent(random: Random, plain: str) -> str:
    return quote(plain, safe="") if "/" in plain else "".join(f"%{ord(char):02x}" for char in plain)


def _place(random: Random, plain: str) -> str:
    return f"{plain}:119"


_READ_AS = str.maketrans({**dict.fromkeys("∕⁄⧸", "/"), **dict.fromkeys("․｡。", "."), **dict.fromkeys("`*~", None)})


def seen(text: str) -> str:
    """Returns a text as a reader sees it: no decoration, nothing invisible, plain digits and slashes."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", html.unescape(html.unescape(text)))
    text = re.sub(r"<!--.*?-->|</?[a-z]{1,6}>", "", text, flags=re.DOTALL)
    text = unquote(unicodedata.normalize("NFKC", text), errors="replace").translate(_READ_AS)
    text = "".join(char for char in text if char == "\n" or unicodedata.category(char) not in ("Cf", "Cc", "Mn", "Me"))
    text = "".join(str(unicodedata.digit(char)) if char.isdigit() else char for char in text)
    text = re.sub(r"\\+([/._])", r"\1", text)
    text = re.sub(r"\\+", "/", text)
    text = re.sub(r"(?<=\d),(?=\d)", "", text)
    return re.sub(r"(?<=\d)[-\s]*\n\s*(?=\d)", "", text).lower()


def reaches(plain: str, text: str) -> bool:
    """Returns whether a reader finds an invention in a text."""
    return plain.lower() in seen(text) or plain in text
