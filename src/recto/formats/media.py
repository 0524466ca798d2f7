"""Images, documents and audio in messages: where they are, how large they are, and a line of text in their place.

Only blocks in lists are found: a screenshot that is the whole output of a call cannot be replaced by text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from recto.formats.json_spans import Json
from recto.formats.media_size import pages_in_base64
from recto.formats.message import copied, fields_of, image_part, object_in, text_in, weight_in

MediaKind = Literal["image", "document", "audio"]

_MARKS = (
    *(b'"image', b'"input_image"', b'"document"', b'"file"', b'"input_file"', b'"input_audio"'),
    *(b'"inlineData"', b'"inline_data"', b'"fileData"', b'"file_data"'),
)
"""What a message with media contains; most contain none, and are not parsed for it."""
_PREFIXES = (b'"i', b'"file', b'"document"')
"""What every mark begins with: to find none of these takes a third of the time."""
_MAX_DEPTH = 4
"""Blocks in results in messages; nothing is nested deeper."""


class Media(NamedTuple):
    """One image, document or piece of audio in a message."""

    kind: MediaKind
    weight: int
    """Bytes of it in the request; 0 if only an address is sent."""
    size: tuple[int, int] | None
    """Width and height of an image in pixels, if they are known."""
    pages: int = 0
    """Pages of a document, if they are known."""


def media_in(raw: bytes) -> tuple[Media, ...]:
    """Returns the media of a message, in order."""
    if not any(map(raw.__contains__, _PREFIXES)) or not any(map(raw.__contains__, _MARKS)):
        return ()
    return tuple(media for _, _, media in _found(fields_of(raw)))


def with_placeholders(raw: bytes, texts: Mapping[int, str]) -> bytes:
    """Replaces media of a message, by their place in `media_in`, by lines of text."""
    fields = copied(fields_of(raw))
    for place, (blocks, at, _) in enumerate(list(_found(fields))):
        if place in texts:
            blocks[at] = {**_text_type(fields, object_in(blocks[at])), "text": texts[place]}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _found(value: Json, depth: int = 0) -> Iterator[tuple[list[Json], int, Media]]:
    """Yields each block with media: the list it is in, its place there, and what it holds."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name in ("content", "output", "parts"):
            if isinstance(value.get(name), list):
                yield from _found(value[name], depth + 1)
    elif isinstance(value, list):
        for at, block in enumerate(value):
            if isinstance(block, dict):
                media = _media(block)
                if media is not None:
                    yield value, at, media
                else:
                    yield from _found(block, depth + 1)


def _media(block: dict[str, Json]) -> Media | None:
    match block.get("type"):
        case "image":
            source = object_in(block.get("source"))
            return _image(source.get("data") or source.get("url"))
        case "image_url" | "input_image":
            given = block.get("image_url")
            return _image(object_in(given).get("url") if isinstance(given, dict) else given)
        case "document":
            source = object_in(block.get("source"))
            return _document(source.get("data")) if source.get("type") != "text" else None
        case "file":
            return _document(object_in(block.get("file")).get("file_data"))
        case "input_file":
            return _document(block.get("file_data"))
        case "input_audio":
            return Media("audio", weight_in(object_in(block.get("input_audio")).get("data")), None)
        case None:
            return _gemini_media(block)
    return None


def _gemini_media(part: dict[str, Json]) -> Media | None:
    data = part.get("inlineData", part.get("inline_data"))
    file = object_in(part.get("fileData", part.get("file_data")))
    fields = object_in(data) or file
    kind = text_in(fields.get("mimeType", fields.get("mime_type")))
    if not fields:
        return None
    if kind.startswith("image/"):
        return _image(fields.get("data")) if data else Media("image", 0, None)
    if kind.startswith(("audio/", "video/")):
        return Media("audio", weight_in(fields.get("data")), None)
    return _document(fields.get("data"))


def _document(data: Json) -> Media:
    return Media("document", weight_in(data), None, pages_in_base64(text_in(data)))


def _image(source: Json) -> Media:
    part = image_part(text_in(source))
    return Media("image", part.weight, part.size)


def _text_type(fields: dict[str, Json], block: dict[str, Json]) -> dict[str, Json]:
    """The type of a text block beside this one: Responses has types of its own, and parts of Gemini have none."""
    if "type" not in block:
        return {}
    if text_in(block.get("type")).startswith("input_") and ("type" in fields or "output" in fields):
        return {"type": "input_text"}
    return {"type": "text"}
