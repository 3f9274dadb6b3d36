"""Blob store on obstore: folder, memory or S3-compatible service (Supabase Storage, MinIO).

Files of a folder are handled by system calls in the event loop: on the page cache these take 20 to
100 µs, where obstore's switches to its threads and back take 130 to 600.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
import structlog
from cachetools import LRUCache
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError
from obstore.store import LocalStore, MemoryStore, ObjectStore, S3Store

from engines.disk import is_disk_full
from schemas.errors import (
    ConfigurationError,
    EngineUnavailable,
    InvalidRequest,
    NoSpace,
    NotFound,
    too_large_error,
)
from schemas.ids import THREADLESS_BYTES, sha256_hex
from schemas.ports.engines import StoredBlob
from schemas.values import BlobRef

FOLDER_RACE_PAUSES_S = (0, 0, *(min(1e-4 * 2**n, 0.03) for n in range(60)))
"""Longest pauses between attempts: two processes in step stay in step without a random pause, and
one that is stopped while it removes a folder may stay so for 100 ms."""


def get_file_size(path: str) -> int:
    """Return the size in bytes. Raises FileNotFoundError, also for a folder."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(path)
    return status.st_size


def write_file(path: str, data: bytes) -> None:
    """Create the file whole, or leave the existing one."""
    if not os.path.exists(path):
        _retry_in_new_folder(path, lambda: os.rename(_write_temporary(path, data), path))


def move_file(source: str, target: str, root: str) -> None:
    """Move the file, replacing the target. Raises FileNotFoundError if the source is missing."""

    def move() -> None:
        get_file_size(source)
        os.rename(source, target)

    get_file_size(source)
    _retry_in_new_folder(target, move)
    _remove_empty_folders(source, root)


def delete_file(path: str, root: str) -> None:
    """Delete the file and the folders that this leaves empty. A missing file is ignored."""
    with suppress(FileNotFoundError):
        get_file_size(path)
        os.unlink(path)
        _remove_empty_folders(path, root)


def _retry_in_new_folder(path: str, operation: Callable[[], object]) -> None:
    for pause_s in FOLDER_RACE_PAUSES_S:
        # A deletion may remove the folder, or one above it, as soon as it is made.
        with suppress(FileNotFoundError, FileExistsError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            operation()
            return
        time.sleep(pause_s * random.random())
    operation()


def _write_temporary(path: str, data: bytes) -> str:
    # `#` and a number mark a temporary file for obstore, which does not list it.
    number = 1
    while True:
        temporary = f"{path}#{number}"
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            return temporary
        except FileExistsError:
            number += 1
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise


def _remove_empty_folders(path: str, root: str) -> None:
    # Fails at the first folder that is not empty.
    with suppress(OSError):
        while (path := os.path.dirname(path)) != root:
            os.rmdir(path)


log = structlog.get_logger(__name__)
T = TypeVar("T")
CACHE_BYTES = 64 * 1024 * 1024
_DOWNLOAD_CHUNK_BYTES = 1 << 20
MISSING_FOLDER = "(os error 2)"
"""ENOENT, as obstore reports it for a folder that is missing."""
_SEGMENT = r"(?!\.\.?(?:/|\Z))[^\x00-\x1f\x7f/\\]{1,255}"
# One match for the whole key: each document takes several, one for every operation on a blob.
_KEY = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})*")


