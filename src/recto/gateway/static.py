"""The page: one document, one script, one style sheet, as they were built into the package. Knows nothing of sessions.

The document is given to anybody, for there is nothing in it; whatever it shows it asks for with a key. Its policy lets
a browser take scripts, styles and pictures from this gateway alone and talk to this gateway alone, and run nothing
that stands in the document itself. No text can become markup in it: the one rule it may make for that (web/src/main)
lets only the empty text through.
"""

from __future__ import annotations

import gzip
import hashlib
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
"""What belongs to the page, and what each is."""
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
        self._packed = {name: gzip.compress(found, mtime=0) for name, found in self._files.items()}

    def routes(self) -> list[Route]:
        """The document, and one route for each file."""
        return [Route("/", self._show), *(Route(f"/web/{name}", self._give) for name in FILES)]

    async def _show(self, request: Request) -> Response:
        if self._document is None or "text/html" not in request.headers.get("accept", ""):
            about = {"name": "recto", "version": __version__, "api": "/api/v1/openapi.json"}
            return JSONResponse(about if self._document is not None else about | {"page": "not built: make web"})
        return Response(self._document, media_type="text/html; charset=utf-8", headers={**_HEADERS, "vary": "Accept"})

    async def _give(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        body = self._files.get(name)
        if body is None:
            return JSONResponse({"error": {"code": "not_found", "message": "the page is not built: make web"}}, 404)
        mark = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {**_HEADERS, "cache-control": "no-cache", "etag": mark, "vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["content-encoding"] = self._packed[name], "gzip"
        return Response(body, media_type=FILES[name], headers=headers)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
