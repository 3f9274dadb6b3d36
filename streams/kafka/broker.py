"""A single Kafka node (KRaft) in a data folder, started, stopped and found again by whoever has the folder."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from schemas.errors import ConfigurationError, FatalError
from streams.kafka.jars import default_jars_dir, fetch_jars, java_program, missing_prerequisite

__all__ = ["Broker", "BrokerStatus", "missing_prerequisite"]

_START_ATTEMPTS, _STOP_ATTEMPTS, _PAUSE_S = 600, 150, 0.1
_RESOURCES = resources.files(__package__)


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    running: bool
    pid: int | None
    bootstrap_servers: str | None
    log_file: Path


class Broker:
    """The node of one data folder. Its ports stay the same from start to start unless another one is asked for.
    The process outlives the program that started it; `stop` works from any other. `properties` are Kafka's own, and come after ours."""

    def __init__(self, data_dir: Path, *, port: int = 0, heap_mb: int = 512, jars_dir: Path | None = None, properties: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "kafka.log"
        self._port = port
        self._heap_mb = heap_mb
        self._jars_dir = jars_dir or default_jars_dir()
        self._own_properties = dict(properties or {})
        self._pid_file = self.data_dir / "kafka.pid"
        self._properties = self.data_dir / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port. Raises ConfigurationError before the first start."""
        listener = self._saved_port("PLAINTEXT")
        if listener is None:
            raise ConfigurationError(f"No Kafka was ever started in {self.data_dir}.", remedy="Start it with `anabranch kafka start`.")
        return f"127.0.0.1:{listener}"

    def status(self) -> BrokerStatus:
        pid = self._pid()
        return BrokerStatus(pid is not None, pid, self.bootstrap_servers if pid else None, self.log_file)

    async def start(self) -> None:
        """Returns when the node answers; does nothing if it runs already. The first start fetches the jars (about a minute).
        Raises ConfigurationError without Java or Maven, FatalError with the end of its log when it does not come up."""
        if self._pid() is not None:
            return
        jars = await fetch_jars(self._jars_dir)
        self._write_configuration()
        await self._format(jars)
        self._launch(jars)
        try:
            await self._wait_until_it_answers()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the node, by force after 15 s; does nothing if none runs."""
        for wish in (signal.SIGTERM, signal.SIGKILL):
            if await self._ended_after(wish):
                break
        self._pid_file.unlink(missing_ok=True)
        self._process = None

    async def _ended_after(self, wish: signal.Signals) -> bool:
        pid = self._pid()
        if pid is None:
            return True
        os.kill(pid, wish)
        for _ in range(_STOP_ATTEMPTS):
            await asyncio.sleep(_PAUSE_S)
            if self._pid() is None:
                return True
        return False

    def _pid(self) -> int | None:
        """The running node's process, or None. A recycled number is not taken for it: the command line names our configuration."""
        if self._process is not None:
            return self._process.pid if self._process.poll() is None else None
        with suppress(OSError, ValueError):
            pid = int(self._pid_file.read_text())
            if str(self._properties) in _command_line(pid):
                return pid
        return None

    def _write_configuration(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.chmod(0o700)  # its log holds what producers sent, in the clear
        settings = {
            "port": self._port or _free_port(self._saved_port("PLAINTEXT")),
            # The controllers' addresses are part of the cluster's own metadata: this one never changes.
            "controller_port": self._saved_port("CONTROLLER") or _free_port(None),
            "log_dir": self.data_dir / "log",
        }
        own = "".join(f"{name}={value}\n" for name, value in self._own_properties.items())
        self._properties.write_text((_RESOURCES / "server.properties").read_text().format_map(settings) + own)
        (self.data_dir / "log4j2.properties").write_text((_RESOURCES / "log4j2.properties").read_text())

    def _saved_port(self, listener: str) -> int | None:
        if not self._properties.exists():
            return None
        found = re.search(rf"^listeners=.*\b{listener}://127\.0\.0\.1:(\d+)", self._properties.read_text(), re.MULTILINE)
        return int(found[1]) if found else None

    async def _format(self, jars: Path) -> None:
        if (self.data_dir / "log" / "meta.properties").exists():
            return
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "--ignore-formatted", "-t", _cluster_id(), "-c", str(self._properties)]
        process = await asyncio.create_subprocess_exec(*self._java(jars, 128), *tool, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise FatalError(f"Kafka could not format {self.data_dir}: {output.decode(errors='replace').strip()[-600:]}", code="KAFKA_START")

    def _java(self, jars: Path, heap_mb: int) -> list[str]:
        small_and_quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
        logging = f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}"
        return [java_program() or "java", f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", *small_and_quick, logging, "-cp", f"{jars}/*"]

    def _launch(self, jars: Path) -> None:
        with self.log_file.open("ab") as log:
            command = [*self._java(jars, self._heap_mb), "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, cwd=self.data_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self._pid_file.write_text(str(self._process.pid))

    async def _wait_until_it_answers(self) -> None:
        port = int(self.bootstrap_servers.rpartition(":")[2])
        for _ in range(_START_ATTEMPTS):
            if await _answers(port):
                return
            if self._pid() is None:
                raise self._did_not_start("ended")
            await asyncio.sleep(_PAUSE_S)
        raise self._did_not_start("does not answer")

    def _did_not_start(self, what: str) -> FatalError:
        tail = self.log_file.read_text(errors="replace").strip()[-800:]
        return FatalError(
            f"Kafka {what} after its start; its log ends: {tail}", code="KAFKA_START", remedy=f"Read {self.log_file}; a taken port is changed with --port."
        )


def _cluster_id() -> str:
    """A random id as Kafka writes them: 16 bytes in URL-safe base64, never with a dash in front (its tools would take it for an option)."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _free_port(wanted: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError:
            return _free_port(None)
        return int(probe.getsockname()[1])


async def _answers(port: int) -> bool:
    """Whether a Kafka node serves requests there: it opens its port to requests when it has joined its cluster. Asks ApiVersions, version 0."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        await asyncio.wait_for(reader.readexactly(8), timeout=5)
    except (OSError, EOFError, TimeoutError):
        return False
    finally:
        writer.close()
    return True


def _command_line(pid: int) -> str:
    """What runs under this number; empty for a process that has ended and waits to be reaped. Raises OSError when there is none."""
    process = Path(f"/proc/{pid}")
    if Path("/proc/self").exists():
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
