"""Contract of the port `Blobs`, run against every store."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import boto3
import httpx2
import pytest

from engines.blobs import open_blobs
from schemas.errors import (
    ConfigurationError,
    EngineUnavailable,
    InvalidRequest,
    LimitExceeded,
    NotFound,
)
from schemas.ports.engines import BlobStore


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="documents")
    client.close()
    yield f"s3://documents/some/prefix?endpoint={endpoint}"
    server.stop()


@pytest.fixture(params=["folder", "memory", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    match request.param:
        case "folder":
            return open_blobs((tmp_path / "a folder").as_uri())
        case "memory":
            return open_blobs("memory://")
        case _:
            return open_blobs(
                request.getfixturevalue("s3_url"),
                access_key="key",
                secret_key="secret",
                region="us-east-1",
            )


async def stream_bytes(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_get_returns_stored_bytes(blobs: BlobStore) -> None:
    for _ in range(2):
        ref = await blobs.put("default/doc/one", b"hello world", media_type="text/plain")
    assert (ref.key, ref.size, ref.media_type) == ("default/doc/one", 11, "text/plain")
    assert ref.sha256 == hashlib.sha256(b"hello world").hexdigest()
    assert await blobs.get("default/doc/one") == b"hello world"
    assert await blobs.get_size("default/doc/one") == 11


async def test_stream_is_stored_under_its_hash(blobs: BlobStore) -> None:
    for data in ([b"abc", b"", b"def"], []):
        ref = await blobs.put_stream("uploads/default/", stream_bytes(*data), limit=6)
        whole = b"".join(data)
        assert (
            ref.key == f"uploads/default/{hashlib.sha256(whole).hexdigest()}"
            and ref.size == len(whole)
        )
        assert await blobs.get(ref.key) == whole
        assert await blobs.put_stream("uploads/default/", stream_bytes(*data), limit=6) == ref


async def test_oversized_stream_is_aborted_and_not_stored(blobs: BlobStore) -> None:
    taken = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 1000

    with pytest.raises(LimitExceeded) as caught:
        await blobs.put_stream("over/", endless(), limit=10_000)
    assert caught.value.code == "TOO_LARGE" and len(taken) == 11
    assert await blobs.get_size("over/" + hashlib.sha256(b"x" * 10_000).hexdigest()) is None


async def test_ranges_are_returned_in_request_order(blobs: BlobStore) -> None:
    await blobs.put("default/doc/states", bytes(range(256)) * 4)
    ranges = [(10, 3), (0, 2), (10, 3), (1000, 24), (5, 0)]
    expected = [
        bytes([10, 11, 12]),
        bytes([0, 1]),
        bytes([10, 11, 12]),
        bytes(range(232, 256)),
        b"",
    ]
    assert await blobs.get_ranges("default/doc/states", ranges) == expected
    assert await blobs.get_ranges("default/doc/states", ranges[::-1]) == expected[::-1]
    assert await blobs.get_ranges("default/doc/states", []) == []


async def test_local_file_has_blob_content(blobs: BlobStore) -> None:
    await blobs.put("default/doc/local file é.pdf", b"%PDF")
    async with blobs.open_local("default/doc/local file é.pdf") as path:
        assert path.read_bytes() == b"%PDF"


async def test_file_deleted_while_it_is_read_is_a_missing_blob(tmp_path: Path) -> None:
    store = open_blobs(f"file://{tmp_path}")
    await store.put("a/b", b"text")
    with pytest.raises(NotFound, match="'a/b'"):
        async with store.open_local("a/b") as path:
            await store.delete(["a/b"])
            path.read_bytes()
    await store.put("a/b", b"text")
    with pytest.raises(FileNotFoundError):
        async with store.open_local("a/b"):
            (tmp_path / "another").read_bytes()


async def test_copy_survives_deletion_of_source(blobs: BlobStore) -> None:
    await blobs.put("from/a", b"data")
    await blobs.copy("from/a", "to/b")
    await blobs.delete(["from/a"])
    assert await blobs.get("to/b") == b"data" and await blobs.get_size("from/a") is None


async def test_moved_blob_replaces_target_and_clears_cache(blobs: BlobStore) -> None:
    await blobs.put("from/a", b"data")
    await blobs.put("to/b", b"data")
    await blobs.get_ranges("from/a", [(0, 4)])
    await blobs.move("from/a", "to/b")
    assert await blobs.get("to/b") == b"data" and await blobs.get_size("from/a") is None
    for missing in (blobs.get_ranges("from/a", [(0, 4)]), blobs.move("from/a", "to/c")):
        with pytest.raises(NotFound):
            await missing
    with pytest.raises(InvalidRequest):
        await blobs.move("to/b", "../b")
    with pytest.raises(InvalidRequest):
        await blobs.move("../b", "to/b")


async def test_delete_is_idempotent_and_clears_cache(blobs: BlobStore) -> None:
    await blobs.put("gone/a", b"0123456789")
    await blobs.get_ranges("gone/a", [(0, 4)])
    await blobs.delete(["gone/a", "gone/never"])
    await blobs.delete(["gone/a"])
    with pytest.raises(NotFound):
        await blobs.get_ranges("gone/a", [(0, 4)])


async def test_missing_blob_raises_not_found(blobs: BlobStore) -> None:
    with pytest.raises(NotFound):
        await blobs.get("no/such")
    with pytest.raises(NotFound):
        await blobs.copy("no/such", "x/y")
    with pytest.raises(NotFound):
        async with blobs.open_local("no/such"):
            pass
    assert await blobs.get_size("no/such") is None


@pytest.mark.parametrize(
    "key",
    [
        "../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "a/./b",
        "",
        "a/b\x00",
        "a\\b",
        "a/" + "x" * 300,
    ],
)
async def test_key_cannot_escape_store(blobs: BlobStore, key: str) -> None:
    for work in (
        lambda: blobs.put(key, b"x"),
        lambda: blobs.get(key),
        lambda: blobs.get_size(key),
        lambda: blobs.delete([key]),
    ):
        with pytest.raises(InvalidRequest):
            await work()
    await blobs.put("fine/a", b"x")
    with pytest.raises(InvalidRequest):
        await blobs.copy("fine/a", key)


async def test_unreachable_store_raises_engine_unavailable() -> None:
    away = open_blobs(
        "s3://documents?endpoint=http://127.0.0.1:1", access_key="key", secret_key="secret"
    )
    with pytest.raises(EngineUnavailable):
        await away.get("a/b")


@pytest.mark.parametrize(
    "url", ["ftp://x", "documents", "s3://?endpoint=http://x", "s3://bucket?endpont=http://x"]
)
def test_invalid_store_url_raises_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_blobs(url)


async def test_signed_link_of_s3_reads_blob_without_credentials(
    blobs: BlobStore, request: pytest.FixtureRequest
) -> None:
    await blobs.put("t/signed", b"hello")
    link = await blobs.presign_url("t/signed", 60)
    assert (link is not None) == request.node.name.endswith("[s3]")
    if link is None:
        return
    async with httpx2.AsyncClient() as client:
        assert (await client.get(link)).content == b"hello"
        assert (await client.get(link.partition("?")[0] + "-no-such-blob")).status_code >= 400


async def test_listing_is_limited_to_prefix(blobs: BlobStore) -> None:
    keys = [f"default/one/{number}" for number in range(60)]
    for key in (*keys, "default/one-more/1", "default/two"):
        await blobs.put(key, b"x")
    assert sorted(await blobs.list_keys("default/one/")) == sorted(keys)
    assert await blobs.list_keys("nobody/") == []


def write_and_delete(folder: Path, writer: int) -> None:
    async def run() -> None:
        store = open_blobs(f"file://{folder}")
        for number in range(600):
            key = f"uploads/default/api/{writer}/{number}"
            await store.put(key, b"text")
            await store.delete([key])

    asyncio.run(run())
    # As the program ends: obstore's threads may abort an interpreter that takes itself apart.
    os._exit(0)


def test_write_beside_deletions_that_empty_the_folder(tmp_path: Path) -> None:
    """An empty folder is removed, also between its creation and the write of another process."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_and_delete, args=(tmp_path, n)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert list(tmp_path.iterdir()) == []


async def test_write_waits_for_a_deletion_that_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that a busy machine stops while it removes a folder stays so for milliseconds."""
    make_folders, end = os.makedirs, time.monotonic() + 0.1

    def make_folders_late(path: str, exist_ok: bool = False) -> None:
        if time.monotonic() < end:
            raise FileExistsError(path)
        make_folders(path, exist_ok=exist_ok)

    monkeypatch.setattr(os, "makedirs", make_folders_late)
    store = open_blobs(f"file://{tmp_path}")
    await store.put("uploads/a", b"text")
    assert await store.get("uploads/a") == b"text"
