"""The files from which registries and desktop hosts install the MCP server match the code, and the server starts."""

from __future__ import annotations

import io
import json
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from packaging.requirements import Requirement
from tests.mcp.serving import ENVIRONMENT, sync_client
from tools import make_mcp_bundle as made

from recto.formats.tools import MCP_TOOLS
from recto.version import DISTRIBUTION, __version__

SCHEMAS = made.ROOT / "build" / "mcp-schemas"


def unpacked(folder: Path) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(made.bundle())) as archive:
        archive.extractall(folder)
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_registry_entry_matches_the_code():
    written = json.loads(made.SERVER.read_text(encoding="utf-8"))
    assert written == made.server_json()
    assert len(written["description"]) <= 100
    (package,) = written["packages"]
    assert (package["identifier"], package["version"], written["version"]) == (DISTRIBUTION, __version__, __version__)
    assert f"mcp-name: {written['name']}" in (made.ROOT / "README.md").read_text(encoding="utf-8")


def test_the_bundle_names_every_tool_and_the_package_of_the_same_version(tmp_path):
    files = unpacked(tmp_path)
    manifest = json.loads(files["manifest.json"])
    assert tuple(tool["name"] for tool in manifest["tools"]) == MCP_TOOLS
    assert manifest["server"]["entry_point"] in files
    (dependency,) = tomllib.loads(files["pyproject.toml"])["project"]["dependencies"]
    requirement = Requirement(dependency)
    assert (requirement.name, requirement.extras, str(requirement.specifier)) == (
        DISTRIBUTION,
        {"mcp"},
        f"=={__version__}",
    )
    assert made.bundle() == made.bundle()


@pytest.mark.parametrize(
    ("schema", "content"),
    [("server.schema.json", made.server_json()), ("mcpb-manifest-v0.4.schema.json", made.manifest())],
)
def test_both_files_conform_to_their_published_schemas(schema, content):
    jsonschema = pytest.importorskip("jsonschema")
    if not (file := SCHEMAS / schema).exists():
        pytest.skip(f"there is no {file.relative_to(made.ROOT)} here: make mcp-schemas")
    jsonschema.validate(content, json.loads(file.read_text(encoding="utf-8")))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "version": 1}, json.loads(file.read_text(encoding="utf-8")))


def test_the_server_in_the_bundle_starts_and_answers(tmp_path):
    unpacked(tmp_path)
    environment = {**ENVIRONMENT, "RECTO_STORE": str(tmp_path / "a.db")}
    arguments = [str(tmp_path / made.manifest()["server"]["entry_point"])]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    with sync_client(stdio_client(server), tmp_path) as client:
        assert tuple(tool.name for tool in client.request("list_tools").tools) == MCP_TOOLS
        assert client.call("note", kind="decisions", text="The port is 8443.")["seq"]
