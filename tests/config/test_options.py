"""Editors and type checkers know the settings that can be passed as keyword arguments."""

from __future__ import annotations

from typing import get_type_hints

from tools.make_settings_types import FILE, written

from recto.config import options
from recto.config.settings import RecallSettings, Settings, WindowSettings


def test_every_setting_can_be_passed_by_name():
    named = {"store", "session", "model", "tenant"}
    assert set(options.SettingsOptions.__annotations__) == set(Settings.__dataclass_fields__) - named
    assert set(options.WindowOptions.__annotations__) == set(WindowSettings.__dataclass_fields__)
    assert set(options.RecallOptions.__annotations__) == set(RecallSettings.__dataclass_fields__)


def test_the_types_are_those_of_the_settings():
    assert get_type_hints(options.RecallOptions)["enabled"] is bool
    assert get_type_hints(options.SettingsOptions)["window"] is options.WindowOptions
    assert FILE.read_text(encoding="utf-8") == written()
