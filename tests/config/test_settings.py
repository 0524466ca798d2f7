"""Settings come from one tree, and a mistake in them is named."""

from __future__ import annotations

import pytest

from recto.config import Settings, load
from recto.config.modes import floor_share, make_budget
from recto.errors import SettingsError
from recto.tokens.model_card import ModelCard


def test_defaults_need_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(environ={}) == Settings()


def test_arguments_win_over_the_environment_and_the_environment_over_the_file(tmp_path):
    file = tmp_path / "recto.yaml"
    file.write_text("store: from-file\nmodel: from-file\nsession: from-file\nlimits:\n  message_bytes: 5\n")
    environ = {
        "RECTO_MODEL": "from-environment",
        "RECTO_SESSION": "from-environment",
        "RECTO_LIMITS__LOCK_SECONDS": "2",
    }
    settings = load(path=file, environ=environ, arguments={"session": "from-argument", "store": None})
    assert (settings.store, settings.model, settings.session) == ("from-file", "from-environment", "from-argument")
    assert (settings.limits.message_bytes, settings.limits.lock_seconds) == (5, 2.0)


def test_the_file_can_be_named_in_the_environment(tmp_path):
    (tmp_path / "mine.yaml").write_text("model: gpt-4o")
    assert load(environ={"RECTO_CONFIG": str(tmp_path / "mine.yaml")}).model == "gpt-4o"


@pytest.mark.parametrize(
    ("given", "key", "nearest"),
    [
        ({"stor": "x"}, "stor", "store"),
        ({"limits": {"mesage_bytes": 1}}, "limits.mesage_bytes", "limits.message_bytes"),
        ({"zzzzzz": 1}, "zzzzzz", None),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_known_one_named(given, key, nearest):
    with pytest.raises(SettingsError) as caught:
        load(environ={}, arguments=given)
    assert (caught.value.key, caught.value.nearest) == (key, nearest)


def test_an_unknown_variable_is_refused_too():
    with pytest.raises(SettingsError, match="Did you mean 'model'"):
        load(environ={"RECTO_MODLE": "gpt-4o"})


@pytest.mark.parametrize(
    "given",
    [
        {"store": 5},
        {"limits": 3},
        {"limits": {"message_bytes": True}},
        {"limits": {"message_bytes": 0}},
        {"limits": {"lock_seconds": -1}},
        {"models": ["a"]},
        {"models": {1: {}}},
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(given):
    with pytest.raises(SettingsError):
        load(environ={}, arguments=given)


@pytest.mark.parametrize("text", ["a: [", "- just\n- a list", "1: 2"])
def test_a_file_that_is_not_settings_is_refused(tmp_path, text):
    file = tmp_path / "recto.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError):
        load(path=file, environ={})


def test_a_named_file_must_exist(tmp_path):
    with pytest.raises(SettingsError, match="no file"):
        load(path=tmp_path / "nothing.yaml", environ={})


def test_a_yaml_file_cannot_make_objects(tmp_path):
    file = tmp_path / "recto.yaml"
    file.write_text("store: !!python/object/apply:os.getcwd []")
    with pytest.raises(SettingsError):
        load(path=file, environ={})


@pytest.mark.parametrize(
    ("size", "window", "floor"),
    [
        (8_000, {}, 0.95),
        (16_000, {}, 0.95),
        (24_192, {}, 0.825),
        (32_000, {}, 0.70),
        (200_000, {}, 0.70),
        (16_000, {"mode": "zones"}, 0.70),
        (16_000, {"floor_percent": 60}, 0.60),
        (16_000, {"ceiling_percent": 50}, 0.45),
    ],
)
def test_a_cut_is_less_deep_in_a_small_window(size, window, floor):
    assert floor_share(load(environ={}, arguments={"window": window}).window, size) == pytest.approx(floor)


@pytest.mark.requirement("budget.shares")
def test_shares_of_the_budget_are_set_in_percent_and_the_rest_follows_the_profile():
    settings = load(environ={}, arguments={"window": {"shares": {"history": 50, "results": 30}, "soft_percent": 60}})
    budget = make_budget(settings.window, ModelCard(name="m", window=100_000, max_input=100_000, max_output=100_000))
    limits = {name: limit.hard for name, limit in budget.limits.items()}
    assert limits["history"] / limits["results"] == pytest.approx(50 / 30, rel=1e-3)
    assert limits["system"] / limits["tools"] == pytest.approx(6 / 4, rel=1e-3)
    assert budget.limits["history"].soft == pytest.approx(0.6 * limits["history"], abs=1)


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"history": 80, "results": 30}, "must add up to 100 percent"),
        ({"histroy": 80}, "'histroy' is none of system"),
        ({"history": "much"}, "window.shares.history is a number of percent"),
        ({"history": -1}, "from 0 to 100"),
        ({"system": 1, "tools": 1, "history": 1, "results": 1, "memory": 1, "reserve": 1}, "and are 6"),
    ],
)
@pytest.mark.requirement("budget.refused")
def test_shares_that_are_no_budget_are_refused(shares, says):
    with pytest.raises(SettingsError, match=says):
        load(environ={}, arguments={"window": {"shares": shares}})
