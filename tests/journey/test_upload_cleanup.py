"""An API killed during an upload leaves no part of it on disk."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engines.disk import FOLDER
from tests.support.eventually import eventually_blocking
from tests.support.server_process import list_descendants, run_up

CANARY = b"Quetzalcoatlus"
REQUEST_HEAD = (
    "POST /v1/ingest HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
    "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 90000000\r\n\r\n"
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
)


def test_restart_deletes_partial_upload_of_killed_api(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "system"
    elsewhere.mkdir()
    with run_up(folder, TMPDIR=str(elsewhere)) as (first, server), send_partial_upload(server):
        spooled = eventually_blocking(lambda: find_spooled_files(folder))
        assert CANARY in spooled[0].read_bytes()
        assert list(elsewhere.glob("anabranch-upload-*")) == []
        for pid in (*list_descendants(first.process.pid), first.process.pid):
            os.kill(pid, signal.SIGKILL)
        first.process.wait()
    assert find_spooled_files(folder), "nobody could clear up"
    with run_up(folder):
        assert find_spooled_files(folder) == []


def send_partial_upload(server: dict[str, Any]) -> socket.socket:
    place = urlsplit(server["url"])
    opened = socket.create_connection((place.hostname, place.port))
    opened.sendall(
        REQUEST_HEAD.format(host=place.netloc, token=server["token"]).encode() + CANARY * 200_000
    )
    return opened


def find_spooled_files(folder: Path) -> list[Path]:
    return [path for path in (folder / FOLDER).rglob("anabranch-upload-*") if path.stat().st_size]
