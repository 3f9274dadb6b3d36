"""Upload of many documents through the HTTP API, with the progress and the outcome of each."""

from __future__ import annotations

import asyncio
import io
import json
import mimetypes
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.cli.http_client import ApiClient
from anabranch.cli.output import format_waiting_stage, print_stderr
from anabranch.process.terminal import escape_controls, escape_streams, get_unescaped
from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    ForbiddenAddress,
    NotFound,
    TransientError,
)
from schemas.file_names import is_skipped
from schemas.ingest import FINAL_STATES

if TYPE_CHECKING:
    from rich.table import Table


STATE_MARKS = {"done": "✓", "running": "…", "failed": "✗", "waiting": "·"}
MAX_ROWS = 12
SUMMARY_INTERVAL_S, TICK_S = 10.0, 0.2


@contextmanager
def show_progress(batch: IngestBatch, *, quiet: bool, plain: bool) -> Iterator[None]:
    """Display the batch from a background thread until the context ends."""
    if quiet:
        yield
        return
    run_display = _draw_table if sys.stderr.isatty() and not plain else _print_lines
    stop = threading.Event()
    thread = threading.Thread(target=run_display, args=(batch, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _print_lines(batch: IngestBatch, stop: threading.Event) -> None:
    printed: set[int] = set()
    since_summary_s = 0.0
    while True:
        # One more pass after the stop, for documents that finished last.
        is_stopped = stop.wait(TICK_S)
        for index, item in enumerate(batch.items):
            if index not in printed and item.is_finished:
                printed.add(index)
                print_stderr(f"{item.path}: {_format_outcome(item)}")
        since_summary_s += TICK_S
        if since_summary_s >= SUMMARY_INTERVAL_S and not is_stopped:
            since_summary_s = 0.0
            print_stderr(_format_summary(batch))
        if is_stopped:
            return


def _draw_table(batch: IngestBatch, stop: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    with Live(
        _render_table(batch),
        console=Console(file=get_unescaped(sys.stderr)),
        refresh_per_second=5,
        transient=False,
    ) as live:
        escape_streams()  # rich replaced sys.stdout and sys.stderr
        while not stop.wait(TICK_S):
            live.update(_render_table(batch))
        live.update(_render_table(batch))


def _render_table(batch: IngestBatch) -> Table:
    from rich.table import Table
    from rich.text import Text

    # Text, because rich reads square brackets in plain strings as markup, links included.
    table = Table(
        title=Text(escape_controls(_format_summary(batch))), title_justify="left", box=None
    )
    table.add_column("document", max_width=32, overflow="ellipsis", no_wrap=True)
    table.add_column("stages", no_wrap=True)
    table.add_column("at")
    ordered_items = [item for item in batch.items if not item.is_finished] + [
        item for item in reversed(batch.items) if item.is_finished
    ]
    for item in ordered_items[:MAX_ROWS]:
        cells = (
            Path(item.path).name or item.path,
            " ".join(STATE_MARKS.get(line["state"], "…") for line in item.stages),
            _format_position(item, format_waiting_stage),
        )
        table.add_row(*(Text(escape_controls(cell)) for cell in cells))
    return table


def _format_position(
    item: IngestItem, format_stage: Callable[[dict[str, Any]], str] = itemgetter("stage")
) -> str:
    if item.is_finished:
        return f"{item.label}: {item.error['code']}" if item.error else item.outcome
    return next((format_stage(line) for line in item.stages if line["state"] != "done"), item.state)


def _format_outcome(item: IngestItem) -> str:
    if item.error:
        return f"{item.label} [{item.error['code']}]"
    times = [
        f"{line['stage']} {line['duration_ms']:.0f} ms"
        for line in item.stages
        if line.get("duration_ms") is not None
    ]
    chunks = (
        f", {item.chunks_count} {'chunk' if item.chunks_count == 1 else 'chunks'}"
        if item.chunks_count is not None
        else ""
    )
    return item.outcome + chunks + (f" ({', '.join(times)})" if times else "")


def _format_summary(batch: IngestBatch) -> str:
    """Count documents by state, and running ones by stage, so that a slow stage shows."""
    counts = Counter(item.label for item in batch.items)
    counts_by_stage = Counter(
        _format_position(item) for item in batch.items if item.state == "running"
    )
    stage_summary = ", ".join(
        f"{number} at {stage}"
        for stage, number in counts_by_stage.most_common()
        if stage != "running"
    )
    state_summary = ", ".join(f"{number} {state}" for state, number in counts.most_common())
    busy = (
        describe_busy_machine(os.getloadavg()[0], os.cpu_count() or 1) if batch.is_local else None
    )
    return (
        f"{len(batch.items)} document{'s' if len(batch.items) > 1 else ''}: {state_summary}"
        + (f" ({stage_summary})" if stage_summary else "")
        + (f"; {busy}" if busy else "")
    )


POLL_S = (0.05, 1.0)
BUSY_LOAD_PER_CORE = 3.0
"""Up to two come from the ingest itself."""


def describe_busy_machine(load: float, cores: int) -> str | None:
    """Explain why documents take longer than their processing does."""
    if load <= BUSY_LOAD_PER_CORE * cores:
        return None
    return f"this machine is busy, load {load:.0f} on {cores} cores: documents wait for the CPU"


@dataclass(slots=True)
class IngestItem:
    """Origin and current state of one document."""

    path: str
    kind: str
    document_id: str | None = None
    job_id: str | None = None
    state: str = "waiting"
    is_duplicate: bool = False
    chunks_count: int | None = None
    error: dict[str, Any] | None = None
    stages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_finished(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def outcome(self) -> str:
        """Return the state, or `duplicate` if the server had the same content already."""
        return (
            "duplicate"
            if self.is_duplicate and self.state in ("accepted", "searchable")
            else self.state
        )

    @property
    def label(self) -> str:
        """Return the outcome for people: the server lists no failed document that it refused."""
        return "refused" if self.state == "failed" and self.job_id is None else self.outcome

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "document_id": self.document_id,
            "ingestion_job_id": self.job_id,
            "state": self.outcome,
            "chunks_count": self.chunks_count,
            "error": self.error,
        }


STDIN_NAMES = ("-", "/dev/stdin")


def expand_paths(
    paths: Sequence[str], *, glob: str, recursive: bool, include: Sequence[str] = ()
) -> tuple[list[IngestItem], list[str]]:
    """List the documents to send, and the files in folders that are skipped as no documents.

    Raises ConfigurationError if no path is given, NotFound for a path that does not exist.
    """
    if not paths:
        raise ConfigurationError(
            "No path to ingest was given.", remedy="Give files, folders, URLs, or - for stdin."
        )
    skipped: list[str] = []
    return [
        item for path in paths for item in _expand_path(path, glob, recursive, include, skipped)
    ], skipped


def _expand_path(
    path: str, glob: str, recursive: bool, include: Sequence[str], skipped: list[str]
) -> list[IngestItem]:
    if not path.strip():
        raise ConfigurationError(
            "A path is empty.",
            remedy="Give files, folders, URLs, or - for stdin; . is the current folder.",
        )
    if path in STDIN_NAMES:
        return [IngestItem("-", "stdin")]
    if url := re.match(r"(?s)([A-Za-z][A-Za-z0-9+.-]*)://.", path):
        return [_make_url_item(path, url[1].lower())]
    folder = Path(path)
    if folder.is_dir():
        files = []
        for file in sorted(folder.rglob(glob) if recursive else folder.glob(glob)):
            name = file.relative_to(folder)
            # Neither the file nor a folder on its path is hidden.
            if any(part.startswith(".") for part in name.parts) or not file.is_file():
                continue
            if is_skipped(name.as_posix(), glob, include):
                skipped.append(str(file))
            else:
                files.append(IngestItem(str(file), "file"))
        return files
    if not folder.exists():
        raise NotFound(f"No such file or folder: {path}.", remedy="Check the path.")
    return [IngestItem(path, "file")]


def _make_url_item(path: str, scheme: str) -> IngestItem:
    if scheme in ("http", "https"):
        return IngestItem(path, "url")
    remedy = (
        "Give the path of the file."
        if scheme == "file"
        else "Download it and give the file's path, or pipe it to stdin with -."
    )
    raise ConfigurationError(
        f"Unsupported URL scheme {scheme!r} in {path}.", code=ForbiddenAddress.code, remedy=remedy
    )


@dataclass(slots=True)
class IngestBatch:
    items: list[IngestItem]
    collection: str | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    readers: Sequence[str] = ()
    force: bool = False
    wait_s: float | None = None
    concurrency: int = 16
    is_server_lost: bool = False
    is_local: bool = False
    """Whether the server runs on this machine, so that its load is known."""

    async def run(self, client: ApiClient) -> dict[str, Any]:
        """Send all items.

        Raises TransientError if the server becomes unreachable; `items` then hold the state of
        each.
        """
        slots = asyncio.Semaphore(self.concurrency)
        # Errors are returned: one raised in gather would leave other uploads running.
        for server_error in await asyncio.gather(
            *(self._send(client, item, slots) for item in self.items)
        ):
            if server_error is not None:
                raise server_error
        if self.wait_s is not None:
            await self._wait_until_finished(client)
        return self.build_report()

    def build_report(self) -> dict[str, Any]:
        outcomes = [item.outcome for item in self.items]
        counts = {name: outcomes.count(name) for name in ("searchable", "failed", "duplicate")}
        return {"documents": [item.to_json() for item in self.items], "counts": counts}

    async def _send(
        self, client: ApiClient, item: IngestItem, slots: asyncio.Semaphore
    ) -> TransientError | None:
        """Send one item; return the error if the server is unreachable.

        Uploads in progress then finish, no other starts.
        """
        async with slots:
            if self.is_server_lost:
                return None
            item.state = "sending"
            try:
                receipt = await self._post(client, item)
            except TransientError as error:
                self.is_server_lost = True
                return error
            except AnabranchError as error:
                item.state = "failed"
                item.error = error.to_dict()
                return None
            except OSError as error:
                item.state = "failed"
                item.error = {
                    "code": "UNREADABLE_FILE",
                    "detail": str(error),
                    "remedy": "Check the file's permissions.",
                }
                return None
        item.state = "accepted"
        item.document_id = receipt["document_id"]
        item.job_id = receipt["ingestion_job_id"]
        item.is_duplicate = receipt["duplicate"] and not self.force
        return None

    async def _post(self, client: ApiClient, item: IngestItem) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "collection": self.collection,
            "tags": list(self.tags),
            "metadata": dict(self.metadata),
            "readers": list(self.readers),
            "force": self.force,
        }
        set_fields = {name: value for name, value in fields.items() if value}
        if item.kind == "url":
            return await client.post("/v1/ingest", {"url": item.path, **set_fields})
        form = {
            name: json.dumps(value) if isinstance(value, (bool, dict)) else value
            for name, value in set_fields.items()
        }
        if item.kind == "stdin":
            # Read completely first: an upload declares its length, which a pipe does not have.
            body = io.BytesIO(await asyncio.to_thread(sys.stdin.buffer.read))
            return await _upload(client, form, ("stdin", body, "application/octet-stream"))
        path = Path(item.path)
        with path.open("rb") as file:  # noqa: ASYNC230 a thread would take longer than the call
            media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            return await _upload(
                client,
                form | {"source_uri": path.resolve().as_uri()},
                (path.name, file, media_type),
            )

    async def _wait_until_finished(self, client: ApiClient) -> None:
        """Poll until all items finish or `wait_s` is over."""
        loop = asyncio.get_running_loop()
        deadline, poll_s = loop.time() + (self.wait_s or 0), POLL_S[0]
        while unfinished := [item for item in self.items if item.job_id and not item.is_finished]:
            # Only some at a time, so that a large batch does not flood the server.
            await asyncio.gather(
                *(self._refresh_status(client, item) for item in unfinished[: self.concurrency])
            )
            if loop.time() > deadline:
                break
            await asyncio.sleep(poll_s)
            poll_s = min(POLL_S[1], poll_s * 1.3)

    async def _refresh_status(self, client: ApiClient, item: IngestItem) -> None:
        try:
            status = await client.get(f"/v1/ingest/status/{item.job_id}")
        except NotFound:
            return
        item.state, item.stages = status["state"], status.get("stages", [])
        item.document_id = status.get("document_id") or item.document_id
        item.chunks_count = status.get("chunks_count")
        item.error = (
            next((stage["error"] for stage in item.stages if stage.get("error")), None)
            if item.state == "failed"
            else None
        )


async def _upload(
    client: ApiClient, fields: dict[str, Any], file: tuple[str, Any, str]
) -> dict[str, Any]:
    return dict(
        (await client.request("POST", "/v1/ingest", data=fields, files={"file": file})).json()
    )
