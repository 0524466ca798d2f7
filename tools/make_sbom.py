"""Writes the bill of materials and the hashes of a release into the folder with its files.

python tools/make_sbom.py dist    writes dist/recto.cdx.json (CycloneDX) and dist/SHA256SUMS

The bill names what is pinned in `requirements/` (every package by version, with the hash of each file that may be
installed) and the packages of the page (`web/package-lock.json`), which are compiled into the wheel. The same inputs
give the same bytes: it contains no time and no random number. `sha256sum --check SHA256SUMS` checks the files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ("run.txt", "server.txt", "weights.txt")
"""What `make run`, a server and `recto models get` install or fetch; tests and documentation are not shipped."""
BILL, SUMS = "recto.cdx.json", "SHA256SUMS"
_PIN = re.compile(
    r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)[ \t]*(?:;([^\\\n]*?))?(?=[ \t]|\\|$)", re.MULTILINE
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def bill_of_materials(root: Path = ROOT) -> dict[str, Any]:
    """Return the CycloneDX document of a release."""
    components = [*_python_components(root), *_page_components(root)]
    components.sort(key=lambda component: component["bom-ref"])
    stated = dict(re.findall(r'^(\w+) = "([^"]+)"', (root / "src/recto/version.py").read_text(encoding="utf-8"), re.M))
    name, version = stated["DISTRIBUTION"], stated["__version__"]
    own = f"pkg:pypi/{name}@{version}"
    digest = hashlib.sha256(json.dumps(components, sort_keys=True).encode()).hexdigest()
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{own}#{digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _python_components(root: Path) -> Iterator[dict[str, Any]]:
    found: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for file in REQUIREMENTS:
        for name, version, hashes in pins((root / "requirements" / file).read_text(encoding="utf-8")):
            known, files = found.setdefault((name, version), (set(), set()))
            known.update(hashes)
            files.add(file)
    for (name, version), (hashes, files) in found.items():
        address = f"https://pypi.org/project/{name}/{version}/"
        yield _component(f"pkg:pypi/{name}@{version}", name, version, address, "SHA-256", hashes, files)


def pins(text: str) -> list[tuple[str, str, list[str]]]:
    """Return each pinned package with its version and hashes. Raises `ValueError` where one has no hash."""
    text = re.sub(r"(?m)^#.*$", "", text)
    found, starts = [], list(_PIN.finditer(text))
    for number, match in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        hashes = _HASH.findall(text, match.end(), end)
        if not hashes:
            raise ValueError(f"{match[1]}=={match[2]} is pinned without a hash")
        found.append((re.sub(r"[-_.]+", "-", match[1]).lower(), match[2], hashes))
    if len(found) != len(re.findall(r"(?m)^\S", text)):
        raise ValueError("a requirement is not understood")
    return found


def _page_components(root: Path) -> Iterator[dict[str, Any]]:
    """What the page is built from, without the tools that build it."""
    lock = json.loads((root / "web/package-lock.json").read_text(encoding="utf-8"))
    for path, package in lock["packages"].items():
        if not path or package.get("dev"):
            continue
        name = path.rpartition("node_modules/")[2]
        digest = base64.b64decode(package["integrity"].removeprefix("sha512-")).hex()
        purl = f"pkg:npm/{name.replace('@', '%40')}@{package['version']}"
        address = f"https://www.npmjs.com/package/{name}/v/{package['version']}"
        yield _component(purl, name, package["version"], address, "SHA-512", [digest], ["web/package-lock.json"])


def _component(
    purl: str, name: str, version: str, address: str, algorithm: str, hashes: Iterable[str], files: Iterable[str]
) -> dict[str, Any]:
    listed = [{"alg": algorithm, "content": digest} for digest in sorted(set(hashes))]
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [{"type": "distribution", "url": address, "hashes": listed}],
        "properties": [{"name": "recto:pinned-in", "value": file} for file in sorted(files)],
    }


def check_sums(folder: Path) -> str:
    """Return the SHA-256 of every file of a release, in the format of `sha256sum`."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != SUMS)
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def _written(bill: Mapping[str, Any]) -> str:
    return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"


def main(folder: Path) -> int:
    """Write both files."""
    folder.mkdir(parents=True, exist_ok=True)
    bill = bill_of_materials()
    (folder / BILL).write_text(_written(bill), encoding="utf-8")
    (folder / SUMS).write_text(check_sums(folder), encoding="utf-8")
    sys.stdout.write(f"{folder / BILL}: {len(bill['components'])} components; {folder / SUMS}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
