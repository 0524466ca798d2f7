"""`recto models update` and `show`: imports published model lists from a file or URL and names each source."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from tests.gateway.upstream import serving

from recto.config.published_models import registry, stored_list
from recto.errors import InputError
from recto.tokens.published_list import read_published

RECTO = str(Path(sys.executable).parent / "recto")
NAME = "made-this-morning-1"
MODELS_DEV = {
    "reseller": {
        "id": "reseller",
        "models": {
            f"vendor/{NAME}": {"limit": {"context": 90_000, "output": 9_000}, "cost": {"input": 9, "output": 9}}
        },
    },
    "openai": {
        "id": "openai",
        "models": {
            NAME: {
                "limit": {"context": 300_000, "input": 200_000, "output": 64_000},
                "cost": {"input": 1.25, "output": 10, "cache_read": 0.125},
            },
            "text-embedding": {"cost": {"input": 0.1}},
        },
    },
}
OPENROUTER = {
    "data": [
        {
            "id": f"openai/{NAME}",
            "context_length": 400_000,
            "top_provider": {"context_length": 300_000, "max_completion_tokens": 64_000},
            "pricing": {"prompt": "0.00000125", "completion": "0.00001", "input_cache_read": "0.000000125"},
        }
    ]
}
LITELLM = {
    "sample_spec": {"max_input_tokens": "max input tokens", "litellm_provider": "one of", "mode": "one of"},
    NAME: {
        "litellm_provider": "openai",
        "mode": "chat",
        "max_input_tokens": 300_000,
        "max_output_tokens": 64_000,
        "input_cost_per_token": 1.25e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-07,
    },
    "dall-e": {"litellm_provider": "openai", "mode": "image_generation", "max_input_tokens": 4_000},
}
FIGURES = {
    "window": 300_000,
    "max_output": 64_000,
    "input_price": 1_250_000,
    "output_price": 10_000_000,
    "cache_read_price": 125_000,
}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([RECTO, "models", *arguments], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def write(folder: Path, body: object) -> str:
    file = folder / "list.json"
    file.write_text(json.dumps(body))
    return str(file)


@pytest.mark.parametrize("body", [MODELS_DEV, OPENROUTER, LITELLM], ids=["models.dev", "OpenRouter", "litellm"])
def test_common_list_formats_are_detected_by_their_keys(body):
    fields = read_published(body).models[NAME]
    assert {key: fields[key] for key in FIGURES} == FIGURES
    assert list(read_published(body).models) == [NAME]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"limit": {"context": 12}}, "window"),
        ({"limit": {"context": 10**12}}, "window"),
        ({"limit": {"context": "many"}}, "window"),
        ({"limit": {"context": True}}, "window"),
        ({"limit": {"context": 8_000, "output": 10**6}}, "output"),
        ({"limit": {"context": 8_000, "output": -1}}, "max_output"),
        ({"limit": {"context": 8_000}, "cost": {"input": -1}}, "price"),
        ({"limit": {"context": 8_000}, "cost": {"input": "free"}}, "price"),
        ({"limit": {"context": 8_000}, "cost": {"input": 10**9}}, "price"),
    ],
)
def test_an_invalid_entry_is_rejected_and_the_others_are_used(entry, why):
    found = read_published({"some": {"models": {"odd": entry, "plain": {"limit": {"context": 8_000}}}}})
    assert list(found.models) == ["plain"]
    assert why in found.refused["odd"]


@pytest.mark.parametrize("body", [[], {}, {"data": []}, {"a": {"models": {}}}, "x", {"data": [{"id": "x"}]}])
def test_a_list_of_an_unknown_format_is_rejected(body):
    with pytest.raises(InputError):
        read_published(body)


def test_several_resellers_yield_the_lowest_limits_and_the_common_prices():
    def offer(window, price):
        return {"models": {"m": {"limit": {"context": window}, "cost": {"input": price, "output": 4}}}}

    fields = read_published({"one": offer(100_000, 2), "two": offer(64_000, 3)}).models["m"]
    assert fields == {"window": 64_000, "output_price": 4_000_000}


def test_a_list_from_a_file_is_imported_and_shown_with_its_source(home):
    assert json.loads(run("show", NAME, "--json").stdout)["known"] is False
    output = run("update", write(home, MODELS_DEV)).stdout
    assert "1 models: 1 new, 0 changed, 0 gone" in output
    shown = json.loads(run("show", f"openai/{NAME}", "--json").stdout)
    assert shown["known"] is True
    assert shown["window"]["value"] == 300_000
    assert "list.json" in shown["window"]["from"]
    assert "list.json" in shown["input_price"]["from"]
    assert registry({}).card(NAME).max_input == 200_000
    assert registry({NAME: {"window": 50_000}}).card(NAME).source["window"] == "configuration"
    assert json.loads(run("show", "gpt-4o", "--json").stdout)["window"]["from"].startswith("registry")


def test_an_update_reports_its_changes(home):
    run("update", write(home, MODELS_DEV))
    other = {"openai": {"models": {NAME: {"limit": {"context": 500_000}}, "odd": {"limit": {"context": 1}}}}}
    output = " ".join(run("update", write(home, other)).stdout.split())
    assert "0 new, 1 changed, 0 gone, 1 refused" in output
    assert "window 300000 -> 500000" in output
    assert "refused odd" in output


def test_a_rejected_list_changes_nothing(home):
    run("update", write(home, MODELS_DEV))
    run("update", write(home, {"odd": 1}), code=3)
    run("update", str(home / "missing.json"), code=3)
    assert list(stored_list().models) == [NAME]


def test_a_damaged_stored_list_is_ignored(home):
    run("update", write(home, MODELS_DEV))
    (home / "data" / "recto" / "models.json").write_text('{"models": {"a": 3')
    assert registry({}).card("gpt-4o").window == 128_000
    assert json.loads(run("show", NAME, "--json").stdout)["known"] is False


def test_a_list_is_fetched_from_localhost_and_redirects_are_not_followed(home):
    routes = [
        Route("/api.json", lambda request: JSONResponse(OPENROUTER)),
        Route("/elsewhere", lambda request: RedirectResponse("/api.json")),
        Route("/huge", lambda request: Response(b" " * (33 * 1024 * 1024))),
    ]
    with serving(Starlette(routes=routes)) as url:
        assert "1 models" in run("update", f"{url}/api.json").stdout
        assert f"{url}/api.json" in run("show", NAME, "--json").stdout
        assert "redirects are not followed" in run("update", f"{url}/elsewhere", code=3).stderr
        run("update", f"{url}/huge", code=3)


@pytest.mark.parametrize("url", ["http://models.example.com/api.json", "ftp://127.0.0.1/x", "https://a:b@c.example/x"])
def test_an_unsafe_url_is_rejected(home, url):
    assert "address" in run("update", url, code=3).stderr
