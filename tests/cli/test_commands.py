"""The command line in pipes, in a terminal, and with usage errors."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.calling import called, called_at

from recto.cli.console import out
from recto.cli.main import COMMANDS

RECTO = str(Path(sys.executable).parent / "recto")
MESSAGES = [
    {"role": "user", "content": "What is 6 x 7?"},
    {"role": "assistant", "content": "42"},
    {"role": "user", "content": "\x1b]52;c;aGk=\x07\x1b[2Jred \u202eevil\u202c \x9b31m [link=x]y[/link] \r\n ok"},
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """A home with one session in its store, created once."""
    home = tmp_path_factory.mktemp("home")
    (home / "chat.json").write_text(json.dumps(MESSAGES))
    environ = os.environ | {"HOME": str(home), "RECTO_MODEL": "gpt-4o"}
    command = [RECTO, "import", "chat.json", "--session", "agent:me:main"]
    subprocess.run(command, cwd=home, env=environ, check=True, capture_output=True)
    return home


@pytest.fixture
def stored(here, filled) -> Path:
    """A new home and working directory, with that session in its store."""
    shutil.copytree(filled, here, dirs_exist_ok=True)
    return here


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A new home and working directory, with a file to import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RECTO_MODEL", "gpt-4o")
    (tmp_path / "chat.json").write_text(json.dumps(MESSAGES))
    return tmp_path


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = called(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_help_has_one_line_for_each_command():
    printed = run("--help").stdout
    for name, (_, line) in COMMANDS.items():
        assert f"  {name.ljust(max(map(len, COMMANDS)))}  {line}\n" in printed  # not wrapped to the width of a pipe


def in_a_terminal(*arguments: str) -> bytes:
    """Runs a command in a pseudo-terminal and returns the bytes that the terminal receives."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([RECTO, *arguments], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = bytearray()
        while piece := _read(ours):
            shown.extend(piece)
    os.close(ours)
    assert process.returncode == 0, shown.decode()
    return bytes(shown)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side has closed
        return b""


def test_a_file_is_imported_listed_shown_verified_and_exported(here):
    assert "3 entries (3 new) into agent:me:main" in run("import", "chat.json", "--session", "agent:me:main").stdout
    assert "agent:me:main" in run("session", "ls").stdout
    assert "What is 6 x 7?" in run("session", "show", "agent:me:main").stdout
    assert "4 entries in 1 session: all as stored" in run("verify").stdout
    out = run("session", "export", "agent:me:main", "--as", "original").stdout
    assert out == (here / "chat.json").read_text()
    run("session", "export", "agent:me:main", "-o", "out.jsonl")
    assert (here / "out.jsonl").read_bytes().startswith(b'{"recto": 1')
    run("--store", "second.db", "import", "out.jsonl")
    run("--store", "second.db", "verify")


def test_a_context_without_a_model_names_its_assumed_window_and_how_to_set_a_model(here, monkeypatch):
    monkeypatch.delenv("RECTO_MODEL")
    run("import", "chat.json", "--session", "agent:default:main")
    hint = "no model is named, so its window is taken to be 8,192 tokens; use --model, or set 'model'"
    for command in ("list", "detail"):
        assert " ".join(run("context", command).stderr.split()) == hint
        assert run("context", command, "--model", "gpt-4o").stderr == ""
        assert run("context", command, "--json").stderr == ""


def test_json_output(here):
    [done] = map(json.loads, run("import", "chat.json", "--json").stdout.splitlines())
    assert (done["entries"], done["new"], done["problems"]) == (3, 3, [])
    [listed] = map(json.loads, run("session", "ls", "--json").stdout.splitlines())
    assert listed["entries"] == 4
    shown = [json.loads(line) for line in run("session", "show", done["sessions"][0], "--json").stdout.splitlines()]
    assert [row["seq"] for row in shown] == [1, 2, 3, 4]
    assert json.loads(shown[2]["content"]) == MESSAGES[2]
    assert json.loads(run("verify", "--json").stdout) == {
        "ok": True,
        "entries": 4,
        "findings": [],
        "erased": [],
        "behind": [],
    }


def test_the_full_screen_without_a_terminal_is_refused(stored):
    # It drew into the file that its output went to, and ran until it was killed.
    assert "the full screen needs a terminal" in run("tui", code=2).stderr


def test_numbers_are_whole_in_a_narrow_terminal(stored, monkeypatch):
    monkeypatch.setattr(out, "width", 42)
    printed = run("context", "list", "--session", "agent:me:main", "--model", "gpt-4o").stdout
    assert "83,200" in printed
    assert "component" in printed
    assert max(map(len, printed.splitlines())) <= 42


