"""`anabranch source`: changing tables, folders and URLs as sources of documents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.options import REMOTE, RemoteOptions, Yes, make_group
from anabranch.cli.output import confirm, print_fields
from anabranch.identity.approvals import approve
from schemas.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = make_group("source")
add = make_group("add", "Add a source and ingest its documents from now on.")
app.command(add)
SourceName = Annotated[str, Parameter(help="Name of the source.")]


@Parameter(name="*")
@dataclass(frozen=True)
class ColumnOptions:
    """Mapping of columns to parts of a document."""

    body: tuple[str, ...]
    """Text columns, joined by blank lines; or one column of bytes, read as a file."""
    id: tuple[str, ...] = ()
    """Columns of the external id.  [default: the row's key]"""
    title: str | None = None
    """Column of the title."""
    language: str | None = None
    """Column of the language."""
    filename: str | None = None
    """Column of the filename, for a body of bytes."""
    metadata: tuple[str, ...] = ()
    """Columns that become metadata."""

    def to_mapping(self) -> dict[str, Any]:
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value
        }


@Parameter(name="*")
@dataclass(frozen=True)
class DocumentOptions:
    """Fields of every document of the source."""

    collection: str | None = None
    """Collection of the documents."""
    tag: tuple[str, ...] = ()
    """Tag of the documents. Repeatable."""


NO_DOCUMENT_OPTIONS = DocumentOptions()


