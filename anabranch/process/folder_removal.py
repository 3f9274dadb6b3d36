"""Stop the server of a data folder, and delete the folder with everything that belongs to it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from anabranch.config.settings import Settings
from anabranch.encryption.codec import overwrite_and_delete
from anabranch.process.data_folder import LOCK_FILE, find_server, is_locked, lock_folder
from anabranch.process.database import resolve_embedded_root
from schemas.errors import ConfigurationError, NotFound
from sql.embedded.server import EmbeddedPostgres, find_relocated_tables, resolve_state_folder

STOP_TIMEOUT_S = 60.0


def stop_server(settings: Settings) -> bool:
    """Stop the server; returns whether one was running.

    Raises ConfigurationError with code DOES_NOT_STOP after a minute.
    """
    server = find_server(settings.data_dir)
    if server is None:
        return False
    os.kill(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_locked(settings.data_dir):
        if time.monotonic() > deadline:
            raise ConfigurationError(
                f"Process {server.pid} did not stop within {STOP_TIMEOUT_S:g} s.",
                code="DOES_NOT_STOP",
                remedy=f"Run `kill -9 {server.pid}`.",
            )
        time.sleep(0.1)
    return True


def list_removable_folders(settings: Settings) -> list[Path]:
    """List the folders to delete. Raises NotFound if there is neither a data folder nor a database
    of one.
    """
    folder, external_folder = settings.data_dir.resolve(), _find_external_folder(settings)
    # Both must exist, so that a mistyped --data deletes no foreign folder.
    is_data_folder = (folder / LOCK_FILE).exists() and resolve_embedded_root(settings).exists()
    if not is_data_folder and external_folder is None:
        raise NotFound(
            f"{folder} is not a data folder.",
            code="NO_DATA_FOLDER",
            remedy="Give the data folder with --data.",
        )
    return [*([folder] if is_data_folder else []), *([external_folder] if external_folder else [])]


def remove_data_folder(settings: Settings) -> None:
    """Stop Postgres, overwrite keys, delete the folders.

    Raises ConfigurationError with code DATA_DIR_IN_USE.
    """
    folder, external_folder = settings.data_dir.resolve(), _find_external_folder(settings)
    if folder.exists():
        with lock_folder(folder):
            if resolve_embedded_root(settings).exists():
                # A killed process may have left it running.
                EmbeddedPostgres(resolve_embedded_root(settings)).stop()
            # Deleting alone would leave the keys in free blocks of the disk.
            for key in folder.glob("*.key"):
                overwrite_and_delete(key)
            shutil.rmtree(folder)
    if external_folder is not None:
        shutil.rmtree(external_folder)


def _find_external_folder(settings: Settings) -> Path | None:
    root = resolve_embedded_root(settings)
    folder = find_relocated_tables(root) or resolve_state_folder(root)
    return folder if folder.exists() else None
