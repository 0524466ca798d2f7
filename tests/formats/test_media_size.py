"""Image dimensions, read from the first bytes of the file."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.formats import read
from recto.formats.media_size import pixel_size, size_of_base64


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(9)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(3)


def jpeg(width: int, height: int, preamble: int = 0) -> bytes:
    segments = b"".join(b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000) for _ in range(preamble))
    frame = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + bytes(10)
    return b"\xff\xd8" + b"\xff\xc4" + struct.pack(">H", 4) + b"ab" + segments + b"\xff" + frame + b"\xff\xd9"


def webp(kind: bytes, width: int, height: int) -> bytes:
    body = {
        b"VP8X": bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        b"VP8L": b"\x2f" + (width - 1 | height - 1 << 14).to_bytes(4, "little") + bytes(5),
        b"VP8 ": bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }[kind]
    return b"RIFF" + struct.pack("<I", 4 + 8 + len(body)) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


IMAGES = {
    "png": png(1280, 720),
    "gif": gif(1280, 720),
    "jpeg": jpeg(1280, 720),
    "jpeg with a long preamble": jpeg(1280, 720, preamble=3),
    "webp extended": webp(b"VP8X", 1280, 720),
    "webp lossless": webp(b"VP8L", 1280, 720),
    "webp lossy": webp(b"VP8 ", 1280, 720),
}


@pytest.mark.parametrize("name", IMAGES)
def test_the_size_is_read_from_the_header(name):
    assert pixel_size(IMAGES[name]) == (1280, 720)
    assert size_of_base64(base64.b64encode(IMAGES[name]).decode()) == (1280, 720)
    assert size_of_base64(base64.urlsafe_b64encode(IMAGES[name]).decode().rstrip("=")) == (1280, 720)
    assert size_of_base64(base64.encodebytes(IMAGES[name]).decode()) == (1280, 720)


@pytest.mark.parametrize(
    "data", [b"", b"%PDF-1.7", png(0, 5), png(7, 7)[:20], b"\xff\xd8\xff\xff\xff", jpeg(9, 9)[:12]]
)
def test_data_without_a_size_returns_none(data):
    assert pixel_size(data) is None


@given(
    st.binary(max_size=60)
    | st.tuples(st.sampled_from(list(IMAGES.values())), st.binary(max_size=40)).map(lambda pair: pair[0][:20] + pair[1])
)
def test_no_bytes_make_the_reader_raise(data):
    assert pixel_size(data) is None or min(pixel_size(data)) > 0


@given(st.text(max_size=60))
def test_no_base64_text_makes_the_reader_raise(text):
    size_of_base64(text)


def test_each_format_finds_the_image_in_its_message():
    data = base64.b64encode(png(640, 480)).decode()
    url = f"data:image/png;base64,{data}"
    chat = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, "detail": "low"}}]}
    responses = {"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "high"}]}
    anthropic = {
        "role": "user",
        "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}],
    }
    shot = {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": url}}
    found = [
        read(json.dumps(message).encode(), wire).parts[-1]
        for message, wire in (
            (chat, "openai.chat"),
            (responses, "openai.responses"),
            (anthropic, "anthropic.messages"),
            (shot, "openai.responses"),
        )
    ]
    assert [(part.kind, part.size, part.detail) for part in found] == [
        ("image", (640, 480), "low"),
        ("image", (640, 480), "high"),
        ("image", (640, 480), ""),
        ("image", (640, 480), ""),
    ]
    assert all(part.weight == len(data) for part in found)
