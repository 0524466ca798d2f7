"""A new wire format is one package and one line of registration: nothing outside `recto.formats` names a format."""

import ast
from pathlib import Path

import pytest

import recto
from recto.errors import MalformedMessage
from recto.formats import (
    DEFAULT_FORMAT,
    FORMATS,
    format_at,
    format_named,
    format_of_client,
    format_of_provider,
)

SOURCE = Path(recto.__file__).parent
SEATS = SOURCE / "adapters" / "seats"
"""Files that other programs run without importing Recto."""
OUTSIDE = sorted(
    file
    for file in SOURCE.rglob("*.py")
    if file.relative_to(SOURCE).parts[0] != "formats" and SEATS not in file.parents
)
PACKAGES = {format.messages.__name__.rpartition(".")[0] for format in FORMATS.values()}
SPEAKERS = {
    "adapters/openai_agents.py": "the framework's items are those of Responses",
    "adapters/strands.py": "the framework's messages are written as Anthropic's",
    "gateway/endpoints/threads.py": "Codex speaks Responses",
    "gateway/upstreams/embedded.py": "llama.cpp speaks Chat",
}
"""Modules tied to one format because their peer speaks it. They name the format but never compare it."""


def docstrings(tree: ast.Module) -> set[int]:
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def imported(tree: ast.Module) -> set[str]:
    """Returns every name that a module imports from a format's package."""
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if any(f"{node.module}.{alias.name}.".startswith(f"{package}.") for package in PACKAGES)
    }


@pytest.mark.parametrize("file", OUTSIDE, ids=lambda file: str(file.relative_to(SOURCE)))
def test_nothing_outside_the_formats_names_a_format(file):
    tree = ast.parse(file.read_text())
    texts = docstrings(tree)
    named = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in texts]
    assert not FORMATS.keys() & {name for name in named if isinstance(name, str)}
    names = imported(tree)
    assert not names or str(file.relative_to(SOURCE)) in SPEAKERS
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.Compare | ast.Dict | ast.Match)]
    assert not names & {node.id for branch in branches for node in ast.walk(branch) if isinstance(node, ast.Name)}


def test_every_listed_speaker_imports_a_format():
    assert {name for name in SPEAKERS if imported(ast.parse((SOURCE / name).read_text()))} == SPEAKERS.keys()


def test_formats_share_no_name_and_no_path():
    formats = FORMATS.values()
    assert [format.name for format in formats] == list(FORMATS)
    assert len({format.short_name for format in formats}) == len({format.title for format in formats}) == len(formats)
    routes = [route for format in formats for route in format.api.routes]
    assert len(set(routes)) == len(routes)


@pytest.mark.parametrize("format", FORMATS.values(), ids=list(FORMATS))
def test_a_format_is_known_by_its_name_paths_providers_and_headers(format):
    assert format_named(format.name) is format
    assert format_at(format.api.path) is format
    assert all(format_of_provider(provider) is format for provider in format.providers)
    header = format.api.client_header
    assert format_of_client({header: "1"} if header else {}) is (format if header else DEFAULT_FORMAT)


def test_input_that_names_no_format_gets_the_default_format():
    assert format_at("/v1/models") is format_of_provider("nobody") is format_of_client({}) is DEFAULT_FORMAT
    with pytest.raises(MalformedMessage, match=r"'x' is not a wire format; known are openai\.chat, "):
        format_named("x")
