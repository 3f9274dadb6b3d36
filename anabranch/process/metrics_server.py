"""Serve a worker's `/metrics` from a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

STOP_POLL_S = 0.05


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Do not log scrapes."""


@contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> Iterator[str]:
    """Yield the URL. Raises OSError if the port is taken."""
    server = make_server(host, port, make_wsgi_app(registry), handler_class=_SilentHandler)
    thread = threading.Thread(
        target=server.serve_forever, args=(STOP_POLL_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
