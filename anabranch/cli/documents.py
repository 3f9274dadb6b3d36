"""`anabranch documents`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import get
from anabranch.cli.confirmation import confirm
from anabranch.cli.exit_codes import FAILED, OK
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import choose_display_name, print_fields, print_stderr, print_table
from anabranch.cli.resume_hint import CONTINUES_WHILE_RUNNING, resume_hint
from schemas.document_states import FINAL_STATES, DocumentState
from schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = App(name="documents", help="List, show, amend and remove documents.", result_action="return_value")
Flag = Parameter(negative="")
POLL_S = 0.1
DEFAULT = RemoteOptions()
app.command("anabranch.cli.lineage:document_lineage", name="lineage", help="Every event that a document came by, from its bytes on, verified.")
app.command("anabranch.cli.dlq:retry", name="retry", help="Read again what failed of a document.")


@app.command(name="list")
def list_documents(
    *,
    external_id: str | None = None,
    collection: str | None = None,
    tag: str | None = None,
    state: DocumentState | None = None,
    failed: Annotated[bool, Flag] = False,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
    after: str | None = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List documents, newest first.

    Parameters
    ----------
    external_id
        With this external id.
    collection
        Of this collection.
    tag
        With this tag.
    state
        Only those where their latest revision is so.
    failed
        The same as --state failed.
    limit
        At most so many.
    after
        `next` of the page before.
    """
    if failed and state not in (None, "failed"):
        raise ConfigurationError(f"--failed and --state {state} contradict each other", remedy="Give one of them.")
    state_filter = "failed" if failed else state
    page = get("/v1/documents", common, external_id=external_id, collection=collection, tag=tag, state=state_filter, limit=limit, after=after)
    if common.is_json:
        common.print_result(page)
        return 0
    rows = [(item["document_id"], item.get("state"), item.get("chunks_count"), item.get("collection"), choose_display_name(item)) for item in page["items"]]
    print_table(("document_id", "state", "chunks", "collection", "title"), rows)
    if page["next"]:
        print_stderr(f"more: --after {page['next']}", quiet=common.quiet)
    return 0


@app.command
def show(document: UUID, /, *, common: RemoteOptions = DEFAULT) -> int:
    """A document, and what each stage did with it.

    Parameters
    ----------
    document
        Its id.
    """
    details = get(f"/v1/documents/{document}", common)
    if common.is_json:
        common.print_result(details)
        return 0
    print_fields({name: _format_field(name, value, details) for name, value in details.items() if name not in ("stages", "warnings")})
    for warning in details.get("warnings", []):
        print(f"{'warning':18} {warning['detail']} [{warning['code']}]")
    stages = details.get("stages", [])
    print_table(
        ("stage", "state", "attempts", "ms", "error"),
        [(line["stage"], line["state"], line["attempts"], line["duration_ms"], _get_error_code(line)) for line in stages],
    )
    return 0


