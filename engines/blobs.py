"""Bytes under keys: a local folder, or anything that speaks S3 (Supabase Storage, MinIO), both by obstore."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError
from obstore.store import LocalStore, MemoryStore, ObjectStore, S3Store

from engines.disk import is_full
from schemas.errors import ConfigurationError, EngineUnavailable, InvalidRequest, LimitExceeded, NoSpace, NotFound
from schemas.ports.engines import Stored
from schemas.values import BlobRef

T = TypeVar("T")
CACHE_BYTES = 64 * 1024 * 1024
_PIECE = 1 << 20
_SEGMENT = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")


def open_blobs(url: str, *, access_key: str | None = None, secret_key: str | None = None, region: str | None = None, temporary: Path | None = None) -> Blobs:
    """Open the store; what is on its way lies in the folder `temporary`, else in the system's. `file:///folder` (made if missing), `memory://`, or `s3://bucket/prefix?endpoint=https://…`. Raises ConfigurationError."""
    parts = urlsplit(url)
    match parts.scheme:
        case "file":
            folder = Path(unquote(parts.path))
            return Blobs(LocalStore(folder, automatic_cleanup=True, mkdir=True), folder, temporary)
        case "memory":
            return Blobs(MemoryStore(), temporary=temporary)
        case "s3":
            return Blobs(_s3(parts.netloc, parts.path, dict(parse_qsl(parts.query)), access_key, secret_key, region), temporary=temporary)
    raise ConfigurationError(f"{url!r} is no storage address.", remedy="Set ANABRANCH_STORAGE__URL to file:///folder or s3://bucket?endpoint=https://host.")


def _s3(bucket: str, prefix: str, query: dict[str, str], access_key: str | None, secret_key: str | None, region: str | None) -> S3Store:
    unknown = query.keys() - {"endpoint", "region"}
    if unknown or not bucket:
        raise ConfigurationError(
            f"The storage address has {', '.join(sorted(unknown)) or 'no bucket'}.", remedy="Write s3://bucket/prefix?endpoint=https://host."
        )
    endpoint = query.get("endpoint")
    return S3Store(
        bucket,
        prefix=prefix.strip("/") or None,
        endpoint=endpoint,
        access_key_id=access_key,
        secret_access_key=secret_key,
        region=region or query.get("region") or "us-east-1",
        virtual_hosted_style_request=endpoint is None,
        client_options={"allow_http": True, "connect_timeout": "5s", "timeout": "120s"},
        retry_config={"max_retries": 3},
    )


