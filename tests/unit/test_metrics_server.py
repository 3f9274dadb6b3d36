"""Clients of the worker's metrics port delay neither each other nor the stop."""

from __future__ import annotations

import os
import resource
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from anabranch.process.data_folder import LOCK_FILE, SERVER_FILE, find_server, is_locked
from anabranch.process.worker_process import serve_metrics
from schemas.errors import ConfigurationError
from services.instrumentation.metrics import Metrics


def test_held_connections_delay_neither_scrape_nor_stop() -> None:
    with serve_metrics(CollectorRegistry(), "127.0.0.1", 0) as url:
        address = (urlsplit(url).hostname, urlsplit(url).port)
        held = [socket.create_connection(address) for _ in range(20)]  # type: ignore[arg-type]
        for connection in held:
            connection.sendall(b"GET /met")
        assert httpx2.get(url, timeout=30).status_code == 200
        stopped_at = time.monotonic()
    assert time.monotonic() - stopped_at < 30
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("attacker.example", 421),
        ("attacker.example:9000", 421),
        ("127.0.0.1.attacker.example", 421),
        ("localhost:9000", 200),
        ("127.0.0.1", 200),
        ("10.1.2.3:9000", 200),
        ("[::1]:9000", 200),
    ],
)
def test_foreign_host_is_refused(host: str, status: int) -> None:
    with serve_metrics(CollectorRegistry(), "127.0.0.1", 0) as url:
        assert httpx2.get(url, headers={"host": host}).status_code == status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["", LOCK_FILE, SERVER_FILE])
def test_data_folder_of_another_account_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "anabranch-data"
    folder.mkdir()
    for file in (LOCK_FILE, SERVER_FILE):
        (folder / file).write_text('{"url": "http://127.0.0.1:9"}')
    assert not is_locked(folder)
    os.chown(folder / name, 65534, 65534)
    for check in (is_locked, find_server):
        with pytest.raises(ConfigurationError) as caught:
            check(folder)
        assert caught.value.code == "FOREIGN_DATA_DIR" and "--data" in caught.value.remedy


def test_memory_of_the_process_is_exported() -> None:
    text = Metrics("0.0.0").format_exposition()[0].decode()
    exported = next(
        float(line.split()[1])
        for line in text.splitlines()
        if line.startswith("anabranch_memory_bytes ")
    )
    # Resident and maximum memory are counted in batches of pages.
    assert 10**7 < exported < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 * 1.1
