"""A single Kafka node (KRaft) in a data folder, from jars of Maven Central.

Any process with access to the folder can start, find and stop it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

from schemas.errors import ConfigurationError, FatalError

MIN_JAVA_VERSION = 17
_POM = resources.files(__package__) / "pom.xml"


def read_kafka_version() -> str:
    """Read the version pinned in `pom.xml`."""
    tree = ElementTree.fromstring(_POM.read_text())
    return str(tree.findtext("{*}properties/{*}kafka"))


def get_default_jars_dir() -> Path:
    """Return the user's folder for the jars of this version, shared by all data folders."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "anabranch" / f"kafka-{read_kafka_version()}"


def find_java() -> str | None:
    """Find `java` in JAVA_HOME, else on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (java_path := shutil.which("java", path=str(Path(home) / "bin"))):
        return java_path
    return shutil.which("java")


def parse_java_major(version_text: str) -> int | None:
    """Parse the feature release from the output of `java -version`: 17 for "17.0.15", 8 for
    "1.8.0_392".
    """
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match[1]) if match else None


def find_missing_prerequisite(jars_dir: Path | None = None) -> str | None:
    """Describe in one sentence what this machine lacks to run Kafka, or return None.

    Maven is needed only until the jars are fetched.
    """
    java_path = find_java()
    if java_path is None:
        return (
            f"Java {MIN_JAVA_VERSION} or later is not installed (no `java` on the path and no "
            "JAVA_HOME)."
        )
    version_output = subprocess.run(
        [java_path, "-version"], capture_output=True, text=True, check=False
    )
    major = parse_java_major(version_output.stderr + version_output.stdout)
    if major is None or major < MIN_JAVA_VERSION:
        return (
            f"{java_path} is Java {major or 'of an unknown version'}; Kafka needs Java "
            f"{MIN_JAVA_VERSION} or later."
        )
    if not (jars_dir or get_default_jars_dir()).is_dir() and shutil.which("mvn") is None:
        return "Maven (`mvn`) is not installed, and Kafka's jars have not been fetched yet."
    return None


async def fetch_jars(jars_dir: Path) -> Path:
    """Return the folder with all jars, fetching them by Maven if it does not exist (about a
    minute).

    Several processes may fetch at once. Raises ConfigurationError if Java or Maven is missing or
    Maven fails.
    """
    problem = await asyncio.to_thread(find_missing_prerequisite, jars_dir)
    if problem:
        raise ConfigurationError(
            problem,
            code="KAFKA_PREREQUISITE",
            remedy=(
                "Install a JDK 17+ and Maven (Debian: openjdk-17-jre-headless, maven), or use "
                "the embedded log."
            ),
        )
    if not jars_dir.is_dir():
        await asyncio.to_thread(jars_dir.parent.mkdir, parents=True, exist_ok=True)
        await _download(jars_dir)
    return jars_dir


async def _download(jars_dir: Path) -> None:
    # Into a scratch folder that is renamed at the end, so that the folder appears complete or not
    # at all.
    with (
        tempfile.TemporaryDirectory(dir=jars_dir.parent) as scratch,
        resources.as_file(_POM) as pom,
    ):
        download_dir = Path(scratch) / "jars"
        arguments = [
            "-B",
            "-q",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={download_dir}",
        ]
        process = await asyncio.create_subprocess_exec(
            "mvn",
            *arguments,
            # Maven may run the extensions that `.mvn` in the working directory names.
            cwd=scratch,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise ConfigurationError(
                "Maven failed to fetch Kafka's jars: "
                f"{output.decode(errors='replace').strip()[-600:]}",
                code="KAFKA_JARS",
                remedy=(
                    "Check that Maven Central, or a mirror in ~/.m2/settings.xml, is reachable, "
                    "and try again."
                ),
            )
        try:
            download_dir.rename(jars_dir)
        except OSError:
            if not jars_dir.is_dir():  # else another process was faster, with the same jars
                raise


__all__ = ["Broker", "BrokerStatus", "find_missing_prerequisite"]

_START_CHECKS, _STOP_CHECKS, _CHECK_INTERVAL_S = 600, 150, 0.1
_RESOURCES = resources.files(__package__)


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    is_running: bool
    pid: int | None
    bootstrap_servers: str | None
    log_file: Path


class Broker:
    """The node of one data folder.

    Its ports stay the same across starts unless `port` names another. The process outlives the
    program that started it. `properties` are Kafka's own and override ours.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        heap_mb: int = 512,
        jars_dir: Path | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.log_file = self.data_dir / "kafka.log"
        self._port = port
        self._heap_mb = heap_mb
        self._jars_dir = jars_dir or get_default_jars_dir()
        self._extra_properties = dict(properties or {})
        self._pid_file = self.data_dir / "kafka.pid"
        self._properties_file = self.data_dir / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return host:port. Raises ConfigurationError before the first start."""
        listener = self._read_saved_port("PLAINTEXT")
        if listener is None:
            raise ConfigurationError(
                f"Kafka has never been started in {self.data_dir}.",
                remedy="Start it with `anabranch kafka start`.",
            )
        return f"127.0.0.1:{listener}"

    def status(self) -> BrokerStatus:
        pid = self._find_pid()
        return BrokerStatus(
            pid is not None, pid, self.bootstrap_servers if pid else None, self.log_file
        )

    async def start(self) -> None:
        """Start the node and wait until it answers; do nothing if it is running.

        The first start fetches the jars (about a minute). Raises ConfigurationError without Java or
        Maven, and FatalError with the end of the node's log if it does not start.
        """
        if self._find_pid() is not None:
            return
        jars = await fetch_jars(self._jars_dir)
        self._write_configuration()
        await self._format_storage(jars)
        self._launch(jars)
        try:
            await self._wait_until_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the node, by SIGKILL after 15 s; do nothing if it is not running."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            pid = self._find_pid()
            if pid is None:
                break
            os.kill(pid, signal_number)
            for _ in range(_STOP_CHECKS):
                await asyncio.sleep(_CHECK_INTERVAL_S)
                if self._find_pid() is None:
                    break
        self._pid_file.unlink(missing_ok=True)
        self._process = None

    def _find_pid(self) -> int | None:
        # Our own child: `poll` also reaps it, or it would stay a zombie after its end.
        if self._process is not None:
            return self._process.pid if self._process.poll() is None else None
        with suppress(OSError, ValueError):
            pid = int(self._pid_file.read_text())
            # Another process may have got the number; the node's command line names its
            # configuration.
            if str(self._properties_file) in _read_command_line(pid):
                return pid
        return None

    def _write_configuration(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.chmod(0o700)  # topic `raw` is not encrypted
        settings = {
            "port": self._port or _find_free_port(self._read_saved_port("PLAINTEXT")),
            # The controller's address is part of the cluster metadata, so its port never changes.
            "controller_port": self._read_saved_port("CONTROLLER") or _find_free_port(None),
            "log_dir": self.data_dir / "log",
        }
        extra_lines = "".join(f"{name}={value}\n" for name, value in self._extra_properties.items())
        self._properties_file.write_text(
            (_RESOURCES / "server.properties").read_text().format_map(settings) + extra_lines
        )
        (self.data_dir / "log4j2.properties").write_text(
            (_RESOURCES / "log4j2.properties").read_text()
        )

    def _read_saved_port(self, listener: str) -> int | None:
        if not self._properties_file.exists():
            return None
        match = re.search(
            rf"^listeners=.*\b{listener}://127\.0\.0\.1:(\d+)",
            self._properties_file.read_text(),
            re.MULTILINE,
        )
        return int(match[1]) if match else None

    async def _format_storage(self, jars: Path) -> None:
        if (self.data_dir / "log" / "meta.properties").exists():
            return
        # StorageTool parses an id with a leading dash as an option.
        cluster_id = "-"
        while cluster_id.startswith("-"):
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "--ignore-formatted",
            "-t",
            cluster_id,
            "-c",
            str(self._properties_file),
        ]
        process = await asyncio.create_subprocess_exec(
            *self._build_java_command(jars, 128),
            *tool,
            cwd=self.data_dir,  # the JVM reads files such as .hotspotrc in its working directory
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise FatalError(
                f"Kafka could not format {self.data_dir}: "
                f"{output.decode(errors='replace').strip()[-600:]}",
                code="KAFKA_START",
            )

    def _build_java_command(self, jars: Path, heap_mb: int) -> list[str]:
        # For a small node: less memory and a faster start, and no broker that lingers without
        # memory.
        jvm_options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
        logging_option = f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}"
        return [
            find_java() or "java",
            f"-Xms{heap_mb}m",
            f"-Xmx{heap_mb}m",
            *jvm_options,
            logging_option,
            "-cp",
            f"{jars}/*",
        ]

    def _launch(self, jars: Path) -> None:
        with self.log_file.open("ab") as log_stream:
            command = [
                *self._build_java_command(jars, self._heap_mb),
                "kafka.Kafka",
                str(self._properties_file),
            ]
            self._process = subprocess.Popen(
                command,
                cwd=self.data_dir,
                stdin=subprocess.DEVNULL,
                stdout=log_stream,
                stderr=log_stream,
                # The node outlives this program and its terminal's signals.
                start_new_session=True,
            )
        self._pid_file.write_text(str(self._process.pid))

    async def _wait_until_ready(self) -> None:
        port = int(self.bootstrap_servers.rpartition(":")[2])
        for _ in range(_START_CHECKS):
            if await _is_serving(port):
                return
            if self._find_pid() is None:
                raise self._build_start_error("ended")
            await asyncio.sleep(_CHECK_INTERVAL_S)
        raise self._build_start_error("did not answer")

    def _build_start_error(self, problem: str) -> FatalError:
        tail = self.log_file.read_text(errors="replace").strip()[-800:]
        return FatalError(
            f"Kafka {problem} after its start. The end of its log: {tail}",
            code="KAFKA_START",
            remedy=f"Read {self.log_file}. If the port is taken, use --port.",
        )


def _find_free_port(preferred_port: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred_port or 0))
        except OSError:
            return _find_free_port(None)
        return int(probe.getsockname()[1])


async def _is_serving(port: int) -> bool:
    """Return whether a Kafka node answers ApiVersions (version 0), which it does only as a member
    of its cluster.
    """
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        # Size, api key, version, correlation id, and a null client id.
        writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        async with asyncio.timeout(5):
            await reader.readexactly(8)
    except (OSError, EOFError, TimeoutError):
        return False
    finally:
        writer.close()
    return True


def _read_command_line(pid: int) -> str:
    """Return the command line of a process; empty for a zombie.

    Raises OSError if there is no such process.
    """
    process_dir = Path(f"/proc/{pid}")
    if Path("/proc/self").exists():
        return (process_dir / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
