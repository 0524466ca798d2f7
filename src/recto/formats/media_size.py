"""Reads the pixel size of an image (PNG, JPEG, GIF, WebP) and the number of pages of a PDF. Nothing is decoded.

Vendors charge for images by their pixels, and providers limit the pages of one request. The parser is our own because
imaging libraries decode untrusted data and are far larger than these few header fields. The page tree of a PDF is found
in plain and in compressed objects; of a file that is encrypted or damaged the number is not known.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Iterator
from typing import TypeAlias

Size: TypeAlias = tuple[int, int]

_FIRST_LOOK = 4096
"""Characters of base64 that contain the size of nearly every image; a JPEG with long metadata needs more."""

_JPEG = b"\xff\xd8"
_URL_ALPHABET = str.maketrans("-_", "+/", " \t\r\n")
_NO_SIZE_HERE = frozenset({0xC4, 0xC8, 0xCC})  # tables and extensions among the frame markers of JPEG
_BARE_MARKERS = frozenset({0x01, *range(0xD0, 0xD9)})  # markers without a length
_PDF_IN_BASE64 = "JVBERi"
"""How `%PDF-` begins in base64."""
_TYPE = re.compile(rb"/Type\s{0,8}/")
_TREE = re.compile(rb"/Type\s{0,8}/Pages(?![A-Za-z])")
_PAGE = re.compile(rb"/Type\s{0,8}/Page(?![A-Za-z])")
_COUNT = re.compile(rb"/Count\s{0,8}(\d{1,6})(?!\d)")
_OBJECT_STREAM = re.compile(rb"/ObjStm(?![A-Za-z])")
_NEAR = 16_384
"""Bytes on both sides of a node's type in which its count is searched: between them are its children."""
_MAX_STREAMS, _MAX_STREAM_BYTES = 256, 1 << 22
"""Compressed objects that are read, and bytes of each."""


def size_of_base64(text: str) -> Size | None:
    """Returns width and height of a base64 image; `None` if its format is unknown."""
    first = _decode(text[:_FIRST_LOOK])
    size = pixel_size(first)
    if size is None and first.startswith(_JPEG) and len(text) > _FIRST_LOOK:
        size = pixel_size(_decode(text))
    return size


def pixel_size(data: bytes) -> Size | None:
    """Returns width and height of an image; `None` if its format is unknown or its header incomplete."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR" and len(data) >= 24:
        return _valid_size(int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return _valid_size(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp(data)
    if data.startswith(_JPEG):
        return _jpeg(data)
    return None


def _webp(data: bytes) -> Size | None:
    chunk = data[12:16]
    if chunk == b"VP8X":
        return _valid_size(1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little"))
    if chunk == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return _valid_size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if chunk == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return _valid_size(width & 0x3FFF, height & 0x3FFF)
    return None


def _jpeg(data: bytes) -> Size | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # filler
            at += 1
        elif marker in _BARE_MARKERS:
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE_HERE:
            return _valid_size(
                int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
            )
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _valid_size(width: int, height: int) -> Size | None:
    return (width, height) if width > 0 and height > 0 else None


def _decode(text: str) -> bytes:
    clean = text.translate(_URL_ALPHABET).rstrip("=")
    try:
        return binascii.a2b_base64(clean[: len(clean) // 4 * 4])
    except ValueError:  # not base64 at all
        return b""


def pages_in_base64(text: str) -> int:
    """Returns the number of pages of a PDF in base64, or in a data URL; 0 if it is none or the number is not known."""
    if text.startswith("data:"):
        text = text[text.find(",", 0, 200) + 1 :]
    if not text.startswith(_PDF_IN_BASE64):
        return 0
    try:
        return _pages(binascii.a2b_base64(text))
    except (binascii.Error, ValueError):
        return 0


def _pages(data: bytes) -> int:
    counts = [0]
    singles = 0
    for objects in (data, *_compressed_objects(data)):
        counts += (_count_of(objects, match) for match in _TREE.finditer(objects))
        singles += sum(1 for _ in _PAGE.finditer(objects))
    return max(counts) or singles  # the root of the tree counts all pages


def _count_of(data: bytes, node: re.Match[bytes]) -> int:
    """The count of a node of the page tree, which comes after or before its type."""
    following = _TYPE.search(data, node.end(), node.end() + _NEAR)
    after = _COUNT.search(data, node.end(), following.start() if following else node.end() + _NEAR)
    if after:
        return int(after[1])
    before = data[max(node.start() - _NEAR, 0) : node.start()]
    last = before.rfind(b"/Type")
    counts = _COUNT.findall(before[last + 1 :])
    return int(counts[-1]) if counts else 0


def _compressed_objects(data: bytes) -> Iterator[bytes]:
    for number, match in enumerate(_OBJECT_STREAM.finditer(data)):
        start = data.find(b"stream", match.end(), match.end() + 2_000)
        if number >= _MAX_STREAMS:
            return
        if start >= 0:
            body = data[start + 6 : start + 6 + _MAX_STREAM_BYTES].lstrip(b"\r\n")
            try:
                yield zlib.decompressobj().decompress(body, _MAX_STREAM_BYTES)
            except zlib.error:
                continue
