"""Reads the number of pages of a PDF from its page tree. Nothing is rendered.

Providers limit the pages of one request. The tree is found in plain and in compressed objects; of a file that is
encrypted or damaged the number is not known.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Iterator

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
