"""Writes what MCP registries and desktop hosts install the server from, made of the code.

python tools/make_mcp_bundle.py           writes server.json, the entry for the MCP registry
python tools/make_mcp_bundle.py --check   1 where server.json is not up to date
python tools/make_mcp_bundle.py dist      writes dist/recto-<version>.mcpb, the bundle for desktop hosts, too

The bundle holds no code of Recto: its host installs the package of the same version with uv (server type `uv` of the
manifest 0.4). The same inputs give the same bytes.
"""

from __future__ import annotations

import io
import json
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

from recto.mcp.tools import TOOLS
from recto.version import DISTRIBUTION, __version__

ROOT: Final = Path(__file__).parent.parent
SERVER: Final = ROOT / "server.json"
NAME: Final = "io.github.recto-ai/recto"
"""The name in the registry; the README of the package names it, which shows that both have one owner."""
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_STORE: Final = "The transcript: a path, or postgresql://…"
_SUMMARY: Final = "Search, read and write everything that was said in agent sessions; see what the prompt holds."
_MAIN: Final = '''"""Starts the MCP server of Recto over standard input and output."""

import sys

from recto.cli.main import main

sys.argv = ["recto", "mcp", *sys.argv[1:]]
main()
'''


def project() -> dict[str, Any]:
    """Return the metadata of the package."""
    metadata: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return metadata


def server_json() -> dict[str, Any]:
    """Return the entry for the MCP registry."""
    (requirement,) = project()["optional-dependencies"]["mcp"]
    return {
        "$schema": SCHEMA,
        "name": NAME,
        "title": "Recto",
        "description": _SUMMARY,
        "version": __version__,
        "repository": {"url": project()["urls"]["Source"], "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": DISTRIBUTION,
                "version": __version__,
                "runtimeHint": "uvx",
                "runtimeArguments": [{"type": "named", "name": "--with", "value": requirement}],
                "packageArguments": [{"type": "positional", "value": "mcp"}],
                "environmentVariables": [{"name": "RECTO_STORE", "description": _STORE}],
                "transport": {"type": "stdio"},
            }
        ],
    }


def manifest() -> dict[str, Any]:
    """Return the manifest of the bundle."""
    about = project()
    return {
        "manifest_version": "0.4",
        "name": "recto",
        "display_name": "Recto",
        "version": __version__,
        "description": _SUMMARY,
        "author": {"name": "Recto", "url": about["urls"]["Homepage"]},
        "repository": {"type": "git", "url": about["urls"]["Source"]},
        "homepage": about["urls"]["Homepage"],
        "documentation": f"{about['urls']['Source']}/blob/v{__version__}/docs/mcp.md",
        "support": about["urls"]["Issues"],
        "license": about["license"],
        "keywords": about["keywords"],
        "server": {
            "type": "uv",
            "entry_point": "server/main.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "server/main.py"],
                "env": {"RECTO_STORE": "${user_config.store}"},
            },
        },
        "tools": [{"name": tool.name, "description": tool.description} for tool in TOOLS],
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": about["requires-python"]}},
        "user_config": {
            "store": {
                "type": "string",
                "title": "Store",
                "description": _STORE,
                "default": "${HOME}/.recto/transcript.db",
                "required": False,
            }
        },
    }


def bundle_files() -> dict[str, str]:
    """Return the files of the bundle, by their paths in it."""
    requires = [
        "[project]",
        'name = "recto-mcp-bundle"',
        f'version = "{__version__}"',
        f'requires-python = "{project()["requires-python"]}"',
        f'dependencies = ["{DISTRIBUTION}[mcp]=={__version__}"]',
        "",
    ]
    return {
        "manifest.json": _written(manifest()),
        "pyproject.toml": "\n".join(requires),
        "server/main.py": _MAIN,
        "LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
    }


def bundle() -> bytes:
    """Return the bundle."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in bundle_files().items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, text)
    return written.getvalue()


def _written(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the files, or compare them."""
    wanted = _written(server_json())
    if "--check" in arguments:
        if not SERVER.exists() or SERVER.read_text(encoding="utf-8") != wanted:
            sys.stderr.write("server.json is not what the code says: python tools/make_mcp_bundle.py\n")
            return 1
        return 0
    SERVER.write_text(wanted, encoding="utf-8")
    for folder in map(Path, arguments):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"recto-{__version__}.mcpb"
        file.write_bytes(bundle())
        sys.stdout.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
