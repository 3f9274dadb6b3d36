"""An ASGI application on a free port of this machine, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def run_asgi_app(app: Any) -> Iterator[str]:
    """Gives `http://127.0.0.1:PORT`, answering from the first moment; the thread has ended when the
    context is left.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(
            app, log_level="error", ws="none", lifespan="off", timeout_graceful_shutdown=1
        )
    )
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])),
        name="fake-server",
        daemon=True,
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
