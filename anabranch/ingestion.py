"""Many documents through the HTTP API, and what becomes of each."""

from __future__ import annotations

import asyncio
import io
import mimetypes
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.client import ApiClient
from schemas.errors import AnabranchError, ConfigurationError, ForbiddenAddress, NotFound, TransientError
from schemas.states import ENDED

POLL_S = (0.05, 1.0)


@dataclass(slots=True)
class Source:
    """Where one document comes from, and where it is now."""

    path: str
    kind: str
    document_id: str | None = None
    job: str | None = None
    state: str = "waiting"
    duplicate: bool = False
    chunks_count: int | None = None
    error: dict[str, Any] | None = None
    stages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def outcome(self) -> str:
        """Its state, or `duplicate` where nothing was done for it: each source counts once."""
        return "duplicate" if self.duplicate and self.state in ("accepted", "searchable") else self.state

    def body(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "document_id": self.document_id,
            "ingestion_job_id": self.job,
            "state": self.outcome,
            "chunks_count": self.chunks_count,
            "error": self.error,
        }


STDIN = ("-", "/dev/stdin")


def gather_sources(paths: Sequence[str], *, glob: str, recursive: bool) -> list[Source]:
    """Raises ConfigurationError without any, NotFound for a path that is not there."""
    if not paths:
        raise ConfigurationError("nothing to ingest", remedy="Name files, folders, addresses, or - for stdin.")
    return [source for path in paths for source in _sources(path, glob, recursive)]


def _sources(path: str, glob: str, recursive: bool) -> list[Source]:
    if not path.strip():
        raise ConfigurationError("an empty path", remedy="Name files, folders, addresses, or - for stdin; . is this folder.")
    if path in STDIN:
        return [Source("-", "stdin")]
    if scheme := _scheme(path):
        return [_address(path, scheme)]
    place = Path(path)
    if place.is_dir():
        found = place.rglob(glob) if recursive else place.glob(glob)
        return [Source(str(file), "file") for file in sorted(found) if file.is_file() and not _hidden(file.relative_to(place))]
    if not place.exists():
        raise NotFound(f"{path}: no such file or folder", remedy="Check the path.")
    return [Source(path, "file")]


def _hidden(path: Path) -> bool:
    """Itself, or a folder that it is in: what nobody sees is not meant by the name of a folder above."""
    return any(part.startswith(".") for part in path.parts)


def _scheme(path: str) -> str | None:
    scheme, colon, rest = path.partition("://")
    return scheme.lower() if colon and rest and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) else None


def _address(path: str, scheme: str) -> Source:
    if scheme in ("http", "https"):
        return Source(path, "url")
    remedy = "Name the file by its path." if scheme == "file" else "Fetch it yourself and name the file, or pipe it in: - is stdin."
    raise ConfigurationError(f"{path}: only http and https addresses are fetched", code=ForbiddenAddress.code, remedy=remedy)


@dataclass(slots=True)
class Ingestion:
    sources: list[Source]
    collection: str | None = None
    tags: Sequence[str] = ()
    readers: Sequence[str] = ()
    force: bool = False
    wait_s: float | None = None
    concurrency: int = 4
    lost: bool = False
    """The server, on the way."""

    async def run(self, client: ApiClient) -> dict[str, Any]:
        """Raises TransientError where the server goes away: `sources` say then how far each had come, and nothing more is sent."""
        slots = asyncio.Semaphore(self.concurrency)
        for lost in await asyncio.gather(*(self._send(client, source, slots) for source in self.sources)):
            if lost is not None:
                raise lost
        if self.wait_s is not None:
            await self._wait(client)
        return self.report()

    def report(self) -> dict[str, Any]:
        outcomes = [source.outcome for source in self.sources]
        counts = {name: outcomes.count(name) for name in ("searchable", "failed", "duplicate")}
        return {"documents": [source.body() for source in self.sources], "counts": counts}

    async def _send(self, client: ApiClient, source: Source, slots: asyncio.Semaphore) -> TransientError | None:
        """Why the server is lost, where it is: what is under way then comes to its end, and nothing else begins."""
        async with slots:
            if self.lost:
                return None
            source.state = "sending"
            try:
                receipt = await self._post(client, source)
            except TransientError as error:
                self.lost = True
                return error
            except (AnabranchError, OSError) as error:
                source.state, source.error = "failed", _told(error)
                return None
        source.state, source.document_id, source.job = "accepted", receipt["document_id"], receipt["ingestion_job_id"]
        source.duplicate = receipt["duplicate"] and not self.force
        return None

    async def _post(self, client: ApiClient, source: Source) -> dict[str, Any]:
        fields: dict[str, Any] = {"collection": self.collection, "tags": list(self.tags), "readers": list(self.readers), "force": self.force}
        given = {name: value for name, value in fields.items() if value}
        if source.kind == "url":
            return await client.post("/v1/ingest", {"url": source.path, **given})
        form = {name: ("true" if value is True else value) for name, value in given.items()}
        if source.kind == "stdin":
            # Read first: an upload says how long it is, and a pipe cannot be asked.
            body = io.BytesIO(await asyncio.to_thread(sys.stdin.buffer.read))
            return await _upload(client, form, ("stdin", body, "application/octet-stream"))
        path = Path(source.path)
        with await asyncio.to_thread(path.open, "rb") as file:
            media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            return await _upload(client, form | {"source_uri": path.resolve().as_uri()}, (path.name, file, media_type))

    async def _wait(self, client: ApiClient) -> None:
        """Until all ended or the time is over; whatever has not ended keeps its state."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + (self.wait_s or 0), POLL_S[0]
        while waiting := [source for source in self.sources if source.job and not source.ended]:
            await asyncio.gather(*(self._ask(client, source) for source in waiting[: 4 * self.concurrency]))
            if loop.time() > deadline:
                break
            await asyncio.sleep(pause)
            pause = min(POLL_S[1], pause * 1.3)

    async def _ask(self, client: ApiClient, source: Source) -> None:
        try:
            status = await client.get(f"/v1/ingest/status/{source.job}")
        except NotFound:
            return
        source.state, source.stages = status["state"], status.get("stages", [])
        source.document_id = status.get("document_id") or source.document_id
        source.chunks_count = status.get("chunks_count")
        source.error = next((stage["error"] for stage in source.stages if stage.get("error")), None) if source.state == "failed" else None


async def _upload(client: ApiClient, fields: dict[str, Any], file: tuple[str, Any, str]) -> dict[str, Any]:
    return dict((await client.request("POST", "/v1/ingest", data=fields, files={"file": file})).json())


def _told(error: AnabranchError | OSError) -> dict[str, Any]:
    if isinstance(error, AnabranchError):
        return {"code": error.code, "detail": error.detail, "remedy": error.remedy}
    return {"code": "UNREADABLE_FILE", "detail": str(error), "remedy": "Check the file's permissions."}
