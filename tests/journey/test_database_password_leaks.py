"""The password of an external database appears in no file or output of `up`."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.canaries import read_files
from tests.support.server_process import run_anabranch, run_up

PASSWORD = "CANARY-password-7"


def test_database_password_is_in_no_file_or_output(
    folder: Path, tmp_path: Path, database: str
) -> None:
    parts = urlsplit(database)
    user, at, place = parts.netloc.rpartition("@")
    external = parts._replace(netloc=f"{user}:{PASSWORD}{at}{place}").geturl()
    settings = {
        "ANABRANCH_DATABASE__URL": external,
        "ANABRANCH_LOG__MASTER_KEY": base64.b64encode(bytes(32)).decode(),
        "ANABRANCH_INGEST__SOURCES": '{"*": []}',
    }
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    before = os.umask(0)
    try:
        with run_up(folder, "--json", **settings) as (process, server):
            assert server["database_url"] is None
            doctor = run_anabranch("doctor", "--data", str(folder), **settings)
            shown = run_anabranch("config", "show", "--json", "--data", str(folder), **settings)
            written = [
                *dict(read_files(folder)).values(),
                *(
                    file.read_bytes()
                    for file in (process.ready_file, process.stdout_file, process.stderr_file)
                ),
            ]
            assert process.ready_file.stat().st_mode & 0o777 == 0o600
            assert (folder / "server.json").stat().st_mode & 0o777 == 0o600
            assert not folder.stat().st_mode & 0o007, "a folder of ours with a wider mode is closed"
    finally:
        os.umask(before)
    assert not [
        one
        for one in (*written, doctor.stdout.encode(), doctor.stderr.encode(), shown.stdout.encode())
        if PASSWORD.encode() in one
    ]
