"""Standalone `/metrics` server for programs that use Recto as a library; the gateway has its own endpoint.

`prometheus_client.start_http_server` is not used: it accepts any number of connections, has no read timeout, serves the
metrics at every path, and resolves its own host name at start, which can block.
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

_MAX_CONNECTIONS = 8
"""Open connections; more are closed at once."""
_READ_TIMEOUT = 5.0
"""Seconds that a client may be silent."""


@contextmanager
def serve_metrics(metrics: Metrics, host: str = "127.0.0.1", port: int = 9464) -> Iterator[str]:
    """Serve the metrics until the block is left. Yields their URL; port 0 picks a free port.

    There is no authentication and no encryption: keep it on loopback, or put a proxy in front of it.
    """
    server = _Server((host, port), metrics)
    thread = threading.Thread(target=server.serve_forever, name="recto-metrics", daemon=True)
    thread.start()
    try:
        host_in_url = f"[{host}]" if ":" in host else host
        yield f"http://{host_in_url}:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    """A slow client does not delay the end of the program."""

    def __init__(self, address: tuple[str, int], metrics: Metrics) -> None:
        self.metrics = metrics
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer would resolve the host name here

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # types of the base class
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _READ_TIMEOUT
    server: _Server
    server_version: ClassVar[str] = "recto"  # type: ignore[misc]
    sys_version: ClassVar[str] = ""  # type: ignore[misc]

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        body, content_type = self.server.metrics.exposition()
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""
