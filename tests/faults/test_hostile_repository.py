"""Examining a repository executes nothing that the repository configures."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from recto.engine.environment import EnvironmentProbe


def git(here: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", here, *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A repository in which every setting that can name a command names one that leaves a mark."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    here = tmp_path / "cloned"
    here.mkdir()
    for name in ("a.txt", "b.txt", "c.bin"):
        (here / name).write_text(f"{name}\n")
    git(here, "init", "-q", "-b", "main")
    git(here, "add", ".")
    git(here, "commit", "-q", "-m", "first")
    program = here / "act.sh"
    program.write_text(f'#!/bin/sh\necho "$0 $@" >> {tmp_path / "acted"}\ncat\n')
    program.chmod(0o755)
    act = str(program)
    (here / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    included = here / ".git" / "more"
    included.write_text(f'[filter "evil"]\n\tclean = {act}\n\tsmudge = {act}\n\tprocess = {act}\n\trequired = true\n')
    with (here / ".git" / "config").open("a") as config:
        config.write(
            f"[include]\n\tpath = more\n[core]\n\tfsmonitor = {act}\n\thooksPath = {here}\n\tsshCommand = {act}\n"
            f'\tpager = {act}\n\teditor = {act}\n[diff]\n\texternal = {act}\n[diff "evil"]\n\ttextconv = {act}\n'
            f'\tcommand = {act}\n[alias]\n\tstatus = !{act}\n[remote "origin"]\n\turl = ext::{act}\n'
            f"\tpromisor = true\n\tpartialclonefilter = blob:none\n[protocol]\n\tallow = always\n"
        )
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman"):
        os.link(program, here / ".git" / "hooks" / hook)
        os.link(program, here / hook)
    os.link(program, here / "git")
    (here / "a.txt").write_text("changed\n")
    (here / "b.txt").write_text("b.txt\n")  # touched
    return here


def acted(place: Path) -> bool:
    return (place.parent / "acted").exists()


@pytest.mark.parametrize("path", ["", ".", "{place}", ".:{place}"])
def test_examining_a_repository_runs_nothing_of_it(place, monkeypatch, path):
    head = git(place, "rev-parse", "HEAD")
    (place.parent / "acted").unlink(missing_ok=True)
    monkeypatch.chdir(place)
    before = path.format(place=place)
    monkeypatch.setenv("PATH", f"{before}{os.pathsep if before else ''}{os.environ['PATH']}")
    found = EnvironmentProbe(seconds=20).examine(["a.txt"])
    assert (found.branch, found.head) == ("main", head)
    assert found.dirty == ("a.txt",)
    assert not acted(place)


def test_a_missing_object_is_not_fetched_by_a_command_of_the_repository(place):
    tree = git(place, "rev-parse", "HEAD^{tree}")
    (place / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    (place.parent / "acted").unlink(missing_ok=True)
    assert EnvironmentProbe(directory=str(place), seconds=20).examine().branch == "main"
    assert not acted(place)


def test_branches_packed_references_worktrees_and_subfolders_are_resolved(place):
    git(place, "config", "--file", str(place / ".git" / "more"), "filter.evil.required", "false")
    git(place, "pack-refs", "--all")
    git(place, "worktree", "add", "-q", "-b", "feature/x", str(place.parent / "linked"))
    head = git(place, "rev-parse", "HEAD")
    (place / "sub").mkdir()
    for directory, branch in ((place, "main"), (place / "sub", "main"), (place.parent / "linked", "feature/x")):
        found = EnvironmentProbe(directory=str(directory), seconds=20).examine()
        assert (found.branch, found.head) == (branch, head)
    git(place, "checkout", "-q", "--detach")
    assert EnvironmentProbe(directory=str(place), seconds=20).examine().branch == "(detached)"


@pytest.mark.parametrize("content", ["", "gitdir:", "gitdir: /nowhere", "gitdir: ../..", "x" * 100_000, "\0"])
def test_a_strange_git_file_breaks_nothing(tmp_path, content):
    (tmp_path / ".git").write_text(content)
    assert EnvironmentProbe(directory=str(tmp_path)).examine().directory == str(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "ref: ../../etc/passwd", "ref: refs/heads/../../HEAD", "z" * 40, "ref: refs/x"]
)
def test_a_strange_head_breaks_nothing(place, content):
    (place / ".git" / "HEAD").write_text(content)
    assert EnvironmentProbe(directory=str(place), seconds=20).examine().head == ""
    assert not acted(place)


def test_git_with_the_repository_configuration_runs_its_commands(place):
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    subprocess.run([*command, "-C", place, "status", "--porcelain=v2"], check=False, capture_output=True, timeout=30)
    assert acted(place)
