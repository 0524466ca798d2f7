"""Writes the types of what the inspection API answers, for the page: `web/src/answers.ts`, made of its description.

python tools/make_web_types.py            write it
python tools/make_web_types.py --check    1 where it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from recto.gateway.inspection.operations import OPERATIONS
from recto.gateway.inspection.routes import description

FILE = Path(__file__).parent.parent / "web" / "src" / "answers.ts"
_HEAD = "// What the inspection API answers. Made of its description by tools/make_web_types.py; do not edit.\n"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def written() -> str:
    """The whole file."""
    schemas = description(OPERATIONS)["components"]["schemas"]
    return _HEAD + "".join(_interface(name, schemas[name]) for name in sorted(schemas))


def _interface(name: str, schema: dict[str, Any]) -> str:
    members = "".join(f"  {member}: {_type(told)};\n" for member, told in schema["properties"].items())
    return f"\n/** {schema.get('description', name)} */\nexport interface {name} {{\n{members}}}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f'"{one}"' for one in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"Array<{_type(schema.get('items') or schema.get('prefixItems', [{}])[0])}>"
        case "object":
            inner = schema.get("additionalProperties")
            return f"Record<string, {_type(inner) if isinstance(inner, dict) and inner else 'unknown'}>"
        case str() as plain if plain in _PLAIN:
            return _PLAIN[plain]
        case _:
            return "unknown"


def main() -> int:
    """0 where the file is, or has been made, what it should be."""
    if "--check" in sys.argv:
        return 0 if FILE.exists() and FILE.read_text() == written() else 1
    FILE.write_text(written())
    return 0


if __name__ == "__main__":
    sys.exit(main())
