"""Serves the web page: one document, one script, one style sheet, as built into the package.

The document needs no key, because it contains no data; everything it shows it requests with a key. Its content security
policy lets a browser load scripts, styles and images only from this gateway, connect only to this gateway, and run no
inline code. No text can become markup: the page's one trusted-types policy (web/src/main) accepts only the empty text.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from recto.version import __version__

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types default"
)
FILES: Final = {
    "app.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files of the page, with their media types."""
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


class StaticFiles:
    """The files of the page, read once."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or Path(str(files("recto"))) / "web"
        self._document = _read(folder / "index.html")
        self._files = {name: found for name in FILES if (found := _read(folder / name)) is not None}

    def routes(self) -> list[Route]:
        """Return the routes of the document and of each file."""
        return [Route("/", self._send_document), *(Route(f"/web/{name}", self._send_file) for name in FILES)]

    async def _send_document(self, request: Request) -> Response:
        if self._document is None or "text/html" not in request.headers.get("accept", ""):
            info = {"name": "recto", "version": __version__, "api": "/api/v1/openapi.json"}
            return JSONResponse(info if self._document is not None else info | {"page": "not built: make web"})
        return Response(self._document, media_type="text/html; charset=utf-8", headers={**_HEADERS, "vary": "Accept"})

    async def _send_file(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        body = self._files.get(name)
        if body is None:
            return JSONResponse({"error": {"code": "not_found", "message": "the page is not built: make web"}}, 404)
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {**_HEADERS, "cache-control": "no-cache", "etag": etag, "vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["content-encoding"] = _gzipped(body), "gzip"
        return Response(body, media_type=FILES[name], headers=headers)


@lru_cache(maxsize=len(FILES))
def _gzipped(body: bytes) -> bytes:
    """A file as it is sent compressed; made when it is first requested, so that the gateway starts sooner."""
    return gzip.compress(body, mtime=0)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