@app.command
def chunks(
    document: UUID,
    /,
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
    after: Annotated[int, Parameter(validator=Number(gte=-1))] = -1,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Its chunks, in the order of the text.

    Parameters
    ----------
    document
        Its id.
    limit
        At most so many.
    after
        Ordinal after which to begin.
    """
    page = get(f"/v1/documents/{document}/chunks", common, limit=limit, after=after)
    if common.is_json:
        common.print_result(page)
        return 0
    for item in page["items"]:
        print(f"--- {item['ordinal']}  {item.get('section') or ''}  [{item['char_start']}, {item['char_end']})\n{item['text']}")
    return 0


@app.command
def markdown(document: UUID, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Its text, as spans point into it.

    Parameters
    ----------
    document
        Its id.
    """
    from anabranch.cli.server_connection import open_client

    async def ask() -> str:
        async with open_client(common) as client:
            return await client.get_text(f"/v1/documents/{document}/markdown")

    text = asyncio.run(ask())
    if common.is_json:
        common.print_result({"document_id": document, "markdown": text})
    else:
        print(text)
    return 0


@app.command
def amend(
    document: UUID,
    /,
    *,
    title: str | None = None,
    collection: str | None = None,
    tag: Annotated[tuple[str, ...] | None, Parameter(negative="")] = None,
    no_tags: Annotated[bool, Flag] = False,
    reader: Annotated[tuple[str, ...] | None, Parameter(negative="")] = None,
    metadata: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    common: RemoteOptions = DEFAULT,
) -> int:
    """Say something else of a document; its text is not touched, and nothing is embedded again.

    Parameters
    ----------
    document
        Its id.
    title
        Shown at once, searched by from the next revision on; an empty one takes it away.
    collection
        An empty one takes the document out of its collection.
    tag
        In place of the tags it has; several times for several.
    no_tags
        Take its tags away.
    reader
        User or group that may read it, in place of those it has: user:NAME or group:NAME, several times for several; `everyone` lifts the limit.
    metadata
        `key=value`, several times for several: a number, true, false or other JSON as such, anything else as text; `key=` takes the key away.
    """
    from anabranch.cli.server_connection import open_client

    tags = [] if no_tags else list(tag) if tag is not None else None
    changes = {
        "title": title,
        "collection": collection,
        "tags": tags,
        "readers": list(reader) if reader is not None else None,
        "metadata": dict(map(_parse_metadata, metadata)) or None,
    }

    async def run() -> dict[str, Any]:
        async with open_client(common, stages=("all",)) as client:
            body = {name: value for name, value in changes.items() if value is not None}
            return await _wait_until_applied(client, await client.patch(f"/v1/documents/{document}", body))

    answer = asyncio.run(run())
    if common.is_json:
        common.print_result(answer)
    else:
        print_stderr("accepted: filters and lists know it soon", quiet=common.quiet)
    return OK


def _parse_metadata(assignment: str) -> tuple[str, Any]:
    """Raises ConfigurationError for what is no assignment."""
    key, sign, value = assignment.partition("=")
    if not sign or not key:
        raise ConfigurationError(f"--metadata {assignment}: not key=value", code="NOT_AN_ASSIGNMENT", remedy="Write --metadata key=value.")
    try:
        return key, json.loads(value) if value else None
    except ValueError:
        return key, value


@app.command
def delete(document: UUID, /, *, yes: Annotated[bool, Flag] = False, common: RemoteOptions = DEFAULT) -> int:
    """Take a document out of every channel. Its history stays in the log.

    Parameters
    ----------
    document
        Its id.
    yes
        Do not ask.
    """
    from anabranch.cli.server_connection import open_client

    async def run() -> dict[str, Any]:
        async with open_client(common, stages=("all",)) as client:
            details = await client.get(f"/v1/documents/{document}")
            if not yes and not confirm(_format_delete_prompt(details)):
                return {}
            return await _wait_until_applied(client, await client.delete(f"/v1/documents/{document}"))

    answer = asyncio.run(run())
    if not answer:
        print_stderr("nothing was removed")
        return FAILED
    if common.is_json:
        common.print_result(answer)
    else:
        print_stderr("accepted: it answers no question any more soon", quiet=common.quiet)
    return OK


async def _wait_until_applied(client: ApiClient, accepted: dict[str, Any]) -> dict[str, Any]:
    """A server that stops with the command has done first what it accepted: nobody is left to do it, and the document would go on as it was."""
    with resume_hint(lambda: f"it was accepted, and {CONTINUES_WHILE_RUNNING}; how far it is: anabranch documents show {accepted['document_id']}"):
        while client.is_ephemeral and (await client.get(f"/v1/ingest/status/{accepted['ingestion_job_id']}"))["state"] not in FINAL_STATES:
            await asyncio.sleep(POLL_S)
    return accepted


def _format_delete_prompt(details: dict[str, Any]) -> str:
    return f"{details['document_id']}  {details.get('title') or details.get('filename')}  {details.get('chunks_count')} chunks. Remove it?"


def _get_error_code(line: dict[str, Any]) -> str | None:
    return line["error"]["code"] if line.get("error") else None


def _format_field(name: str, value: object, details: dict[str, Any]) -> object:
    if name == "visible_revision" and any(warning["code"] == "UNCHANGED" for warning in details.get("warnings", [])):
        return f"{value} (revision {details['revision']} changed nothing)"
    if name == "readers":
        return ", ".join(map(str, value)) or "only callers without readers" if isinstance(value, list) else "everyone in the tenant"
    return value
