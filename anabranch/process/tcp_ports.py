"""TCP ports to listen on."""

from __future__ import annotations

import asyncio
import errno
import socket

from schemas.errors import ConfigurationError

RETRY_S = 0.2


async def wait_for_free_port(
    host: str, port: int, *, option: str = "--port", timeout_s: float = 0.0
) -> None:
    """Wait until the port is free. `option` names it on the command line.

    Raises ConfigurationError if it stays taken, or if this machine does not have the address.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        try:
            _bind_port(host, port)
            return
        except OSError as error:
            # Only a taken port can become free.
            if error.errno != errno.EADDRINUSE or loop.time() >= deadline:
                raise _build_port_error(host, port, option, error) from error
        await asyncio.sleep(RETRY_S)


def find_free_port(host: str) -> int:
    return _bind_port(host, 0)


def _bind_port(host: str, port: int) -> int:
    """Bind and release the port; returns its number."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        # Connections of an earlier server in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        return int(probe.getsockname()[1])


def _build_port_error(host: str, port: int, option: str, error: OSError) -> ConfigurationError:
    if error.errno == errno.EADDRINUSE:
        return ConfigurationError(
            f"Port {port} of {host} is taken.",
            code="PORT_IN_USE",
            remedy=f"Choose another with {option} (0 takes a free one).",
        )
    reason = error.strerror or str(error)
    return ConfigurationError(
        f"Cannot listen on {host}:{port}: {reason}.",
        code="BAD_ADDRESS",
        remedy="Use an address of this machine and a port above 1023.",
    )
