"""`anabranch source`: tables that change, folders, addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from anabranch.cli.confirmation import confirm
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import print_fields, print_stderr, print_table
from anabranch.identity.approvals import approve
from schemas.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = App(name="source", help="What documents are taken from: tables that change, folders, addresses.", result_action="return_value")
add = App(name="add", help="Take documents from a source, from now on.", result_action="return_value")
app.command(add)
Flag = Parameter(negative="")
Repeatable = Parameter(negative="", consume_multiple=True)
DEFAULT = RemoteOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class ColumnOptions:
    """Which columns are what of a document."""

    body: Annotated[tuple[str, ...], Parameter(help="Columns of the text, joined by blank lines; or one of bytes, which is a file.", negative="")]
    id: Annotated[tuple[str, ...], Parameter(help="Columns of the external id.  [default: the row's key]", negative="")] = ()
    title: Annotated[str | None, Parameter(help="Column of the title.")] = None
    language: Annotated[str | None, Parameter(help="Column of the language.")] = None
    filename: Annotated[str | None, Parameter(help="Column of the filename of a body of bytes.")] = None
    metadata: Annotated[tuple[str, ...], Parameter(help="Columns that become metadata.", negative="")] = ()

    def to_mapping(self) -> dict[str, Any]:
        column_names = {"body": self.body, "id": self.id, "title": self.title, "language": self.language, "filename": self.filename, "metadata": self.metadata}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in column_names.items() if value}


@Parameter(name="*")
@dataclass(frozen=True)
class DocumentOptions:
    """What every document of the source gets."""

    collection: Annotated[str | None, Parameter(help="Collection of its documents.")] = None
    tag: Annotated[tuple[str, ...], Parameter(help="Tags of its documents.", negative="")] = ()


NO_DOCUMENT_OPTIONS = DocumentOptions()


@add.command
def debezium(
    name: str,
    /,
    *,
    topic: str,
    columns: ColumnOptions,
    encoding: Annotated[tuple[str, ...], Flag] = (),
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Rows of a table, from the change topic that Debezium writes.

    Parameters
    ----------
    name
        What the source is called.
    topic
        The change topic of one table, as it is called on the broker.
    encoding
        column=type of columns whose events carry no schema: date, timestamp_ms, timestamp_us, timestamp_ns, time_ms, time_us, time_ns, decimal:SCALE, bytes, json.
    """
    mapping = columns.to_mapping() | ({"encodings": dict(map(_parse_encoding, encoding))} if encoding else {})
    return _add_source(name, {"kind": "debezium", "topic": topic, "mapping": mapping}, document_options, common)


