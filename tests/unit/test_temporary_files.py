"""Temporary files in the data folder."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

from engines.disk import FOLDER, open_temporary_folder

UPLOAD_SCRIPT = """
import asyncio, sys
from pathlib import Path
from engines.disk import open_temporary_folder
from engines.blobs import open_blobs

async def half():
    yield b"Quetzalcoatlus" * 10_000
    print("half", flush=True)
    await asyncio.sleep(600)

with open_temporary_folder(Path(sys.argv[1])) as folder:
    blobs = open_blobs("memory://", temporary_dir=folder)
    asyncio.run(blobs.put_stream("uploads/", half(), limit=10**9))
"""


def list_uploads(folder: Path) -> list[Path]:
    return [path for path in (folder / FOLDER).rglob("anabranch-upload-*") if path.is_file()]


def test_upload_of_killed_process_is_removed_at_next_start(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", UPLOAD_SCRIPT, str(tmp_path)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"half\n"
        (upload,) = list_uploads(tmp_path)
        assert stat.S_IMODE(upload.stat().st_mode) == 0o600
        assert (
            stat.S_IMODE(upload.parent.stat().st_mode)
            == stat.S_IMODE((tmp_path / FOLDER).stat().st_mode)
            == 0o700
        )
        with open_temporary_folder(tmp_path) as own:
            assert list_uploads(tmp_path) == [upload], "its process lives"
        assert not own.exists()
        os.kill(process.pid, signal.SIGKILL)
    assert list_uploads(tmp_path) == [upload]
    with open_temporary_folder(tmp_path) as own:
        assert [path for path in (tmp_path / FOLDER).iterdir() if path.is_dir()] == [own]
