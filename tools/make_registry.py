"""Writes src/recto/tokens/model_registry.json anew from two packages' data.

    python tools/make_registry.py --litellm model_prices_and_context_window_backup.json --litellm-version 1.108.4

Needs `genai-prices` to be importable and litellm's packaged price table as a file; downloads nothing. Both are needed
only here. Facts are taken over (limits, prices), no text. Where the two differ on a window by more than rounding, the
smaller one is kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "recto" / "tokens" / "model_registry.json"

PROVIDERS = {  # litellm's name: ours
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "xai": "xai",
    "dashscope": "alibaba",
    "moonshot": "moonshot",
    "zai": "zai",
    "meta": "meta",
}
GENAI = {"google": "google", "moonshotai": "moonshot", "x-ai": "xai"}

LEFT_OUT = re.compile(
    r"audio|realtime|tts|transcribe|whisper|image|embed|moderation|container|lyria|robotics|live|ocr|voxtral|"
    r"search|computer-use|computer_use|banana|guard|davinci|curie|ada$|babbage|learnlm|voice|vibe|daybreak|rosalind|"
    r"omni|sam-|^ft|claude-v1|claude-2|gemini-exp|:|contributor|experimental|gv2|beta|cyber|leanstral|^chat-latest|"
    r"gemini-pro$|gemini-flash-1|gemini-pro-1|gemini-1\.0|gemini-gemma|^zai-|-customtools|gpt-3\.5-turbo-(0613|instruct)"
)

OUTPUTS = (  # the longest answer, where neither source tells it
    (r"claude-3-7|claude-sonnet-4-0", 64000),
    (r"claude-3-5", 8192),
    (r"claude-3", 4096),
    (r"claude-opus-4-[01]", 32000),
    (r"claude-.*5", 128000),
    (r"gemini-[12]\.[05]-(pro|flash)", 8192),
    (r"gemini-3|gemini-4", 65536),
    (r"gpt-oss", 32768),
    (r"gpt-6", 128000),
    (r"o1-mini", 65536),
    (r"o1-preview", 32768),
    (r"chatgpt-4o", 16384),
    (r"codex-mini", 100000),
    (r"kimi", 16384),
)

WINDOWS = {"gemini-3-pro-preview": 1048576}
"""Windows neither source tells."""

ALIASES = {  # the names that are left when the date goes, and what resellers call a model
    "claude-opus-4": "claude-opus-4-0",
    "claude-sonnet-4": "claude-sonnet-4-0",
    "deepseek-v4.1-flash": "deepseek-flash",  # https://api-docs.deepseek.com/quick_start/pricing
}

OPEN_WEIGHTS = {  # what the models' own configuration files say, for those served under many names
    "llama-3-8b": 8192,
    "llama-3-70b": 8192,
    "llama-3.1-8b": 131072,
    "llama-3.1-70b": 131072,
    "llama-3.1-405b": 131072,
    "llama-3.2-1b": 131072,
    "llama-3.2-3b": 131072,
    "llama-3.3-70b": 131072,
    "qwen2.5-7b": 32768,
    "qwen2.5-14b": 32768,
    "qwen2.5-32b": 32768,
    "qwen2.5-72b": 32768,
    "qwen2.5-coder-32b": 32768,
    "qwen3-8b": 40960,
    "qwen3-14b": 40960,
    "qwen3-32b": 40960,
    "qwen3-235b-a22b": 40960,
    "phi-4": 16384,
    "mistral-7b-v0.3": 32768,
    "mixtral-8x7b": 32768,
    "mixtral-8x22b": 65536,
}

TOKENIZERS = (
    (r"^claude-(opus|sonnet|fable|mythos|haiku)-(5|4-[789]|preview)", "claude-4.7"),
    (r"^claude-mythos", "claude-4.7"),
    (r"^claude", "claude"),
    (r"^gpt-oss", "gpt-oss"),
    (r"^gpt-(4|4-.*|3\.5.*)$", "cl100k"),
    (r"^(gpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|chatgpt-4o|o[134]|codex-mini)", "o200k"),
    (r"^(gpt-|chat-latest)", "openai-next"),
    (r"^gemini-(1\.5|2\.|3-|3\.1|3\.5)", "gemini"),
    (r"^gemini", "gemini-next"),
    (r"^gemma-2", "gemma2"),
    (r"^gemma-3", "gemma3"),
    (r"^gemma-4", "gemma4"),
    (r"^deepseek-(chat|reasoner|v3|r1|coder)", "deepseek-v3"),
    (r"^deepseek", "deepseek-next"),
    (r"^(qwen2|qwen3-(\d+b|next|vl-\d|coder-\d))", "qwen3"),
    (r"^(qwen|qwq)", "qwen-next"),
    (r"^(meta-)?llama-?3", "llama3"),
    (r"^(mistral-7b-v0.3|mixtral-8x22b)", "mistral-v2"),
    (r"^mixtral-8x7b", "mistral-v1"),
    (r"^(open-mistral-nemo|mistral-nemo|pixtral|mistral-large-2411)", "mistral-v3"),
    (r"mistral|ministral|codestral|devstral|magistral|mixtral", "mistral-next"),
    (r"^kimi-k2-", "kimi-k2"),
    (r"^kimi-k3$", "kimi-k3"),
    (r"^kimi", "kimi-next"),
    (r"^glm-4(-|\.5)", "glm4"),
    (r"^glm", "glm-next"),
    (r"^phi-4", "phi4"),
)

IMAGES = (
    (r"^gpt-4o-mini", "openai-tiles-mini"),
    (r"^(gpt-4o|gpt-4\.1$|gpt-4\.1-2|gpt-4\.5|gpt-4-turbo|chatgpt-4o)", "openai-tiles"),
    (r"^gpt-4\.1-mini", "openai-patches-162"),
    (r"^gpt-4\.1-nano", "openai-patches-246"),
    (r"^(o4-mini|codex-mini)", "openai-patches-172"),
    (r"^o[13]", "openai-tiles-o"),
    (r"^gpt-5-mini", "openai-patches-162"),
    (r"^gpt-5-nano", "openai-patches-246"),
    (r"^gpt-5(-|$|\.1)", "openai-tiles-5"),
    (r"^gpt-[5-9].*(mini|nano|luna)", "openai-patches-small"),
    (r"^gpt-5", "openai-patches-large"),
    (r"^gpt-6", "openai-patches-small"),
    (r"^claude-(opus|sonnet|fable|mythos|haiku)-(5|4-[789]|preview)", "claude-4.7"),
    (r"^claude", "claude"),
    (r"^gemini-[12]", "gemini"),
    (r"^gemini", "gemini-3"),
)

CACHE_MINIMUM = (
    (r"^claude-(opus|fable|mythos|haiku|sonnet)-5-5|^claude-(opus-5|fable|mythos)", 512),
    (r"^claude-(opus-4-8|sonnet-5|sonnet-4|opus-4-[01]|3)", 1024),
    (r"^claude-opus-4-7", 2048),
    (r"^claude", 4096),
    (r"^(gpt|o[134]|chatgpt)", 1024),
    (r"^gemini.*pro", 4096),
    (r"^gemini", 1024),
)


def main() -> None:
    """Reads both sources, joins them, writes the registry."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--litellm", type=Path, required=True)
    arguments.add_argument("--litellm-version", required=True)
    arguments.add_argument("--date", default=datetime.datetime.now(tz=datetime.UTC).date().isoformat())
    given = arguments.parse_args()
    models = from_genai_prices()
    for name, facts in from_litellm(json.loads(given.litellm.read_text(encoding="utf-8"))).items():
        models[name] = joined(models.get(name) or models.get(undated(name), {}), facts)
    models |= {undated(name): facts for name, facts in models.items() if undated(name) not in models}
    for name, window in WINDOWS.items():
        models[name]["window"] = window
    models |= open_weights()
    cards = {name: card for name, facts in sorted(models.items()) if (card := finished(name, facts))}
    cards |= {name: cards[full] for name, full in ALIASES.items()}
    cards = {name: card for name, card in sorted(cards.items()) if not is_repeated(name, card, cards)}
    provenance = {
        "about": "Limits, tokenizer families and list prices of models. Facts as published by the vendors.",
        "sources": [
            f"genai-prices {version('genai-prices')} (MIT), its packaged data",
            f"litellm {given.litellm_version} (MIT), its packaged model price table",
            "vendors' documentation for cache minimums, image formulas, tokenizer families and open weights",
        ],
        "made by": "tools/make_registry.py",
        "prices": "picodollars per token: 2500000 is 2.50 dollars per million tokens",
        "date": given.date,
    }
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(card)}" for name, card in cards.items())
    head = json.dumps(provenance, indent=2)[:-2]
    TARGET.write_text(f'{head},\n  "models": {{\n{lines}\n  }}\n}}\n', encoding="utf-8")
    print(f"{len(cards)} models written to {TARGET.name}")  # noqa: T201


