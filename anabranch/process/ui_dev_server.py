"""The development server of the web UI: Vite, which reloads changed sources in the browser."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from anabranch.process.data_folder import ServerInfo
from anabranch.process.tcp_ports import find_free_port
from schemas.errors import ConfigurationError, FatalError

CHECKOUT = Path(__file__).parents[2]
HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0
"""Includes the installation of the packages, the first time."""
STOP_TIMEOUT_S = 5.0


def check_ui_sources(checkout: Path = CHECKOUT) -> None:
    """Raise ConfigurationError unless this program runs from a checkout with its build tools."""
    if not (checkout / "web" / "package.json").is_file():
        raise ConfigurationError(
            f"--ui-dev needs the sources of the web UI, which {checkout} does not contain.",
            code="NO_CHECKOUT",
            remedy="Run it from a checkout: `git clone`, `make install`, `.venv/bin/anabranch up`.",
        )
    if not _find_build_python(checkout).exists():
        raise ConfigurationError(
            f"--ui-dev needs {_find_build_python(checkout)}, which does not exist.",
            code="NO_CHECKOUT",
            remedy=f"Run `make install` in {checkout}.",
        )


def _find_build_python(checkout: Path) -> Path:
    return checkout / "build" / "uv" / "bin" / "python"


@asynccontextmanager
async def run_ui_dev_server(server: ServerInfo, checkout: Path = CHECKOUT) -> AsyncIterator[str]:
    """Yield the address of the web UI with a proxy to the API, which adds the operator's token.

    Raises FatalError if it does not start.
    """
    port = find_free_port(HOST)
    process = await asyncio.create_subprocess_exec(
        str(_find_build_python(checkout)),
        "hatch_build.py",
        *("npm", "run", "dev", "--", "--port", str(port), "--strictPort"),
        cwd=checkout,
        env={**os.environ, "ANABRANCH_UI_API": server.url, "ANABRANCH_UI_TOKEN": server.token},
        stdin=asyncio.subprocess.DEVNULL,
        # stdout is for results.
        stdout=sys.stderr,
        # npm does not pass signals on, so that all of it gets a group of its own.
        process_group=0,
    )
    try:
        await _wait_until_listening(process, port)
        yield f"http://{HOST}:{port}/ui/"
    finally:
        await _stop_group(process)


async def _wait_until_listening(process: asyncio.subprocess.Process, port: int) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_TIMEOUT_S
    while process.returncode is None and loop.time() < deadline:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
    raise FatalError(
        "The development server of the web UI did not start; its own message is above.",
        code="MISCONFIGURED",
        remedy="Run `make web` to see whether the web UI builds.",
    )


async def _stop_group(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
            return
