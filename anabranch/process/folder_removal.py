"""Stopping the server of a data folder from outside, and deleting the folder with everything that belongs to it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from anabranch.process.data_folder import LOCK, find_server, is_locked, locked
from anabranch.process.database import embedded_root
from anabranch.secrets import overwrite
from anabranch.settings import Settings
from schemas.errors import ConfigurationError, NotFound
from sql.embedded import EmbeddedPostgres, state_folder, tables_elsewhere

STOP_S = 60.0


def stop_server(settings: Settings) -> bool:
    """Whether one was running. Raises ConfigurationError with code DOES_NOT_STOP when it is still there after a minute."""
    server = find_server(settings.data_dir)
    if server is None:
        return False
    os.kill(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while is_locked(settings.data_dir):
        if time.monotonic() > deadline:
            raise ConfigurationError(f"Process {server.pid} did not stop within {STOP_S:g} s.", code="DOES_NOT_STOP", remedy=f"kill -9 {server.pid}")
        time.sleep(0.1)
    return True


def check_removable(settings: Settings) -> list[Path]:
    """The folders that deleting would remove. Raises NotFound where there is no data folder of ours, nor tables of one."""
    folder, elsewhere = settings.data_dir.resolve(), _elsewhere(settings)
    ours = (folder / LOCK).exists() and embedded_root(settings).exists()
    if not ours and elsewhere is None:
        raise NotFound(f"{folder} is not a data folder of ours.", code="NO_DATA_FOLDER", remedy="Name the data folder with --data.")
    return [*([folder] if ours else []), *([elsewhere] if elsewhere else [])]


def remove_data_folder(settings: Settings) -> None:
    """Postgres is stopped, keys are overwritten, then the folders go. Raises ConfigurationError with code DATA_DIR_IN_USE."""
    folder, elsewhere = settings.data_dir.resolve(), _elsewhere(settings)
    if folder.exists():
        with locked(folder):
            if embedded_root(settings).exists():
                EmbeddedPostgres(embedded_root(settings)).stop()
            for key in folder.glob("*.key"):
                overwrite(key)
            shutil.rmtree(folder)
    if elsewhere is not None:
        shutil.rmtree(elsewhere)


def _elsewhere(settings: Settings) -> Path | None:
    root = embedded_root(settings)
    folder = tables_elsewhere(root) or state_folder(root)
    return folder if folder.exists() else None
