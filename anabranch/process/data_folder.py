"""The data folder: its lock, its owner and the server that runs in it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from anabranch.config.loader import CHOICE_FILE
from anabranch.config.settings import Settings
from engines.disk import write_private
from schemas.errors import ConfigurationError
from sql.embedded.host import find_server_account

LOCK_FILE = "anabranch.lock"
SERVER_FILE = "server.json"
LOG_KIND_FILE = "log-kind"
COMMANDS_LOG_FILE, UP_LOG_FILE = "commands.log", "up.log"
"""Logs of commands that ran a server, and of `anabranch up`."""
OWN_NAMES = frozenset(
    {
        LOCK_FILE,
        SERVER_FILE,
        LOG_KIND_FILE,
        "anabranch.toml",
        "profiles",
        "postgres",
        "blobs",
        "kafka",
        "master.key",
        "link.key",
        "shares.key",
        COMMANDS_LOG_FILE,
        UP_LOG_FILE,
    }
)
"""Names in a data folder. One of them identifies it, also before the first start and after a
restore, except the common names beside other files.
"""
_COMMON_NAMES = frozenset({"profiles", "blobs", "kafka"})
"""Own names that folders of other programs have too, as a source tree has `profiles`."""
_WORK_NAMES = frozenset({"models", "run", "tmp", "approvals.json", CHOICE_FILE})
"""Other names in a data folder, which identify none."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Report of `up` once it is ready, stored in the data folder."""

    url: str
    token: str
    """Bearer token of the operator. Stored in files of mode 0600 only."""
    database_url: str | None
    """URL of the embedded Postgres, without password; None for an external database."""
    mode: str
    log: str
    pid: int
    data_dir: str
    persistent: bool
    worker_metrics_url: str | None = None
    outdated: str | None = None
    """Stages that this version leaves to another one, with the remedy."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder.

    Raises ConfigurationError with code DATA_DIR_IN_USE if another process holds it. A killed holder
    leaves no lock.
    """
    make_folder(folder)
    try:
        lock_file = (folder / LOCK_FILE).open("a")
    except OSError as error:
        raise _build_unusable_error(folder, error) from error
    with lock_file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _build_in_use_error(folder) from None
        yield


def make_folder(folder: Path) -> None:
    """Create the folder with mode 0700, whatever the umask.

    Raises ConfigurationError with code DATA_DIR_UNUSABLE, or NOT_A_DATA_FOLDER if it holds other
    files.
    """
    check_data_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _restrict_access(folder)
    except OSError as error:
        raise _build_unusable_error(folder, error) from error


def _restrict_access(folder: Path) -> None:
    """As root, let the account that runs Postgres pass through without listing.

    Leave another account's folder unchanged.
    """
    if folder.stat().st_uid != os.geteuid():
        return
    account = find_server_account()
    if account is None:
        folder.chmod(0o700)
    else:
        os.chown(folder, -1, account.pw_gid)
        folder.chmod(0o710)


def check_data_folder(folder: Path) -> None:
    """Raise ConfigurationError with code NOT_A_DATA_FOLDER if nothing identifies the folder.

    Hidden files do not count.
    """
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return  # it is not there yet, or cannot be used: `make_folder` says why
    own_names = OWN_NAMES & set(names)
    has_foreign = bool(set(names) - OWN_NAMES - _WORK_NAMES)
    if names and (not own_names or (has_foreign and own_names <= _COMMON_NAMES)):
        raise ConfigurationError(
            f"{folder} is not a data folder: it holds "
            f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}.",
            code="NOT_A_DATA_FOLDER",
            remedy="Use an empty or new folder with --data. To ingest the documents in this "
            "folder, run `anabranch ingest FOLDER`.",
        )


def write_server(path: Path, server: ServerInfo) -> None:
    """Write the file atomically, readable by its owner only."""
    write_private(path, json.dumps(asdict(server), indent=1) + "\n")


def store_log_kind(folder: Path, settings: Settings) -> None:
    """Store the kind of log, or check it: a folder keeps its first one, because that determines the
    order of revisions. Raises ConfigurationError.
    """
    kind_file = folder / LOG_KIND_FILE
    if kind_file.exists():
        check_log_kind(settings, kind_file.read_text().strip(), str(folder))
    else:
        kind_file.write_text(f"{settings.log_kind}\n")


def check_log_kind(settings: Settings, kind: str, folder_name: str) -> None:
    if settings.log_kind != kind:
        fix = (
            "Set ANABRANCH_KAFKA__BOOTSTRAP_SERVERS"
            if kind == "kafka"
            else "Unset ANABRANCH_KAFKA__BOOTSTRAP_SERVERS"
        )
        raise ConfigurationError(
            f"The log of {folder_name} is {kind}, but the settings name {settings.log_kind}.",
            code="ANOTHER_LOG",
            remedy=f"{fix}, or use another --data folder.",
        )


def find_server(folder: Path) -> ServerInfo | None:
    """Find the running server of the folder.

    None if the lock is free, whatever an old file says, or if it is not ready.
    """
    if not is_locked(folder):
        return None
    try:
        return ServerInfo(**json.loads((folder / SERVER_FILE).read_text()))
    # Not written yet, or by a version with other fields.
    except (OSError, ValueError, TypeError):
        return None


def is_locked(folder: Path) -> bool:
    """Check the lock without creating a file.

    Raises ConfigurationError without permission, and for the folder of another account.
    """
    _check_owner(folder)
    try:
        with (folder / LOCK_FILE).open("rb") as lock:
            # Shared, so that two checks at once do not see each other as the server.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise _build_unusable_error(folder, error) from error
    return False


def _check_owner(folder: Path) -> None:
    """Refuse a folder or file of another account, which could name an address of its own.

    Raises ConfigurationError with code FOREIGN_DATA_DIR.
    """
    for path in (folder, folder / LOCK_FILE, folder / SERVER_FILE):
        try:
            owner = path.lstat().st_uid
        except OSError:
            continue  # missing, or out of reach: the caller says why
        if owner != os.geteuid():
            raise ConfigurationError(
                f"{path} belongs to the account {owner}, not to {os.geteuid()}.",
                code="FOREIGN_DATA_DIR",
                remedy="Name a data folder of your own with --data or ANABRANCH_DATA_DIR.",
            )


def check_not_in_use(folder: Path) -> None:
    """Raise ConfigurationError with code DATA_DIR_IN_USE. Only `lock_folder` excludes a race."""
    if is_locked(folder):
        raise _build_in_use_error(folder)


def has_killed_server(folder: Path) -> bool:
    """Return whether a killed server has left its file."""
    return not is_locked(folder) and (folder / SERVER_FILE).exists()


def _build_unusable_error(folder: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{folder} cannot be a data folder: {error.strerror}",
        code="DATA_DIR_UNUSABLE",
        remedy="Name a folder that can be made and written with --data or ANABRANCH_DATA_DIR.",
    )


def _build_in_use_error(folder: Path) -> ConfigurationError:
    server = find_server(folder)
    where = f" at {server.url} (pid {server.pid})" if server else ""
    return ConfigurationError(
        f"{folder} is in use by another server{where}",
        code="DATA_DIR_IN_USE",
        remedy="Stop that server, or use another --data folder. Commands reach it with the same "
        "--data.",
    )
