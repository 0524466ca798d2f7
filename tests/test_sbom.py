"""The bill of materials lists everything that a release installs, with hashes, and is reproducible."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from recto.version import DISTRIBUTION, __version__

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import make_sbom  # noqa: E402


def test_every_pinned_package_is_in_the_bill_with_all_of_its_hashes():
    bill = make_sbom.bill_of_materials()
    listed = {component["purl"]: component for component in bill["components"]}
    assert len(listed) == len(bill["components"])
    for file in make_sbom.REQUIREMENTS:
        text = (ROOT / "requirements" / file).read_text()
        pinned = [line for line in text.splitlines() if line[:1].isalnum()]
        assert len(pinned) == len(make_sbom.pins(text)) > 0
        for name, version, hashes in make_sbom.pins(text):
            (reference,) = listed[f"pkg:pypi/{name}@{version}"]["externalReferences"]
            assert set(hashes) <= {each["content"] for each in reference["hashes"]}
    assert any(purl.startswith("pkg:npm/") for purl in listed), "the page is compiled into the wheel"
    component = bill["metadata"]["component"]
    assert (component["name"], component["version"]) == (DISTRIBUTION, __version__)
    assert component["purl"] == f"pkg:pypi/{DISTRIBUTION}@{__version__}"
    assert set(bill["dependencies"][0]["dependsOn"]) == set(listed)


def test_a_pin_without_a_hash_or_with_unknown_syntax_is_refused():
    good = "a-b==1.0 ; python_version < '3.12' \\\n    --hash=sha256:" + "0" * 64 + "\n"
    assert make_sbom.pins(good) == [("a-b", "1.0", ["0" * 64])]
    with pytest.raises(ValueError, match="without a hash"):
        make_sbom.pins(good + "b==2.0\n")
    with pytest.raises(ValueError, match="not understood"):
        make_sbom.pins(good + "??c==2.0 --hash=sha256:" + "1" * 64)


def test_release_files_are_hashed_and_the_bill_is_reproducible(tmp_path):
    (tmp_path / "recto-0-py3-none-any.whl").write_bytes(b"wheel")
    command = [sys.executable, str(ROOT / "tools" / "make_sbom.py"), str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    subprocess.run(command, check=True, capture_output=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == first
    sums = dict(reversed(line.split("  ")) for line in first["SHA256SUMS"].decode().splitlines())
    assert sums == {
        name: hashlib.sha256(content).hexdigest() for name, content in first.items() if name != "SHA256SUMS"
    }
    assert json.loads(first["recto.cdx.json"])["bomFormat"] == "CycloneDX"


def test_the_release_target_writes_the_bill_and_a_changed_file_is_detected(tmp_path):
    recipe = (ROOT / "Makefile").read_text().partition("\nwheel:")[2].partition("\n\n")[0]
    assert "tools/make_sbom.py dist" in recipe
    (tmp_path / "a.whl").write_bytes(b"wheel")
    before = make_sbom.check_sums(tmp_path)
    (tmp_path / "a.whl").write_bytes(b"wheel with something else in it")
    assert make_sbom.check_sums(tmp_path) != before