def open_blobs(
    url: str,
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    region: str | None = None,
    temporary_dir: Path | None = None,
) -> ObstoreBlobStore:
    """Open the blob store at `url`.

    Accepts `file:///folder` (created if missing), `memory://` and
    `s3://bucket/prefix?endpoint=https://…`. Uploads and downloads are spooled in `temporary_dir`,
    or in the system's folder if None. Raises ConfigurationError.
    """
    parts = urlsplit(url)
    match parts.scheme:
        case "file":
            folder = Path(unquote(parts.path))
            # automatic_cleanup removes folders that deletion leaves empty.
            return ObstoreBlobStore(
                LocalStore(folder, automatic_cleanup=True, mkdir=True), folder, temporary_dir
            )
        case "memory":
            return ObstoreBlobStore(MemoryStore(), temporary_dir=temporary_dir)
        case "s3":
            return ObstoreBlobStore(
                _create_s3_store(
                    parts.netloc,
                    parts.path,
                    dict(parse_qsl(parts.query)),
                    access_key,
                    secret_key,
                    region,
                ),
                temporary_dir=temporary_dir,
            )
    raise ConfigurationError(
        f"Invalid storage URL {url!r}.",
        remedy="Set ANABRANCH_STORAGE__URL to file:///folder or s3://bucket?endpoint=https://host.",
    )


def _create_s3_store(
    bucket: str,
    prefix: str,
    query: dict[str, str],
    access_key: str | None,
    secret_key: str | None,
    region: str | None,
) -> S3Store:
    unknown = query.keys() - {"endpoint", "region"}
    if unknown or not bucket:
        problem = (
            f"has unknown parameters: {', '.join(sorted(unknown))}"
            if unknown
            else "names no bucket"
        )
        raise ConfigurationError(
            f"The storage URL {problem}.",
            remedy="Set ANABRANCH_STORAGE__URL to s3://bucket/prefix?endpoint=https://host.",
        )
    endpoint = query.get("endpoint")
    return S3Store(
        bucket,
        prefix=prefix.strip("/") or None,
        endpoint=endpoint,
        access_key_id=access_key,
        secret_access_key=secret_key,
        region=region or query.get("region") or "us-east-1",
        # MinIO and Supabase expect the bucket in the path, AWS in the host name.
        virtual_hosted_style_request=endpoint is None,
        client_options={"allow_http": True, "connect_timeout": "5s", "timeout": "120s"},
        retry_config={"max_retries": 3},
    )


