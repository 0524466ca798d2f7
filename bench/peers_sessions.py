"""The real sessions that Recto and its peers are replayed with, and what is needed later in each of them.

A session is cut at the model calls. In the work of coding agents, the newest reading of a file is needed whenever the
agent returns to that file; in conversations with labels, the messages that answer a question. Thinking is left out,
because most of the peers have no place for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.recall_data import DATA, Turn, chat_questions, chats, conversations
from recto.formats.session_files import read_file
from recto.tokens.meter import counter_named

LONG = 100_000
"""Tokens from which on an agent's session is taken."""
EVERY_AGENT, EVERY_TALK, EVERY_CHAT = 6, 10, 500
"""One in so many: of the agents' long sessions, longest first; of BEAM's conversations; of LongMemEval's questions."""
READS = ("Read",)
FILE = "file_path"
ANSWER = "Noted."
"""What is said between two questions."""
SHORTEST = 200
"""Characters of a reading that is worth having again."""

Said = list
"""A message as the child takes it: role, text, calls, call id, tool name, own id."""
Step = list[Said]
"""What came since the last call of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """At the prompt after a step, something that was said before is needed; `query` is what one would look for."""

    step: int
    query: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A session as it is handed to every peer."""

    name: str
    kind: str
    steps: list[Step]
    files: tuple[Need, ...] = ()
    questions: tuple[Need, ...] = ()


def selection() -> list[Told]:
    """The same for everybody, in every run. None where the sets are not there."""
    if not DATA.is_dir():
        return []
    return [*agents(), *talks(), *chat_histories()]


def agents() -> Iterator[Told]:
    folder = DATA / "agent_sessions"
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    known = sorted(index, key=lambda each: (-each["approx_tokens"], each["path"]))
    for about in [each for each in known if each["approx_tokens"] >= LONG][::EVERY_AGENT]:
        steps = steps_of(folder / about["path"])
        yield Told(name=about["session_id"][:8], kind="agent", steps=steps, files=tuple(file_needs(steps)))


def talks() -> Iterator[Told]:
    for talk in conversations()[::EVERY_TALK]:
        asked = [(one.text, [talk.turns[place].text for place in sorted(one.gold)]) for one in talk.questions]
        yield conversation(f"BEAM {talk.name}", "conversation", talk.turns, asked)


def chat_histories() -> Iterator[Told]:
    known = chats()
    for one in [each for each in chat_questions() if each.evidence][::EVERY_CHAT]:
        held = sorted((known[name] for name in one.haystack), key=lambda chat: (chat.ts, chat.name))
        turns = [turn for chat in held for turn in chat.turns]
        gold = [known[name].turns[place].text for name, place in sorted(one.evidence)]
        yield conversation(f"LongMemEval {one.name}", "chats", turns, [(one.text, gold)])


def conversation(name: str, kind: str, turns: Sequence[Turn], asked: Sequence[tuple[str, list[str]]]) -> Told:
    """Cut before every answer; then the questions, one after the other, each answered with next to nothing."""
    steps: list[Step] = [[]]
    for turn in (turn for turn in turns if turn.text):
        if turn.role == "assistant" and steps[-1] and steps[-1][-1][0] == "user":
            steps.append([])
        steps[-1].append([turn.role, turn.text, [], None, None, ""])
    needs = []
    for text, gold in asked:
        if steps[-1][-1][0] == "user":
            steps.append([["assistant", ANSWER, [], None, None, ""]])
        steps[-1].append(["user", text, [], None, None, ""])
        needs.append(Need(step=len(steps) - 1, query=text, texts=tuple(gold)))
    return Told(name=name, kind=kind, steps=numbered(steps), questions=tuple(needs))


def steps_of(file: Path) -> list[Step]:
    """An agent's session cut at the calls of the model: wherever an assistant answers a user."""
    steps: list[Step] = []
    now: Step = []
    names: dict[str, str] = {}
    role = "user"
    for message in messages(file):
        if message["role"] == "assistant" and role == "user" and now:
            steps.append(now)
            now = []
        role = message["role"]
        add(now, message, names)
    return numbered(steps)


def numbered(steps: list[Step]) -> list[Step]:
    for number, said in enumerate(said for step in steps for said in step):
        said[-1] = f"m{number:06}"
    return steps


def messages(file: Path) -> Iterator[dict]:
    with file.open("rb") as stream:
        for entry in read_file(iter(lambda: stream.read(65_536), b""), file.name):
            if entry.kind == "message":
                yield json.loads(entry.content)


def add(step: Step, message: dict, names: dict[str, str]) -> None:
    """Appends a message; what one assistant said in several goes into one, as the model had sent it."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "user":
        step += [result(block, names) for block in blocks if block["type"] == "tool_result"]
        step += [["user", block["text"], [], None, None, ""] for block in blocks if block["type"] == "text"]
        return
    text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [[use["id"], use["name"], json.dumps(use["input"])] for use in blocks if use["type"] == "tool_use"]
    names |= {call: name for call, name, _ in calls}
    if step and step[-1][0] == "assistant":
        step[-1][1] = "\n".join(filter(None, (step[-1][1], text)))
        step[-1][2] += calls
    elif text or calls:
        step.append(["assistant", text, calls, None, None, ""])


def result(block: dict, names: Mapping[str, str]) -> Said:
    content = block.get("content") or ""
    text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    call = block["tool_use_id"]
    return ["tool", text, [], call, names.get(call, "tool"), ""]


def file_needs(steps: Sequence[Step]) -> Iterator[Need]:
    """A file that was read is taken up again: its newest reading was needed in the prompt that led to that call."""
    newest: dict[str, str] = {}
    reading: dict[str, str] = {}
    for place, step in enumerate(steps):
        for role, text, calls, call, *_ in step:
            if role == "tool" and call in reading and len(text) >= SHORTEST:
                newest[reading[call]] = text
            files = {use: json.loads(arguments).get(FILE) for use, _, arguments in calls}
            for file in sorted({file for file in files.values() if file in newest}):
                yield Need(step=place - 1, query=file, texts=(newest[file],))
            reading |= {use: files[use] for use, name, _ in calls if name in READS and files[use]}


def mean_tokens(sessions: Iterable[Told]) -> dict[str, float]:
    """Tokens of a message, the results of one round being one, and of an item, each call being one."""
    counter = counter_named("o200k")
    tokens = units = items = 0
    for step in (step for session in sessions for step in session.steps):
        last = ""
        for role, text, calls, *_ in step:
            texts = [text, *(part for call in calls for part in call[1:])]
            tokens += sum(counter.count(part) for part in texts)
            units += not role == last == "tool"
            items += bool(text or role == "tool") + len(calls)
            last = role
    return {"messages": tokens / units, "items": tokens / items}


def lengths(session: Told) -> list[int]:
    """Tokens of all that was said, up to and with each step."""
    counter = counter_named("o200k")
    sums, total = [], 0
    for step in session.steps:
        for _, text, calls, *_ in step:
            total += counter.count(text) + sum(counter.count(part) for call in calls for part in call[1:])
        sums.append(total)
    return sums


def write(sessions: Sequence[Told], file: Path) -> None:
    file.write_text(json.dumps([asdict(session) for session in sessions]), encoding="utf-8")
