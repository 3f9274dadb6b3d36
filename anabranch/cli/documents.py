"""`anabranch documents`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from anabranch.cli.api_calls import get
from anabranch.cli.names import (
    DOCUMENTS,
    DocumentName,
    WholeDocumentName,
    call_by_name,
    call_with_id,
    get_by_name,
)
from anabranch.cli.options import (
    FIRST_SORTED_PAGE,
    REMOTE,
    RemoteOptions,
    SortedPageOptions,
    Yes,
    make_conflict_error,
    make_group,
    parse_metadata,
)
from anabranch.cli.output import (
    CONTINUES_WHILE_RUNNING,
    choose_display_name,
    confirm,
    format_stage_state,
    format_waiting_stage,
    print_fields,
    resume_hint,
)
from schemas.ingest import FINAL_STATES, DocumentState

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient

app = make_group("documents")
POLL_S = 0.1
app.command(
    "anabranch.cli.runs:document_lineage",
    name="lineage",
    help="Trace a document back to its bytes and verify every event.",
)
app.command(
    "anabranch.cli.dlq:retry", name="retry", help="Redrive the failed events of a document."
)


@app.command(name="list")
def list_documents(
    *,
    search: str | None = None,
    external_id: str | None = None,
    collection: str | None = None,
    tag: str | None = None,
    state: DocumentState | None = None,
    failed: bool = False,
    page: SortedPageOptions = FIRST_SORTED_PAGE,
    common: RemoteOptions = REMOTE,
) -> int:
    """List documents, newest first.

    Args:
        search: Only documents with this text in the title or file name.
        external_id: Only the document with this external id.
        collection: Only documents of this collection.
        tag: Only documents with this tag.
        state: Only documents whose latest revision is in this state.
        failed: Short for --state failed.
    """
    if failed and state not in (None, "failed"):
        raise make_conflict_error("--failed", f"--state {state}")
    state_filter = "failed" if failed else state
    found = get(
        "/v1/documents",
        common,
        text=search,
        external_id=external_id,
        collection=collection,
        tag=tag,
        state=state_filter,
        **page.to_query(chunks="chunks_count"),
    )
    return common.show_page(
        found,
        "document_id",
        ("state", _format_state),
        ("chunks", "chunks_count"),
        "collection",
        ("title", choose_display_name),
        optional=("collection", "chunks"),
    )


@app.command
def show(document: DocumentName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show a document and its state at each stage."""
    details = get_by_name(DOCUMENTS, document, "", common)
    if common.print_if_json(details):
        return 0
    print_fields(
        {
            name: _format_field(name, value, details)
            for name, value in details.items()
            if name not in ("stages", "warnings", "waiting")
        }
    )
    if waiting := details.get("waiting"):
        print_fields({"waits for": _format_waiting(waiting)})
        if waiting["remedy"]:
            print(f"{'':18} → {waiting['remedy']}")
    for warning in details.get("warnings", []):
        print(f"{'warning':18} {warning['detail']} [{warning['code']}]")
    common.print_items(
        details.get("stages", []),
        (
            "stage",
            ("state", format_stage_state),
            "attempts",
            ("ms", "duration_ms"),
            ("error", lambda line: (line.get("error") or {}).get("code")),
        ),
    )
    return 0


@app.command(name="open")
def open_page(
    document: DocumentName,
    /,
    *,
    browser: Annotated[bool, Parameter(negative="--no-browser")] = True,
    common: RemoteOptions = REMOTE,
) -> int:
    """Print the link of a document's page in the web UI, and open it in a browser.

    Sign in once with the link of `anabranch open`.

    Args:
        browser: Open the page if there is a graphical browser.
    """
    import webbrowser

    from anabranch.cli.up import has_screen

    link = asyncio.run(_find_page(document, common))

    def print_link() -> None:
        print(link["url"])
        if browser and has_screen():
            webbrowser.open(link["url"])

    return common.show(link, print_link)


async def _find_page(document: str, common: RemoteOptions) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_lasting_client

    async with open_lasting_client(common) as client:
        details = await call_with_id(
            client, DOCUMENTS, document, lambda client, found: client.get(f"/v1/documents/{found}")
        )
        page = f"{client.url}/ui/documents/{details['document_id']}"
        return {"document_id": details["document_id"], "url": page}


@app.command
def chunks(
    document: DocumentName,
    /,
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
    after: Annotated[int, Parameter(validator=Number(gte=-1))] = -1,
    common: RemoteOptions = REMOTE,
) -> int:
    """Show the chunks of a document, in the order of the text.

    Args:
        limit: Maximum number of chunks.
        after: Continue after the chunk with this ordinal.
    """
    page = get_by_name(DOCUMENTS, document, "/chunks", common, limit=limit, after=after)
    if common.print_if_json(page):
        return 0
    for item in page["items"]:
        print(
            f"--- {item['ordinal']}  {item.get('section') or ''}  [{item['char_start']}, "
            f"{item['char_end']})\n{item['text']}"
        )
    return 0