class Blobs:
    """The port. Recently read ranges are kept in memory, as stored bytes never change under their key."""

    def __init__(self, store: ObjectStore, folder: Path | None = None, temporary: Path | None = None) -> None:
        self._temporary = temporary
        self._store, self._folder, self._cache = store, folder, _Cache(CACHE_BYTES)
        self._answers = 0

    async def put(self, key: str, data: bytes, *, media_type: str | None = None) -> BlobRef:
        await self._put_new(key, data)
        return BlobRef(key=key, sha256=hashlib.sha256(data).hexdigest(), size=len(data), media_type=media_type)

    async def put_stream(self, key_prefix: str, chunks: AsyncIterator[bytes], *, limit: int, media_type: str | None = None) -> BlobRef:
        """By way of a temporary file: the key holds the hash, which is known last."""
        with tempfile.NamedTemporaryFile(prefix="anabranch-upload-", dir=self._temporary) as draft:
            sha256, size = await _spooled(draft, chunks, limit)
            key = f"{key_prefix}{sha256}"
            if await self.size(key) is None:
                await self._ask(key, lambda: obstore.put_async(self._store, key, Path(draft.name)))
        return BlobRef(key=key, sha256=sha256, size=size, media_type=media_type)

    async def get(self, key: str) -> bytes:
        return await self._ask(key, lambda: self._whole(key))

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        wanted = [place for place in dict.fromkeys(ranges) if (key, *place) not in self._cache]
        fetched = dict(zip(wanted, await self._ranges(key, wanted), strict=True))
        answer = [fetched.get(place) or self._cache.get((key, *place)) for place in ranges]
        for place, data in fetched.items():
            self._cache.keep((key, *place), data)
        return [data or b"" for data in answer]

    @asynccontextmanager
    async def local(self, key: str) -> AsyncIterator[Path]:
        if self._folder is not None:
            path = self._folder / key
            await self._ask(key, lambda: _there(path))
            yield path
            return
        with tempfile.NamedTemporaryFile(prefix="anabranch-blob-", dir=self._temporary) as copy:
            await self._ask(key, lambda: self._download(key, copy))
            yield Path(copy.name)

    async def size(self, key: str) -> int | None:
        try:
            return (await self._ask(key, lambda: obstore.head_async(self._store, key)))["size"]
        except NotFound:
            return None

    async def link(self, key: str, lifetime_s: float) -> str | None:
        """Signed by the store's own credentials (S3 query authentication)."""
        if not isinstance(self._store, S3Store):
            return None
        store = self._store
        return await self._ask(key, lambda: obstore.sign_async(store, "GET", key, timedelta(seconds=lifetime_s)))

    async def copy(self, source: str, target: str) -> None:
        _check(target)
        await self._ask(source, lambda: obstore.copy_async(self._store, source, target))

    async def delete(self, keys: Sequence[str]) -> None:
        """Those that are not there are passed over."""
        for key in keys:
            self._cache.forget(key)
            if await self.size(key) is not None:
                await self._ask(key, lambda key=key: obstore.delete_async(self._store, key))  # type: ignore[misc]

    async def listed(self, prefix: str) -> list[str]:
        return [found.key for found in await self.stored(prefix)]

    async def stored(self, prefix: str) -> list[Stored]:
        return await self._ask(prefix.removesuffix("/"), lambda: self._found(prefix))

    async def _found(self, prefix: str) -> list[Stored]:
        return [Stored(found["path"], found["size"], found["last_modified"]) async for page in obstore.list(self._store, prefix=prefix) for found in page]

    async def _put_new(self, key: str, data: bytes) -> None:
        try:
            await self._ask(key, lambda: obstore.put_async(self._store, key, data, mode="create"))
        except FileExistsError:
            return

    async def _whole(self, key: str) -> bytes:
        return bytes(await (await obstore.get_async(self._store, key)).bytes_async())

    async def _ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        filled = [(start, length) for start, length in ranges if length]
        starts, lengths = [start for start, _ in filled], [length for _, length in filled]
        found = iter(await self._ask(key, lambda: obstore.get_ranges_async(self._store, key, starts=starts, lengths=lengths)) if filled else [])
        return [bytes(next(found)) if length else b"" for _, length in ranges]

    async def _download(self, key: str, target: IO[bytes]) -> None:
        async for piece in (await obstore.get_async(self._store, key)).stream(_PIECE):
            await asyncio.to_thread(target.write, piece)
        target.flush()

    async def _ask(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work`, translating its errors. FileExistsError comes through."""
        _check(key)
        try:
            answer = await work()
        except FileNotFoundError as error:
            raise _missing(key) from error
        except AlreadyExistsError as error:
            raise FileExistsError(key) from error
        except InvalidPathError as error:
            raise InvalidRequest(f"{key!r} is no blob key.", code="INVALID_KEY") from error
        except (BaseError, OSError) as error:
            if is_full(error):
                raise NoSpace(f"no space is left for {key}", answers=self._answers) from error
            raise EngineUnavailable(
                f"The blob store did not give or take {key}: {self._told(error)}",
                remedy="Check the storage address, its keys and its disk.",
                answers=self._answers,
            ) from error
        self._answers += 1
        return answer

    def _told(self, error: Exception) -> str:
        """The first line, without where on this machine the folder lies."""
        told = (str(error).splitlines() or [""])[0]
        return told.replace(f"{self._folder}/", "") if self._folder is not None else told


async def _spooled(draft: IO[bytes], chunks: AsyncIterator[bytes], limit: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise LimitExceeded(f"More than {limit:,} bytes came.", code="TOO_LARGE", remedy="Raise ANABRANCH_INGEST__MAX_BYTES or send a smaller file.")
        digest.update(chunk)
        with _disk_errors():
            await asyncio.to_thread(draft.write, chunk)
    with _disk_errors():
        draft.flush()
    return digest.hexdigest(), size


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise NoSpace("no space is left for temporary files") from error
        raise


async def _there(path: Path) -> None:
    """Raises FileNotFoundError. Our own disk is asked at once."""
    path.stat()


def _check(key: str) -> None:
    """Keys are relative paths of plain segments. Raises InvalidRequest."""
    segments = key.split("/")
    if len(key) > 1000 or any(segment in {"", ".", ".."} or not _SEGMENT.fullmatch(segment) for segment in segments):
        raise InvalidRequest(
            f"{key[:200]!r} is no blob key.", code="INVALID_KEY", remedy="Keys are segments between slashes, without '..', backslashes and control characters."
        )


def _missing(key: str) -> NotFound:
    return NotFound(f"There is no blob {key}.", code="NO_SUCH_BLOB", remedy="It was deleted, or the storage address is not the one it was written to.")


class _Cache:
    """The ranges read last, at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes = limit, 0
        self._held: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()

    def __contains__(self, place: tuple[str, int, int]) -> bool:
        return place in self._held

    def get(self, place: tuple[str, int, int]) -> bytes | None:
        if place in self._held:
            self._held.move_to_end(place)
        return self._held.get(place)

    def keep(self, place: tuple[str, int, int], data: bytes) -> None:
        if place in self._held or len(data) > self._limit // 8:
            return
        self._held[place] = data
        self._bytes += len(data)
        while self._bytes > self._limit:
            self._bytes -= len(self._held.popitem(last=False)[1])

    def forget(self, key: str) -> None:
        for place in [place for place in self._held if place[0] == key]:
            self._bytes -= len(self._held.pop(place))