class ObstoreBlobStore:
    """BlobStore that caches recently read ranges in memory; the bytes under a key never change."""

    def __init__(
        self, store: ObjectStore, folder: Path | None = None, temporary_dir: Path | None = None
    ) -> None:
        self._temporary_dir = temporary_dir
        self._store, self._folder = store, str(folder) if folder else None
        self._cache: LRUCache[tuple[str, int, int], bytes] = LRUCache(CACHE_BYTES, getsizeof=len)
        self._answer_count = 0

    async def put(self, key: str, data: bytes, *, media_type: str | None = None) -> BlobRef:
        path = self._find_path(key)
        if path is not None and len(data) <= THREADLESS_BYTES:
            await self._run_locally(key, lambda: write_file(path, data))
        else:
            # The bytes under a key never change, so the existing blob is this one.
            with suppress(FileExistsError):
                await self._write(
                    key, lambda: obstore.put_async(self._store, key, data, mode="create")
                )
        return BlobRef(key=key, sha256=sha256_hex(data), size=len(data), media_type=media_type)

    async def put_stream(
        self,
        key_prefix: str,
        chunks: AsyncIterator[bytes],
        *,
        limit: int,
        media_type: str | None = None,
    ) -> BlobRef:
        beginning = b""
        async for chunk in chunks:
            beginning += chunk
            if len(beginning) > limit:
                raise too_large_error(limit)
            if len(beginning) > THREADLESS_BYTES:
                break
        else:
            return await self.put(
                f"{key_prefix}{sha256_hex(beginning)}", beginning, media_type=media_type
            )
        # Spool to a file first: the key contains the hash, which is known only at the end.
        with tempfile.NamedTemporaryFile(
            prefix="anabranch-upload-", dir=self._temporary_dir
        ) as temporary_file:
            sha256, size = await _spool(temporary_file, _prepend(beginning, chunks), limit)
            key = f"{key_prefix}{sha256}"
            # The key is the hash: an existing blob has these bytes.
            if await self.get_size(key) is None:
                await self._write(
                    key, lambda: obstore.put_async(self._store, key, Path(temporary_file.name))
                )
        return BlobRef(key=key, sha256=sha256, size=size, media_type=media_type)

    async def get(self, key: str) -> bytes:
        async def read() -> bytes:
            return bytes(await (await obstore.get_async(self._store, key)).bytes_async())

        return await self._run_operation(key, read)

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        uncached_ranges = [
            byte_range
            for byte_range in dict.fromkeys(ranges)
            if (key, *byte_range) not in self._cache
        ]
        fetched = dict(
            zip(uncached_ranges, await self._fetch_ranges(key, uncached_ranges), strict=True)
        )
        # Read the cache before filling it: adding a range may evict another one of this call.
        results = [
            fetched.get(byte_range) or self._cache.get((key, *byte_range)) for byte_range in ranges
        ]
        for byte_range, data in fetched.items():
            # One large range must not evict all others.
            if len(data) <= CACHE_BYTES // 8:
                self._cache[key, *byte_range] = data
        return [data or b"" for data in results]

    @asynccontextmanager
    async def open_local(self, key: str) -> AsyncIterator[Path]:
        if (path := self._find_path(key)) is not None:
            await self._run_locally(key, lambda: get_file_size(path))
            try:
                yield Path(path)
            except FileNotFoundError as error:
                # Deleted while the caller read it, by an erasure for example.
                if os.path.exists(path):
                    raise
                raise _make_missing_error(key) from error
            return
        with tempfile.NamedTemporaryFile(prefix="anabranch-blob-", dir=self._temporary_dir) as copy:
            await self._run_operation(key, lambda: self._download(key, copy))
            yield Path(copy.name)

    async def get_size(self, key: str) -> int | None:
        try:
            if (path := self._find_path(key)) is not None:
                return await self._run_locally(key, lambda: get_file_size(path))
            return (await self._run_operation(key, lambda: obstore.head_async(self._store, key)))[
                "size"
            ]
        except NotFound:
            return None

    async def presign_url(self, key: str, lifetime_s: float) -> str | None:
        """Sign a download URL by S3 query authentication; return None for other stores."""
        if not isinstance(self._store, S3Store):
            return None
        store = self._store
        return await self._run_operation(
            key, lambda: obstore.sign_async(store, "GET", key, timedelta(seconds=lifetime_s))
        )

    async def copy(self, source: str, target: str) -> None:
        _validate_key(target)
        await self._write(source, lambda: obstore.copy_async(self._store, source, target))

    async def move(self, source: str, target: str) -> None:
        """Move the blob, replacing the target; a repeated move raises NotFound."""
        _validate_key(target)
        if self._folder is None:
            await self.copy(source, target)
            # A copy that stays wastes space but does no harm.
            try:
                await self.delete([source])
            except EngineUnavailable as error:
                log.warning("moved_blob_not_deleted", key=source, detail=error.detail)
            return
        paths = f"{self._folder}/{source}", f"{self._folder}/{target}"
        await self._run_locally(source, partial(move_file, *paths, self._folder))
        self._forget(source)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the blobs, ignoring missing ones."""
        for key in keys:
            self._forget(key)
            if self._folder is not None:
                path = f"{self._folder}/{key}"
                await self._run_locally(key, partial(delete_file, path, self._folder))
            # Not every store accepts the deletion of a missing key.
            elif await self.get_size(key) is not None:
                await self._run_operation(key, partial(obstore.delete_async, self._store, key))

    def _forget(self, key: str) -> None:
        """Drop the blob from the cache: a deleted text must not be served from memory."""
        for range_key in [cached for cached in self._cache if cached[0] == key]:
            del self._cache[range_key]

    async def list_keys(self, prefix: str) -> list[str]:
        return [blob.key for blob in await self.list_blobs(prefix)]

    async def list_blobs(self, prefix: str) -> list[StoredBlob]:
        async def fetch_listing() -> list[StoredBlob]:
            return [
                StoredBlob(entry["path"], entry["size"], entry["last_modified"])
                async for page in obstore.list(self._store, prefix=prefix)
                for entry in page
            ]

        return await self._run_operation(prefix.removesuffix("/"), fetch_listing)

    async def _fetch_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        nonempty_ranges = [(start, length) for start, length in ranges if length]
        starts = [start for start, _ in nonempty_ranges]
        lengths = [length for _, length in nonempty_ranges]
        parts = iter(
            await self._run_operation(
                key,
                lambda: obstore.get_ranges_async(self._store, key, starts=starts, lengths=lengths),
            )
            if nonempty_ranges
            else []
        )
        return [bytes(next(parts)) if length else b"" for _, length in ranges]

    async def _download(self, key: str, target: IO[bytes]) -> None:
        async for chunk in (await obstore.get_async(self._store, key)).stream(
            _DOWNLOAD_CHUNK_BYTES
        ):
            await asyncio.to_thread(target.write, chunk)
        target.flush()

    async def _write(self, key: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation that creates the blob's folder."""
        for pause_s in FOLDER_RACE_PAUSES_S:
            try:
                return await self._run_operation(key, operation)
            except EngineUnavailable as error:
                # A deletion, maybe of another process, has just removed a folder on the way,
                # which was empty: it is created again.
                if self._folder is None or MISSING_FOLDER not in error.detail:
                    raise
            await asyncio.sleep(pause_s * random.random())
        return await self._run_operation(key, operation)

    def _find_path(self, key: str) -> str | None:
        """Return the blob's path on the local disk, or None for other stores."""
        return None if self._folder is None else f"{self._folder}/{key}"

    async def _run_locally(self, key: str, operation: Callable[[], T]) -> T:
        async def run() -> T:
            return operation()

        return await self._run_operation(key, run)

    async def _run_operation(self, key: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Run the operation and translate its errors; FileExistsError is passed on."""
        # Requests may name keys: `..` must not lead out of the folder.
        _validate_key(key)
        try:
            result = await operation()
        except FileNotFoundError as error:
            raise _make_missing_error(key) from error
        except AlreadyExistsError as error:
            raise FileExistsError(key) from error
        except InvalidPathError as error:
            raise _make_invalid_key_error(key) from error
        except (BaseError, OSError) as error:
            if is_disk_full(error):
                raise NoSpace(
                    f"No disk space is left for blob {key!r}.", n_answers=self._answer_count
                ) from error
            first_line = (str(error).splitlines() or [""])[0]
            if self._folder is not None:
                # Callers must not see the folder's path.
                first_line = first_line.replace(f"{self._folder}/", "")
            raise EngineUnavailable(
                f"The blob store failed on {key!r}: {first_line}",
                remedy="Check the storage URL, its credentials and its disk.",
                n_answers=self._answer_count,
            ) from error
        self._answer_count += 1
        return result


async def _prepend(beginning: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield beginning
    async for chunk in chunks:
        yield chunk


async def _spool(
    temporary_file: IO[bytes], chunks: AsyncIterator[bytes], max_bytes: int
) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    async for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise too_large_error(max_bytes)
        digest.update(chunk)
        with _translate_disk_errors():
            await asyncio.to_thread(temporary_file.write, chunk)
    with _translate_disk_errors():
        temporary_file.flush()
    return digest.hexdigest(), size


@contextmanager
def _translate_disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise NoSpace("No disk space is left for temporary files.") from error
        raise


def _make_missing_error(key: str) -> NotFound:
    return NotFound(
        f"Blob {key!r} not found.",
        code="NO_SUCH_BLOB",
        remedy="It was deleted, or ANABRANCH_STORAGE__URL names another store.",
    )


def _validate_key(key: str) -> None:
    """Raise InvalidRequest unless the key is a relative path of plain segments."""
    if len(key) > 1000 or not _KEY.fullmatch(key):
        raise _make_invalid_key_error(key)


def _make_invalid_key_error(key: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid blob key {key[:200]!r}.",
        code="INVALID_KEY",
        remedy=(
            "Use segments separated by slashes, without '..', backslashes or control characters."
        ),
    )