@app.command
def markdown(document: DocumentName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Show the Markdown text of a document, to which spans refer."""

    async def fetch(client: ApiClient, document_id: str) -> dict[str, Any]:
        text = await client.get_text(f"/v1/documents/{document_id}/markdown")
        return {"document_id": document_id, "markdown": text}

    body = call_by_name(DOCUMENTS, document, common, fetch)
    return common.show(body, lambda: print(body["markdown"]))


@app.command
def amend(
    document: DocumentName,
    /,
    *,
    title: str | None = None,
    collection: str | None = None,
    tag: tuple[str, ...] | None = None,
    no_tags: bool = False,
    reader: tuple[str, ...] | None = None,
    metadata: tuple[str, ...] = (),
    common: RemoteOptions = REMOTE,
) -> int:
    """Change the title, collection, tags, readers or metadata of a document. Its text is not
    processed again.

    Args:
        title: New title, shown at once; search uses it from the next revision on. Empty removes the
            title.
        collection: New collection. Empty removes the document from its collection.
        tag: Replace the tags by this one. Repeatable.
        no_tags: Remove all tags.
        reader: Replace the readers by this user or group: user:NAME or group:NAME. Repeatable.
            `everyone` removes the limit.
        metadata: Set metadata: key=value, where value is JSON or else text. `key=` removes the key.
            Repeatable.
    """
    tags = [] if no_tags else list(tag) if tag is not None else None
    changes = {
        "title": title,
        "collection": collection,
        "tags": tags,
        "readers": list(reader) if reader is not None else None,
        "metadata": parse_metadata(metadata) or None,
    }

    async def run(client: ApiClient, document_id: str) -> dict[str, Any]:
        body = {name: value for name, value in changes.items() if value is not None}
        accepted = await client.call("PATCH", f"/v1/documents/{document_id}", body)
        return await _wait_until_applied(client, accepted)

    answer = call_by_name(DOCUMENTS, document, common, run, stages=("all",))
    return common.acknowledge(answer, "accepted; filters and lists reflect the change shortly")


@app.command
def delete(
    document: WholeDocumentName, /, *, yes: Yes = False, common: RemoteOptions = REMOTE
) -> int:
    """Withdraw a document from all results. Its history stays in the log."""

    async def run(client: ApiClient, document_id: str) -> dict[str, Any]:
        details = await client.get(f"/v1/documents/{document_id}")
        name = details.get("title") or details.get("filename")
        confirm(
            f"Delete document {document_id} ({name}, {details.get('chunks_count')} chunks)?",
            yes=yes,
        )
        accepted = await client.call("DELETE", f"/v1/documents/{document_id}")
        return await _wait_until_applied(client, accepted)

    answer = call_by_name(DOCUMENTS, document, common, run, is_exact=True, stages=("all",))
    return common.acknowledge(answer, "accepted; the document disappears from all results shortly")


async def _wait_until_applied(client: ApiClient, accepted: dict[str, Any]) -> dict[str, Any]:
    """Wait until a temporary server has applied the change: its stages stop with the command."""
    with resume_hint(
        f"the change was accepted and {CONTINUES_WHILE_RUNNING}; show its state: anabranch "
        f"documents show {accepted['document_id']}"
    ):
        while (
            # A lasting server applies the change by itself.
            client.is_ephemeral
            and (await client.get(f"/v1/ingest/status/{accepted['ingestion_job_id']}"))["state"]
            not in FINAL_STATES
        ):
            await asyncio.sleep(POLL_S)
    return accepted


def _format_state(document: dict[str, Any]) -> str:
    waiting = document.get("waiting")
    return str(document["state"]) + (f" ({format_waiting_stage(waiting)})" if waiting else "")


def _format_waiting(waiting: dict[str, Any]) -> str:
    """Format a sentence such as `embed, with 12 events pending: it is being processed`."""
    pending = waiting["pending"]
    count = f", with {pending} {'event' if pending == 1 else 'events'} pending" if pending else ""
    reason = waiting["reason"] or ("it is paused" if waiting["paused"] else None)
    return f"{format_waiting_stage(waiting)}{count}" + (f": {reason}" if reason else "")


def _format_field(name: str, value: object, details: dict[str, Any]) -> object:
    if name == "visible_revision" and any(
        warning["code"] == "UNCHANGED" for warning in details.get("warnings", [])
    ):
        return f"{value} (revision {details['revision']} changed nothing)"
    if name == "readers":
        return (
            ", ".join(map(str, value)) or "only callers without readers"
            if isinstance(value, list)
            else "everyone in the tenant"
        )
    return value