def open_weights() -> dict[str, dict[str, Any]]:
    """Cards of open models, under the names the usual servers and clouds give them."""
    found = {}
    for name, window in OPEN_WEIGHTS.items():
        names = {name, f"{name}-instruct"}
        if name.startswith("llama"):
            bare = name.replace("llama-", "llama", 1)
            names |= {f"meta-{name}-instruct", f"{bare}-instruct", bare, bare.replace(".", "-") + "-instruct"}
        for each in names:
            found[each] = {"provider": "open", "window": window, "max_output": min(8192, window // 2)}
    return found


def from_genai_prices() -> dict[str, dict[str, Any]]:
    """Windows and prices of the vendors' own models."""
    from genai_prices import data  # type: ignore[import-not-found]  # noqa: PLC0415

    found = {}
    ours = set(PROVIDERS.values())
    for provider in data.providers:
        provider_name = GENAI.get(provider.id, provider.id)
        if provider_name not in ours:
            continue
        for model in provider.models:
            if provider_name == "google" and model.id.startswith("claude"):
                continue
            prices = model.prices if not isinstance(model.prices, list) else model.prices[-1].prices
            facts: dict[str, Any] = {"provider": provider_name, "window": model.context_window}
            keys = {"input": "input_mtok", "output": "output_mtok", "cache_read": "cache_read_mtok"}
            for ours_key, theirs in {**keys, "cache_write": "cache_write_mtok"}.items():
                price = getattr(prices, theirs, None)
                tiers = getattr(price, "tiers", None)
                base = getattr(price, "base", price)
                if base is not None:
                    facts[f"{ours_key}_price"] = int(Decimal(base) * 1_000_000)
                if tiers and ours_key != "cache_write":
                    facts["long_from"] = tiers[0].start
                    facts[f"long_{ours_key}_price"] = int(Decimal(tiers[0].price) * 1_000_000)
            found[model.id.lower()] = facts
    return found


def from_litellm(table: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Limits and prices of the vendors' own models."""
    found: dict[str, dict[str, Any]] = {}
    for key, entry in table.items():
        provider = PROVIDERS.get(entry.get("litellm_provider", ""))
        if provider is None or entry.get("mode") not in ("chat", "responses") or not entry.get("max_input_tokens"):
            continue
        name = key.rsplit("/", 1)[-1].lower()
        if provider == "alibaba" and not name.startswith(("qwen", "qwq")):
            continue
        facts = {
            "provider": provider,
            "max_input": entry["max_input_tokens"],
            "max_output": entry.get("max_output_tokens"),
            "cache_minimum": entry.get("prompt_cache_min_tokens"),
        }
        keys = {"input_price": "input_cost_per_token", "output_price": "output_cost_per_token"}
        keys |= {
            "cache_read_price": "cache_read_input_token_cost",
            "cache_write_price": "cache_creation_input_token_cost",
        }
        for ours_key, theirs in keys.items():
            if entry.get(theirs):
                facts[ours_key] = picodollars(entry[theirs])
            above = [k for k in entry if re.fullmatch(re.escape(theirs) + r"_above_\d+k_tokens", k)]
            if above and ours_key != "cache_write_price":
                facts["long_from"] = int(re.search(r"above_(\d+)k", above[0])[1]) * 1000  # type: ignore[index]
                facts[f"long_{ours_key}"] = picodollars(entry[above[0]])
        if name not in found or "/" not in key:
            found[name] = facts
    return found


def picodollars(dollars: float) -> int:
    """A price per token, as whole picodollars."""
    return int((Decimal(repr(dollars)) * 10**12).to_integral_value())


def joined(genai: dict[str, Any], litellm: dict[str, Any]) -> dict[str, Any]:
    """One set of facts from two: litellm's, completed by genai-prices'; the smaller window where they disagree."""
    facts = {**genai, **{key: value for key, value in litellm.items() if value is not None}}
    told, most_in, most_out = genai.get("window"), litellm["max_input"], litellm.get("max_output") or 0
    if litellm["provider"] == "openai" and most_in in (272_000, 922_000):
        facts["window"] = most_in + most_out  # here the table leaves out the answer's share
    elif told and abs(told - most_in) > told // 20 and litellm["provider"] != "deepseek":  # genai-prices lags there
        facts["window"] = min(told, most_in)
    else:
        facts["window"] = most_in
    return facts


def finished(name: str, facts: dict[str, Any]) -> dict[str, Any] | None:
    """A card's fields in order, or nothing for what is not a chat model or has no known window."""
    if LEFT_OUT.search(name) and facts["provider"] != "open":
        return None
    window = facts.get("window")
    if not window:
        return None
    most_out = facts.get("max_output") or matched(OUTPUTS, name)
    most_in = min(facts.get("max_input") or window, window)
    if facts["provider"] == "openai" and re.match(r"gpt-[5-9]", name) and window >= 400_000 and most_out:
        most_in = min(most_in, window - most_out)  # the answer's share is kept back, whatever a table says
    card = {"provider": facts["provider"], "window": window, "max_input": most_in, "max_output": most_out}
    card["tokenizer"] = matched(TOKENIZERS, name)
    card["images"] = matched(IMAGES, name)
    prices = ("input_price", "output_price", "cache_read_price", "cache_write_price", "long_from")
    for key in (*prices, "long_input_price", "long_output_price", "long_cache_read_price"):
        card[key] = facts.get(key)
    if (facts.get("long_input_price") or 0) <= (facts.get("input_price") or 10**12):
        card |= dict.fromkeys(("long_from", "long_input_price", "long_output_price", "long_cache_read_price"))
    least = facts.get("cache_minimum") or matched(CACHE_MINIMUM, name)
    card["cache_minimum"] = least and int(least)
    if most_out and most_out > window:
        card["max_output"] = window
    return {key: value for key, value in card.items() if value is not None}


def matched(table: tuple[tuple[str, Any], ...], name: str) -> Any:  # noqa: ANN401  whatever the table holds
    """The value of the first pattern that fits."""
    return next((value for pattern, value in table if re.search(pattern, name)), None)


def is_repeated(name: str, card: dict[str, Any], cards: dict[str, dict[str, Any]]) -> bool:
    """Whether a dated name says the same as the name without its date, which it is looked up by anyway."""
    return undated(name) != name and cards.get(undated(name)) == card


def undated(name: str) -> str:
    """The name without its date."""
    return re.sub(r"-(20\d\d-\d\d-\d\d|20\d{6}|latest)$", "", name)


if __name__ == "__main__":
    main()
