"""Metrics at an address of their own, for programs that use Recto as a library; the gateway has them at `/metrics`.

`prometheus_client` brings a server too, but that one takes any number of connections, waits for each for ever, and
looks up the name of its own address when it starts.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, ClassVar

from recto.health.exporters.prometheus import Metrics

_CONNECTIONS = 8
"""Held at once; more are closed."""
_PATIENCE = 5.0
"""Seconds that somebody who is connected may be silent."""


@contextmanager
def serve_metrics(metrics: Metrics, host: str = "127.0.0.1", port: int = 9464) -> Iterator[str]:
    """Serves the metrics until the block is left. Gives their address; port 0 is any that is free.

    There is no key and no encryption: leave it on loopback, or put something before it that has both.
    """
    server = _Server((host, port), metrics)
    thread = threading.Thread(target=server.serve_forever, name="recto-metrics", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    """A slow reader does not hold up the end of the program."""

    def __init__(self, address: tuple[str, int], metrics: Metrics) -> None:
        self.metrics = metrics
        self._free = threading.BoundedSemaphore(_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would ask for the name of the address here

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as the library has them
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that has gone away is nothing to print."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    server: _Server
    server_version: ClassVar[str] = "recto"  # type: ignore[misc]
    sys_version: ClassVar[str] = ""  # type: ignore[misc]

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body, kind = self.server.metrics.exposition()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""
