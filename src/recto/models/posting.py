"""Something sent to an address of the user's own, as JSON: whether it was taken is all that is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recto.models.http import Endpoint
from recto.ports import Cancelled

_ANSWER_MOST = 64 * 1024


class Posting:
    """Sends a body within so many seconds, other attempts included.

    Any 2xx means that it was taken. Redirects are not followed, and the key goes into one header and nowhere else.
    """

    def __init__(
        self, url: str, *, setting: str, key: str = "", seconds: float = 5.0, content_type: str = "application/json"
    ) -> None:
        slash = "/" if url.partition("?")[0].endswith("/") else ""  # an address is used as it was written
        headers = {"Content-Type": content_type}
        self._endpoint = Endpoint(url=url, path=slash, setting=setting, key=key, headers=headers)
        self._seconds = seconds

    def __call__(self, body: Mapping[str, Any], cancelled: Cancelled) -> str:
        """Nothing where it was taken, else why not."""
        got = self._endpoint.post(body, seconds=self._seconds, most=_ANSWER_MOST, cancelled=cancelled)
        return "" if isinstance(got, bytes) or 200 <= got.status < 300 else got.reason

    def close(self) -> None:
        """Lets go of its connections."""
        self._endpoint.close()
