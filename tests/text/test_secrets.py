"""Known forms of keys are found in whatever they are wrapped, and little else is."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.text.secrets import find_secrets, mask_secrets, may_hold_secrets
from recto.text.terms import distinct_chunks

SOURCE = Path(__file__).parent.parent.parent / "src" / "recto"
ALNUM, HEX, WORD = string.ascii_letters + string.digits, "0123456789abcdef", string.ascii_letters + string.digits + "_-"


def made(seed: int, alphabet: str, length: int) -> str:
    """Made at random when the test runs, so that no file holds anything that looks like a key."""
    found = "".join(random.Random(seed).choices(alphabet, k=length - 3))
    return "a" + found[: len(found) // 2] + "7" + found[len(found) // 2 :] + ("B" if "B" in alphabet else "b")


def forms(seed: int) -> dict[str, str]:
    def of(alphabet: str, length: int) -> str:
        return made(seed, alphabet, length)

    upper = "".join(random.Random(seed).choices(string.ascii_uppercase + "234567", k=16))
    return {
        "anthropic": "sk-ant-" + "api03-" + of(WORD, 90),
        "openai": "sk-" + of(ALNUM, 48),
        "openai project": "sk-" + "proj-" + of(WORD, 120),
        "recto_key": "rk" + "-" + of(WORD, 43),
        "openrouter": "sk-or-" + "v1-" + of(HEX, 64),
        "aws_access_key": "AKI" + "A" + upper,
        "aws temporary": "ASI" + "A" + upper,
        "gcp_api_key": "AIz" + "a" + of(ALNUM, 35),
        "gcp_access_token": "ya29" + "." + of(WORD, 60),
        "gcp_client_secret": "GOCSPX" + "-" + of(ALNUM, 28),
        "azure_storage_key": "AccountKey" + "=" + of(ALNUM, 86) + "==",
        "azure_client_secret": "abc" + "8Q" + "~" + of(ALNUM, 34),
        "github_token": "gh" + "p_" + of(ALNUM, 36),
        "github server": "gh" + "s_" + of(ALNUM, 36),
        "github oauth": "gh" + "o_" + of(ALNUM, 36),
        "github fine": "github" + "_pat_" + of(ALNUM, 82),
        "gitlab_token": "gl" + "pat-" + of(ALNUM, 20),
        "slack_token": "xox" + "b-1234567890-" + of(ALNUM, 24),
        "stripe_key": "sk" + "_live_" + of(ALNUM, 24),
        "stripe restricted": "rk" + "_test_" + of(ALNUM, 24),
        "twilio_key": "S" + "K" + of(HEX, 32),
        "sendgrid_key": "S" + "G." + of(ALNUM, 22) + "." + of(ALNUM, 43),
        "npm_token": "np" + "m_" + of(ALNUM, 36),
        "pypi_token": "pypi" + "-AgEIcHlwaS5vcmc" + of(WORD, 80),
        "hugging_face_token": "h" + "f_" + of(ALNUM, 34),
        "jwt": "ey" + "J" + of(ALNUM, 30) + ".ey" + "J" + of(ALNUM, 60) + "." + of(WORD, 43),
        "telegram_token": "123456789" + ":A" + "A" + of(ALNUM, 33),
        "discord_token": "M" + of(ALNUM, 23) + "." + of(ALNUM, 6) + "." + of(ALNUM, 38),
        "digitalocean_token": "dop" + "_v1_" + of(HEX, 64),
        "databricks_token": "dap" + "i" + of(HEX, 32),
        "shopify_token": "shp" + "at_" + of(HEX, 32),
        "square_token": "sq0" + "atp-" + of(ALNUM, 22),
        "mailgun_key": "ke" + "y-" + of(HEX, 32),
        "mailchimp_key": of(HEX, 32) + "-us" + "12",
        "linear_key": "lin" + "_api_" + of(ALNUM, 40),
        "notion_token": "nt" + "n_" + of(ALNUM, 46),
        "groq_key": "gs" + "k_" + of(ALNUM, 52),
        "vault_token": "hv" + "s." + of(ALNUM, 90),
        "docker_token": "dckr" + "_pat_" + of(ALNUM, 27),
        "private_key": "-----BEGIN RSA PRIVATE " + "KEY-----\n" + of(ALNUM, 200) + "\n-----END RSA PRIVATE KEY-----",
    }


WRAPPINGS = [
    "{}",
    "export KEY={}\n",
    '{{"key": "{}"}}',
    'x = "{}"  # note',
    "use `{}` please.",
    "line one\\n{}\\nline",
    "({}),",
    "看{}。",
]


@pytest.mark.parametrize("name", forms(1))
def test_every_known_form_is_found_however_it_is_wrapped(name):
    for seed in range(8):
        secret = forms(seed)[name]
        for wrapping in WRAPPINGS:
            text = wrapping.format(secret)
            assert find_secrets(text), text
            assert may_hold_secrets(text, " ".join(distinct_chunks(text))), text
            assert secret[-12:] not in mask_secrets(text)
            assert secret[len(secret) // 2 :] not in mask_secrets(text)


def test_the_note_says_which_form_it_was():
    assert mask_secrets(f"key {forms(3)['github_token']} here") == "key [secret left out: github_token] here"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password=hunter2!x", "password=[secret left out: password]"),
        ("DB_PASSWORD: 'tr0ub4dor&3'", "DB_PASSWORD: '[secret left out: password]'"),
        ('{"api_key": "zx81-q8k2-77aa"}', '{"api_key": "[secret left out: named_key]"}'),
        ('"client_secret\\": \\"q8k277aaZZ\\"', '"client_secret\\": \\"[secret left out: named_key]\\"'),
        ("my password is swordfish", "my password is [secret left out: password]"),
        ("The wifi password is tulips77.", "The wifi password is [secret left out: password]."),
        ("mein Passwort ist Geheim99", "mein Passwort ist [secret left out: password]"),
        ("我的密码是abc12345", "我的密码是[secret left out: password]"),
        ("postgres://joe:s3cr3t@db.example/x", "postgres://joe:[secret left out: url_password]@db.example/x"),
        ("Authorization: Bearer abcdefghij1234567890", "Authorization: Bearer [secret left out: authorization]"),
        (
            "AWS_SECRET_ACCESS_KEY=" + "wJalrXUtnFEMI/K7MDENG" + "/bPxRfiCYzzAbcd1234",
            "AWS_SECRET_ACCESS_KEY=[secret left out: aws_secret_key]",
        ),
    ],
)
def test_what_is_said_to_be_secret_is_left_out(text, left):
    assert mask_secrets(text) == left
    assert may_hold_secrets(text, " ".join(distinct_chunks(text)))


@pytest.mark.parametrize("text", ["postgres://joe:p%40s5!@db", "sig=" + "a%2B7" * 12, "whsec_" + "a7=" * 10])
def test_a_secret_with_characters_between_words_is_not_overlooked(text):
    assert find_secrets(text)
    assert may_hold_secrets(text, " ".join(distinct_chunks(text)))


def test_a_text_without_anything_like_a_secret_need_not_be_searched():
    text = "The tests of api/routes.py are green, and the tests of queue.py are green too. " * 20
    assert not may_hold_secrets(text, " ".join(distinct_chunks(text)))
    assert len(distinct_chunks(text)) < len(text) / 10


def test_a_secret_inside_another_is_left_out_once():
    key = forms(5)["github_token"]
    assert mask_secrets(f"password={key}!x, ok") == "password=[secret left out: password], ok"
    assert len(find_secrets(f"https://joe:{key}@example.org")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "password: str",
        'password=os.environ["DB_PASSWORD"]',
        "api_key=settings.api_key",
        "token = get_token(user)",
        "the password is required",
        "our db password is incorrect",
        "Forgot your password?",
        'api_key="your-api-key-here"',
        "password=${DB_PASSWORD}",
        "secret = None",
        'password: "Required"',
        'api_key="YOUR-Key-1234!"',
        "password=xxxx-1234-AB",
        "max_tokens: 4096",
        "commit 3f2504e04f8911d39a0c0305e82c3301aabbccdd",
        "sk-learn-is-a-very-long-kebab-name-indeed",
        "https://example.org:8080/a@b",
        "postgres://user:password@localhost/db",
        'url = f"postgres://{p.user}:{p.password}@{p.host}/db"',
        "psql postgres://app:$DB_PASS_2@db/x",
        "see src/recto/text/secrets.py:120",
        "-----BEGIN PUBLIC KEY-----",
        "the basic idea of internationalization2 is simple",
        "",
    ],
)
def test_what_only_looks_like_it_stays(text):
    assert mask_secrets(text) == text


def test_our_own_source_has_no_secrets():
    source = [file.read_text() for file in SOURCE.rglob("*.py")]
    found = [span for text in source for span in find_secrets(text)]
    assert len(found) <= sum(map(len, source)) / 100_000


@given(st.text() | st.text(alphabet=st.sampled_from("sk-ant_ghpAKIA:=/ password0123.\"'"), max_size=300))
def test_places_are_in_order_and_inside_the_text(text):
    at = 0
    for start, end, name in find_secrets(text):
        assert at <= start < end <= len(text)
        assert name
        at = end
        assert may_hold_secrets(text, " ".join(distinct_chunks(text)))
    assert isinstance(mask_secrets(text), str)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "password=",
        "password is ",
        "eyJ",
        "://a:",
        "AKIA",
        "PRIVATE KEY",
        "M",
        "Bearer ",
        "api_key:",
        "a.aaaaaa.",
    ],
)
def test_a_hostile_text_takes_linear_time(piece):
    find_secrets(piece * (300_000 // len(piece)))