def test_ranges_can_be_shown(stored):
    assert len(run("session", "show", "agent:me:main", "--from", "2", "--to", "3", "--json").stdout.splitlines()) == 2
    assert len(run("session", "show", "agent:me:main", "--last", "1", "--json").stdout.splitlines()) == 1


def test_an_empty_page_of_sessions_is_not_called_an_empty_store(stored):
    assert run("session", "ls", "--after", "z").stdout == "No session comes after 'z'.\n"


@pytest.mark.parametrize("full", [[], ["--full"]])
def test_text_from_a_transcript_cannot_act_on_a_terminal(stored, monkeypatch, full):
    monkeypatch.setenv("COLUMNS", "200")
    shown = in_a_terminal("session", "show", "agent:me:main", "--last", "3", *full)
    for harmful in (b"\x1b]", b"\x1b[2J", b"\x07", b"\xc2\x9b", "\u202e".encode()):
        assert harmful not in shown
    assert b"[link=x]y[/link]" in shown


def test_a_line_of_an_entry_stays_one_line_in_a_pipe(stored):
    shown = run("session", "show", "agent:me:main").stdout
    assert len(shown.splitlines()) == 4


def test_progress_is_shown_only_in_a_terminal(here):
    assert run("import", "chat.json").stderr == ""
    assert "importing" in in_a_terminal("import", "chat.json").decode()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sho"], 2, "there is no command 'sho'. Did you mean 'recto session show'?"),
        (["session", "show", "agent:mee:main"], 2, "Did you mean 'agent:me:main'"),
        (["session", "show", "me:"], 2, "Did you mean 'agent:me:main'"),
        (["session", "show", "a\nb"], 3, "printable"),
        (["session", "show", "--last", "0"], 2, "x>=1"),
        (["session", "show", "--from", "3", "--to", "2"], 2, "--from is greater than --to"),
        (["session", "ls", "--limit", "0"], 2, "x>=1"),
        (["import", "nothing.json"], 2, "does not exist"),
        (["import", "bad.jsonl"], 3, "line 2"),
        (["import", "picture.png"], 3, "picture.png"),
        (["session", "export", "agent:me:main", "-o", "chat.json"], 2, "--force"),
        (["session", "export", "agent:me:main", "-o", "no/such/folder/x"], 4, "no/such/folder"),
        (["session", "export", "agent:me:main", "agent:me:main", "--as", "messages"], 2, "takes one session"),
        (["--store", "no/such/folder/a.db", "import", "chat.json"], 4, "no/such/folder"),
        (["--store", "chat.json", "session", "ls"], 4, "chat.json"),
        (["--store", "missing.db", "session", "ls"], 4, "no store here"),
        (["--config", "none.yaml", "session", "ls"], 2, "no file"),
        (["--config", "typo.yaml", "session", "ls"], 2, "Did you mean 'store'"),
        (["verify", "--heads", "chat.json"], 3, "heads"),
    ],
)
def test_a_usage_error_has_a_message_and_an_exit_code(stored, arguments, code, message):
    (stored / "bad.jsonl").write_text('{"role":"user","content":"a"}\n{"role":\n')
    (stored / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (stored / "typo.yaml").write_text("stroe: x")
    done = run(*arguments, code=code)
    assert message in " ".join(done.stderr.split())


def test_unreadable_lines_are_reported_and_the_other_lines_are_imported(here):
    (here / "bad.jsonl").write_text('{"role":"user","content":"a"}\n{"role":\n{"role":"user","content":"b"}\n')
    done = run("import", "bad.jsonl", "--keep-going", "--session", "agent:me:main", code=1)
    assert "line 2" in done.stderr
    assert "3 entries" in done.stdout
    assert run("session", "export", "agent:me:main", "--as", "original").stdout == (here / "bad.jsonl").read_text()


def test_a_changed_store_is_detected_and_a_stored_head_reveals_a_rewrite(here):
    run("import", "chat.json", "--session", "agent:me:main", "--json")
    run("verify", "--write-heads", "heads.json")
    run("verify", "--heads", "heads.json")
    store = here / ".recto" / "transcript.db"
    changed = store.read_bytes().replace(b"What is 6 x 7?", b"What is 6 x 8?")
    assert changed != store.read_bytes()
    store.write_bytes(changed)
    assert "agent:me:main, entry 1" in run("verify", code=1).stdout
    for file in store.parent.iterdir():
        file.unlink()
    (here / "chat.json").write_text('[{"role": "user", "content": "What is 6 x 8?"}]')
    run("import", "chat.json", "--session", "agent:me:main")
    run("verify")
    assert "cut off" in run("verify", "--heads", "heads.json", code=1).stdout


def test_a_restored_older_copy_can_be_accepted(here):
    run("--store", "a.db", "import", "chat.json", "--session", "agent:me:main")
    old = (here / "a.db").read_bytes()
    (here / "more.json").write_text('[{"role": "user", "content": "more"}]')
    run("--store", "a.db", "import", "more.json", "--session", "agent:me:main")
    (here / "a.db").write_bytes(old)
    assert "cut off" in run("--store", "a.db", "verify", code=1).stdout
    run("--store", "a.db", "import", "more.json", "--session", "agent:me:main", code=4)
    run("--store", "a.db", "verify", "--accept")
    run("--store", "a.db", "import", "more.json", "--session", "agent:me:main")


def test_a_reader_that_closes_the_pipe_causes_no_traceback(stored):
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {RECTO} export agent:me:main | true"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr


def test_the_demo_prints_its_results_and_leaves_no_files_behind(here):
    output = run("demo", "--exchanges", "20").stdout
    assert "the heads are the same" in output
    assert "tampered.db: entry 1 is not what was stored" in output
    assert sorted(path.name for path in here.iterdir()) == ["chat.json"]


def test_the_demo_shows_three_moments_of_the_sample_week(here, monkeypatch):
    monkeypatch.setattr(out, "width", 96)
    printed = run("demo").stdout
    assert "- Never run anything against lantern_prod, not even a SELECT. (8)" in printed
    assert "> I have to take something back: invoices do not go out on the 1st." in printed
    assert "superseded by" in printed
    [(back, evicted)] = re.findall(r"restored: (\d+) of (\d+) messages are in the prompt again, byte for byte", printed)
    assert back == evicted != "0"
    assert sorted(path.name for path in here.iterdir()) == ["chat.json"]


def test_help_and_version_are_printed(here):
    assert "Examples:" in run("--help").stdout
    assert run("--version").stdout.startswith("recto, version ")


def test_every_command_can_be_listed_without_optional_packages():
    """`recto --help` imports all commands; on a bare installation none of them may need an extra."""
    optional = "starlette uvicorn httpx2 prompt_toolkit textual prometheus_client mcp optuna psycopg onnxruntime"
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {optional.split()!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from recto.cli.main import main\n"
        "sys.argv = ['recto', '--help']\n"
        "main()\n"
    )
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    assert "chat" in listed.stdout


@pytest.mark.parametrize(
    "command", [("session", "show", "--json", "--last", "1000"), ("session", "show", "--last", "1000")]
)
def test_a_closed_pipe_ends_the_program_silently(tmp_path, command):
    messages = [{"role": "user", "content": f"number {number} " + "x" * 400} for number in range(400)]
    (tmp_path / "long.json").write_text(json.dumps(messages))
    called_at(tmp_path, "import", "long.json", "--session", "agent:default:main")
    with subprocess.Popen(
        [RECTO, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.read(1)
        program.stdout.close()
        assert (program.stderr.read(), program.wait()) == (b"", 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("command", ["session show agent:me:main --json", "session ls", "--help"])
def test_output_that_cannot_be_written_is_one_line_and_a_failure(stored, command):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([RECTO, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.stderr, done.returncode) == ("recto: the output is not complete: No space left on device\n", 4)


@pytest.mark.parametrize("arguments", [("verify", "--write-heads"), ("session", "export", "-o")])
def test_a_file_that_cannot_be_written_is_one_line_and_a_failure(stored, arguments):
    done = run(*arguments, "missing/file", code=4)
    assert done.stderr.splitlines()[-1] == "recto: cannot use 'missing/file': No such file or directory"


@pytest.mark.parametrize("command", ["session show agent:me:main --json", "session ls", "--help"])
def test_a_program_without_any_output_ends_as_with_one(stored, command):
    line = f"exec '{RECTO}' {command} >&-"
    done = subprocess.run(["/bin/sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["session", "--help"], ["session", "ls", "--help"]])
def test_help_into_a_closed_pipe_is_not_an_error(tmp_path, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [RECTO, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "HOME": str(tmp_path)},
            cwd=tmp_path,
        )
    finally:
        os.close(writer)
    assert (done.stderr, done.returncode) == (b"", 0)


def test_an_unknown_model_is_one_line_without_a_source_location(tmp_path):
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hello"}]')
    command = [RECTO, "import", "chat.json", "--model", "gtp-4o"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}, check=True
    )
    assert done.stderr.startswith("recto: model 'gtp-4o' is not known")
    assert done.stderr.count("\n") == 1


def test_a_home_that_does_not_exist_is_reported_with_the_cure(tmp_path, monkeypatch):
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hello"}]')
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    refused = called("import", str(tmp_path / "chat.json"))
    assert refused.returncode == 4
    assert "cannot be created" in refused.stderr
    assert "RECTO_STORE" in refused.stderr
