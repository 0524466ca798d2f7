"""`recto mcp --as notes`: Codex's calls over standard input and output, on Codex's own file of the thread."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.calling import called_at
from tests.mcp.serving import over_stdio, sync_client

THREAD = "01a1eb29-786d-7292-bdce-9bd164c5664c"


def rollout(home: Path, *texts: str) -> None:
    """Writes Codex's file of a thread with user messages."""
    lines = [{"type": "session_meta", "payload": {"id": THREAD, "timestamp": "2026-11-17T20:00:00Z"}}]
    lines += [
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [_part(text)]}}
        for text in texts
    ]
    file = home / "sessions" / "2026" / f"rollout-2026-11-17T20-00-00-{THREAD}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"timestamp": "2026-11-17T20:00:00Z", **line}) + "\n" for line in lines))


def _part(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


def test_the_hint_of_a_thread_contains_the_messages_of_codexs_own_file(tmp_path):
    rollout(tmp_path, "Make the tests of billing pass on port 5433.")
    with sync_client(
        over_stdio(tmp_path / "a.db", "--as", "notes", CODEX_HOME=str(tmp_path)), tmp_path / "a.db"
    ) as client:

        def hint(thread: str) -> str:
            meta = {"threadId": thread}
            return str(client.request("call_tool", "thread_hint", {}, meta=meta).content[0].text)

        assert "port 5433" in hint(THREAD)
        rollout(tmp_path, "Make the tests of billing pass on port 5433.", "Never touch the ledger.")
        assert "Never touch the ledger." in hint(THREAD)
        assert hint("00000000-0000-0000-0000-000000000000") == ""
        names = {tool.name for tool in client.request("list_tools").tools}
    reading = {"thread_hint", "list_files_by_prefix", "read_file", "search_contents"}
    assert names == reading | {"append_to_file", "write_file"}


def test_the_server_for_codex_is_added_under_the_name_that_codex_expects_and_removed_again(tmp_path):
    file = tmp_path / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text('model = "gpt-5"\n')
    called_at(tmp_path, "mcp", "--as", "notes", "add", "codex")
    called_at(tmp_path, "mcp", "add", "codex")
    text = file.read_text()
    assert "[mcp_servers.notes]" in text
    assert '"--as", "notes"' in text
    assert "[mcp_servers.recto]" in text
    called_at(tmp_path, "mcp", "--as", "notes", "remove", "codex")
    assert "[mcp_servers.notes]" not in file.read_text()
    assert "[mcp_servers.recto]" in file.read_text()
