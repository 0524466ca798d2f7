"""Edits of YAML files of other programs: one value changes, and every other line stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from recto.config.yaml_edits import replaced_scalar, with_item, with_scalar, without_item
from recto.errors import InputError

FILE = Path("config.yaml")
TEXTS = [
    "",
    "# nothing\n",
    "model: gpt-4o",
    "context:\n",
    "context:\n  engine: compressor  # the usual one\n\nplugins:\n  enabled: []\n",
    "context:\n    other: 1\n    # a note\nplugins:\n  disabled: [x]\n  enabled:\n  - a\n  - b\nlast: [1, 2]\n",
    "plugins:\n  enabled:\n    - a   # mine\n    - b\n  disabled: []\ncontext:\n  engine: lcm\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_value_and_an_item_come_in_and_the_rest_stays(text):
    edited = with_item(with_scalar(text, "context", "engine", "recto", FILE), "plugins", "enabled", "recto", FILE)
    before, after = yaml.safe_load(text) or {}, yaml.safe_load(edited)
    assert after["context"] == {**(before.get("context") or {}), "engine": "recto"}
    assert after["plugins"]["enabled"] == [*(before.get("plugins", {}).get("enabled") or []), "recto"]
    untouched = [line for line in text.splitlines() if not line.lstrip().startswith(("engine", "enabled", "-"))]
    assert set(untouched) <= set(edited.splitlines())
    assert with_item(edited, "plugins", "enabled", "recto", FILE) == edited
    restored = without_item(edited, "plugins", "enabled", "recto", FILE)
    restored = replaced_scalar(restored, "context", "engine", "recto", "compressor", FILE)
    assert yaml.safe_load(restored)["context"]["engine"] == "compressor"
    assert "recto" not in restored


@pytest.mark.parametrize(
    "text",
    ["- a\n", "context: {engine: x}\n", "context: 3\n", "a: [\n", "plugins:\n  enabled: 3\n", "context: &c\n  a: 1\n"],
)
def test_a_file_in_another_style_is_refused(text):
    with pytest.raises(InputError, match=r"config\.yaml"):
        with_item(with_scalar(text, "context", "engine", "recto", FILE), "plugins", "enabled", "recto", FILE)
