"""A request to a model as a client sent it: what stands beside the conversation, and the conversation.

System text and tools are the client's own and go on verbatim; they may change from request to request without being
another conversation. Messages are what the transcript keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recto.formats import Body, Format, open_body
from recto.formats.cache_control import newest_marks
from recto.formats.json_spans import Json, TextEdit, members, put_member, quoted, spliced, taken_out
from recto.formats.message import MAX_CACHE_MARKS


def surface_of(format: Format) -> str:
    """Returns the surface of messages that arrive at the gateway in this format."""
    return f"gateway {format.short_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request, opened."""

    body: Body
    fields: Mapping[str, Json]
    """Its members, but for the messages."""
    front: tuple[bytes, ...]
    """System messages that stand before the conversation, where the format has them among the messages."""
    back: tuple[bytes, ...]
    """System messages that stand behind it: agents move a reminder along with each request."""
    amid: tuple[bytes, ...]
    """System messages that stand somewhere in it. They say nothing about which conversation it is."""
    messages: tuple[bytes, ...]
    """The conversation as the client tells it, without system messages."""
    replies: tuple[int, ...]
    """Which of them the assistant said."""

    @property
    def format(self) -> Format:
        """The wire format of the request."""
        return self.body.format

    @property
    def wire(self) -> str:
        """The name of its wire format, as entries carry it."""
        return self.body.format.name

    @property
    def model(self) -> str:
        """The model that is asked for."""
        return self.body.model

    @property
    def stream(self) -> bool:
        """Whether the answer shall come piece by piece."""
        return self.fields.get("stream") is True

    @property
    def answer(self) -> int:
        """Tokens that the answer may have; 0 where the client does not say."""
        for name in self.format.body.output_limits:
            value = self.fields.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return 0

    @property
    def tools(self) -> bytes:
        """The tool schemas, as they were sent."""
        return self.body.tools or b""

    @property
    def beside(self) -> bytes:
        """The text beside the conversation, as it was sent."""
        return b"\n".join((*((self.body.system,) if self.body.system else ()), *self.front, *self.back))

    @property
    def is_bare(self) -> bool:
        """Whether it brings neither tools nor history: one thing said, and nothing else."""
        return not self.body.tools and not self.replies and len(self.messages) == 1

    def with_prompt(self, messages: tuple[bytes, ...], system: str = "") -> bytes:
        """The body to send on: as it came, with the messages of a prompt, and with more system text where given."""
        body = self.body.with_messages((*self.front, *self._marked(messages), *self.back))
        gone = self.format.body.stored_history & self.fields.keys()
        if not gone and not system:
            return body
        text = body.decode()
        found = list(members(text))
        spans = [(member.start, member.value.end) for member in found]
        edits: list[TextEdit] = taken_out(spans, [member.key in gone for member in found])
        text = spliced(text, edits)
        if system:
            text = spliced(text, [put_member(text, 0, "system", self._with_system(system))])
        return text.encode()

    def _marked(self, messages: tuple[bytes, ...]) -> Sequence[bytes]:
        """The messages with no more cache marks than a provider takes: those beside them count too."""
        name = f'"{self.format.cache_mark}"'.encode()
        beside = self.beside.count(name) + self.tools.count(name) + ("cache_control" in self.fields)
        if not beside or not any(name in raw for raw in messages):
            return messages
        return newest_marks(messages, self.wire, max(MAX_CACHE_MARKS - beside, 0))

    def _with_system(self, more: str) -> str:
        """The member that holds system text, with more of it at its end."""
        block = f'{{"type": "text", "text": {quoted(more)}}}'
        given = (self.body.system or b"").decode()
        if given.startswith("["):
            return f"{given[:-1].rstrip()}{', ' if len(given) > 2 else ''}{block}]"
        if given.startswith('"') and len(given) > 2:
            return f'[{{"type": "text", "text": {given}}}, {block}]'
        return f"[{block}]"


def open_request(raw: bytes, wire: str) -> ClientRequest:
    """Takes a request apart. Raises `MalformedJson` or `MalformedMessage` where it is none.

    How deep it is nested was looked at when it came in.
    """
    body = open_body(raw, wire, shallow=True)
    roles = body.roles
    spoken = [place for place, role in enumerate(roles) if role != "system"]
    front, back = (spoken[0], spoken[-1] + 1) if spoken else (len(roles), len(roles))
    return ClientRequest(
        body=body,
        fields=body.fields,
        front=body.messages[:front],
        back=body.messages[back:],
        amid=tuple(body.messages[place] for place in range(front, back) if roles[place] == "system"),
        messages=tuple(body.messages[place] for place in spoken),
        replies=tuple(at for at, place in enumerate(spoken) if roles[place] == "assistant"),
    )