@add.command
def debezium(
    name: SourceName,
    /,
    *,
    topic: str,
    columns: ColumnOptions,
    encoding: tuple[str, ...] = (),
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Ingest the rows of a table from the change topic that Debezium writes.

    Args:
        topic: Change topic of one table, by its name on the broker.
        encoding: Type of a column whose events carry no schema: column=TYPE, where TYPE is date,
            timestamp_ms, timestamp_us, timestamp_ns, time_ms, time_us, time_ns, decimal:SCALE,
            bytes or json. Repeatable.
    """
    mapping = columns.to_mapping() | (
        {"encodings": dict(map(_parse_encoding, encoding))} if encoding else {}
    )
    return _add_source(
        name, {"kind": "debezium", "topic": topic, "mapping": mapping}, document_options, common
    )


@add.command
def postgres(
    name: SourceName,
    /,
    *,
    table: str,
    slot: str | None = None,
    columns: ColumnOptions,
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Ingest the rows of a Postgres table: a snapshot, then its replication slot.

    Set the database URL in ANABRANCH_SOURCES__NAME for the worker.

    Args:
        table: Table with a primary key, as schema.table.
        slot: Name of the replication slot and publication. [default: anabranch_NAME]
    """
    definition = {"kind": "postgres", "table": table, "slot": slot, "mapping": columns.to_mapping()}
    return _add_source(name, definition, document_options, common)


@add.command
def folder(
    name: SourceName,
    path: Path,
    /,
    *,
    glob: str = "*",
    include: tuple[str, ...] = (),
    every: Annotated[float, Parameter(validator=Number(gt=0))] = 2.0,
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Ingest the files of a folder and its subfolders.

    Args:
        path: Folder on the worker's machine.
        glob: Only include files that match this glob pattern.
        include: Also ingest files that match this pattern and are skipped otherwise: code, locks,
            temporary and system files. Repeatable.
        every: Seconds between scans.
    """
    if not common.server and not path.is_dir():
        raise NotFound(
            f"No such folder: {path}.",
            remedy="Check the path; add a folder of another machine with --server.",
        )
    return _add_source(
        name,
        {
            "kind": "folder",
            "path": str(path.absolute()),
            "glob": glob,
            "include": list(include),
            "every_s": every,
        },
        document_options,
        common,
    )


@add.command
def urls(
    name: SourceName,
    /,
    *addresses: str,
    file: Path | None = None,
    every: Annotated[float, Parameter(validator=Number(gt=0))] = 3600.0,
    withdraw_after_misses: Annotated[int, Parameter(validator=Number(gte=1))] = 3,
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = REMOTE,
) -> int:
    """Ingest pages and files on the web, polled with conditional requests.

    Args:
        addresses: http and https URLs.
        file: File with more URLs, one per line.
        every: Seconds between requests for the same URL.
        withdraw_after_misses: Withdraw a document after this many responses 404 or 410 in a row.
    """
    lines = file.read_text().splitlines() if file else []
    more = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return _add_source(
        name,
        {
            "kind": "urls",
            "urls": [*addresses, *more],
            "every_s": every,
            "withdraw_after_misses": withdraw_after_misses,
        },
        document_options,
        common,
    )


@app.command(name="list")
def list_sources(*, common: RemoteOptions = REMOTE) -> int:
    """List sources with their state, documents and problems."""
    return common.show_page(
        get("/v1/sources", common),
        *("name", "kind", "state", "documents", "pending"),
        ("problem", lambda item: _format_problem(item["status"])),
    )


@app.command
def status(name: SourceName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the definition, progress and problem of a source."""
    details = get(f"/v1/sources/{name}", common)
    return common.show(details, lambda: print_fields(details))


@app.command
def remove(
    name: SourceName, /, *, withdraw: bool = False, yes: Yes = False, common: RemoteOptions = REMOTE
) -> int:
    """Remove a source and its replication slot. Its documents stay.

    Args:
        withdraw: Withdraw its documents, too.
    """

    async def run(client: ApiClient) -> dict[str, Any]:
        source = await client.get(f"/v1/sources/{name}")
        consequence = f"{'withdraw' if withdraw else 'keep'} its {source['documents']} documents"
        confirm(f"Remove source {name} and {consequence}?", yes=yes)
        return await client.call("DELETE", f"/v1/sources/{name}", withdraw=withdraw)

    return _change(run, common)


@app.command
def reset(name: str, /, *, yes: Yes = False, common: RemoteOptions = REMOTE) -> int:
    """Reset a source after its database was restored, so that its positions repeat.

    Stop the connector, restore the database, reset the source, and start the connector with a new
    snapshot.

    Args:
        name: Name of the source, or the ce_source of a producer that numbers its changes.
    """

    async def run(client: ApiClient) -> dict[str, Any]:
        confirm(
            f"Reset source {name}, so that new changes take precedence over all earlier ones?",
            yes=yes,
        )
        return await client.post("/v1/sources/reset", {}, name=name)

    return _change(run, common)


def _add_source(
    name: str, definition: dict[str, Any], document_options: DocumentOptions, common: RemoteOptions
) -> int:
    body = {
        "name": name,
        "connector": {key: value for key, value in definition.items() if value is not None},
        "collection": document_options.collection,
        "tags": list(document_options.tag),
    }

    async def run() -> dict[str, Any]:
        from anabranch.cli.server_connection import open_or_initialize_client, warn_if_server_stops

        async with open_or_initialize_client(common) as client:
            # First: the server checks the folder against the approvals.
            approve_folder(definition, common)
            answer = await client.post("/v1/sources", body)
            warn_if_server_stops(client, common)
            return answer

    answer = asyncio.run(run())
    return common.acknowledge(
        answer, f"accepted; show its status with `anabranch source status {name}`"
    )


def approve_folder(definition: dict[str, Any], common: RemoteOptions) -> None:
    """Approve the folder in the data folder, to which only its owner can write."""
    if definition["kind"] == "folder" and not common.server:
        approve(common.load_settings().data_dir, "folders", [definition["path"]])


def _change(work: Callable[[ApiClient], Awaitable[dict[str, Any]]], common: RemoteOptions) -> int:
    """Print the accepted change."""
    from anabranch.cli.server_connection import warn_if_server_stops

    async def run(client: ApiClient) -> dict[str, Any]:
        answer = await work(client)
        warn_if_server_stops(client, common)
        return answer

    return common.acknowledge(call_api(common, run), "accepted")


def _format_problem(status: dict[str, Any]) -> str | None:
    if status["state"] == "failed":
        return f"{status['code']}: {status['detail']}"
    if rejection := status.get("refused"):
        return f"{rejection['key']}: {rejection['detail']}"
    parts = [
        f"{count} {outcome}"
        for name, outcome in (("problem_count", "could not be ingested"), ("skipped", "skipped"))
        if (count := status.get(name))
    ]
    return ", ".join(parts) or None


def _parse_encoding(assignment: str) -> tuple[str, dict[str, Any]]:
    column, _, kind = assignment.partition("=")
    kind, _, scale = kind.partition(":")
    if not column or not kind or (scale and not scale.isdecimal()):
        raise InvalidRequest(
            f"Invalid --encoding {assignment!r}.",
            remedy="Use column=TYPE, such as --encoding made=timestamp_us or --encoding "
            "price=decimal:2.",
        )
    return column, {"type": kind} | ({"scale": int(scale)} if scale else {})