@add.command
def postgres(
    name: str,
    /,
    *,
    table: str,
    slot: str | None = None,
    columns: ColumnOptions,
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Rows of a table, from its Postgres: a snapshot, then its replication slot. The address of the database is ANABRANCH_SOURCES__NAME of the worker.

    Parameters
    ----------
    name
        What the source is called.
    table
        schema.table; it needs a primary key.
    slot
        Name of its replication slot and publication. [default: anabranch_NAME]
    """
    definition = {"kind": "postgres", "table": table, "slot": slot, "mapping": columns.to_mapping()}
    return _add_source(name, definition, document_options, common)


@add.command
def folder(
    name: str,
    path: Path,
    /,
    *,
    glob: str = "*",
    every: Annotated[float, Parameter(validator=Number(gt=0))] = 2.0,
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Files of a folder, at any depth.

    Parameters
    ----------
    name
        What the source is called.
    path
        The folder, on the machine of the worker.
    glob
        Only files with such names.
    every
        Seconds between two looks.
    """
    if not common.server and not path.is_dir():
        raise NotFound(f"No folder {path}.", remedy="Correct the path; a folder of another machine is added with --server.")
    return _add_source(name, {"kind": "folder", "path": str(path.absolute()), "glob": glob, "every_s": every}, document_options, common)


@add.command
def urls(
    name: str,
    /,
    *addresses: str,
    file: Path | None = None,
    every: Annotated[float, Parameter(validator=Number(gt=0))] = 3600.0,
    gone_after: Annotated[int, Parameter(validator=Number(gte=1))] = 3,
    document_options: DocumentOptions = NO_DOCUMENT_OPTIONS,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Pages and files on the web, asked again by conditional requests.

    Parameters
    ----------
    name
        What the source is called.
    addresses
        http and https addresses.
    file
        More of them, one a line.
    every
        Seconds between two requests for the same address.
    gone_after
        Answers 404 or 410 in a row until a document is withdrawn.
    """
    all_addresses = (
        [*addresses, *(line.strip() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#"))] if file else list(addresses)
    )
    return _add_source(name, {"kind": "urls", "urls": all_addresses, "every_s": every, "gone_after": gone_after}, document_options, common)


@app.command(name="list")
def list_sources(*, common: RemoteOptions = DEFAULT) -> int:
    """Sources, with their documents and how their readers are."""
    page = _call_api(common, lambda client: client.get("/v1/sources"))
    if common.is_json:
        common.print_result(page)
        return 0
    rows = [(item["name"], item["kind"], item["state"], item["documents"], item["owed"], _format_problem(item["status"])) for item in page["items"]]
    print_table(("name", "kind", "state", "documents", "owed", "trouble"), rows)
    return 0


@app.command
def status(name: str, /, *, common: RemoteOptions = DEFAULT) -> int:
    """One source: what it takes, how far it is, why it stopped.

    Parameters
    ----------
    name
        Of the source.
    """
    details = _call_api(common, lambda client: client.get(f"/v1/sources/{name}"))
    if common.is_json:
        common.print_result(details)
        return 0
    print_fields(details)
    return 0


@app.command
def remove(name: str, /, *, withdraw: Annotated[bool, Flag] = False, yes: Annotated[bool, Flag] = False, common: RemoteOptions = DEFAULT) -> int:
    """Read nothing from a source any more. Its replication slot goes, its documents stay.

    Parameters
    ----------
    name
        Of the source.
    withdraw
        Its documents go too.
    yes
        Do not ask.
    """

    async def run(client: ApiClient) -> dict[str, Any]:
        source = await client.get(f"/v1/sources/{name}")
        if not yes and not confirm(f"{name}: {source['documents']} documents {'go with it' if withdraw else 'stay'}. Remove the source?"):
            return {}
        return dict((await client.request("DELETE", f"/v1/sources/{name}", params={"withdraw": withdraw})).json())

    return _print_accepted(_call_api(common, run), common)


@app.command
def reset(name: str, /, *, yes: Annotated[bool, Flag] = False, common: RemoteOptions = DEFAULT) -> int:
    """Begin a source anew: its database was restored, and its positions begin where they were before.

    Stop the connector, restore the database, reset the source, and start the connector with a new snapshot.

    Parameters
    ----------
    name
        Of the source, or the ce_source of a producer that numbers its changes.
    yes
        Do not ask.
    """

    async def run(client: ApiClient) -> dict[str, Any]:
        if not yes and not confirm(f"{name}: everything that it says from now on comes after all that it said before. Reset it?"):
            return {}
        return dict((await client.request("POST", "/v1/sources/reset", params={"name": name})).json())

    return _print_accepted(_call_api(common, run), common)


def _add_source(name: str, definition: dict[str, Any], document_options: DocumentOptions, common: RemoteOptions) -> int:
    body = {
        "name": name,
        "takes": {key: value for key, value in definition.items() if value is not None},
        "collection": document_options.collection,
        "tags": list(document_options.tag),
    }

    async def run() -> dict[str, Any]:
        from anabranch.cli.server_connection import open_or_initialize_client, warn_if_server_stops

        async with open_or_initialize_client(common) as client:
            approve_folder(definition, common)
            answer = await client.post("/v1/sources", body)
            warn_if_server_stops(client, common)
            return answer

    answer = asyncio.run(run())
    if common.is_json:
        common.print_result(answer)
    else:
        print_stderr(f"accepted: `anabranch source status {name}` says how it is", quiet=common.quiet)
    return 0


def approve_folder(definition: dict[str, Any], common: RemoteOptions) -> None:
    """Approve the folder in the data folder, to which only its owner can write."""
    if definition["kind"] == "folder" and not common.server:
        approve(common.load_settings().data_dir, "folders", [definition["path"]])


def _call_api(common: RemoteOptions, call: Callable[[ApiClient], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        from anabranch.cli.server_connection import open_client, warn_if_server_stops

        async with open_client(common) as client:
            answer = await call(client)
            if answer:
                warn_if_server_stops(client, common)
            return answer

    return asyncio.run(run())


def _print_accepted(answer: dict[str, Any], common: RemoteOptions) -> int:
    if answer and common.is_json:
        common.print_result(answer)
    elif answer:
        print_stderr("accepted", quiet=common.quiet)
    return 0 if answer else 1


def _format_problem(status: dict[str, Any]) -> str | None:
    if status["state"] == "failed":
        return f"{status['code']}: {status['detail']}"
    if rejection := status.get("refused"):
        return f"{rejection['key']}: {rejection['detail']}"
    return f"{count} could not be taken" if (count := status.get("problem_count")) else None


def _parse_encoding(assignment: str) -> tuple[str, dict[str, Any]]:
    column, _, kind = assignment.partition("=")
    kind, _, scale = kind.partition(":")
    if not column or not kind or (scale and not scale.isdecimal()):
        raise InvalidRequest(f"{assignment!r} is not column=type", remedy="Such as --encoding made=timestamp_us or --encoding price=decimal:2.")
    return column, {"type": kind} | ({"scale": int(scale)} if scale else {})
