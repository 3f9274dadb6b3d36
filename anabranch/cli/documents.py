"""`anabranch documents`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter
from cyclopts.validators import Number

from anabranch.cli.calls import got
from anabranch.cli.consent import agreed
from anabranch.cli.exits import FAILED, OK
from anabranch.cli.interrupted import GOES_ON, going_on
from anabranch.cli.options import Remote
from anabranch.cli.output import called, print_fields, print_table, say
from schemas.errors import ConfigurationError
from schemas.states import ENDED, DocumentState

if TYPE_CHECKING:
    from anabranch.client import ApiClient

app = App(name="documents", help="List, show, amend and remove documents.", result_action="return_value")
Flag = Parameter(negative="")
POLL_S = 0.1
DEFAULT = Remote()
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
    common: Remote = DEFAULT,
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
    wanted = "failed" if failed else state
    page = got("/v1/documents", common, external_id=external_id, collection=collection, tag=tag, state=wanted, limit=limit, after=after)
    if common.json:
        common.show(page)
        return 0
    rows = [(item["document_id"], item.get("state"), item.get("chunks_count"), item.get("collection"), called(item)) for item in page["items"]]
    print_table(("document_id", "state", "chunks", "collection", "title"), rows)
    if page["next"]:
        say(f"more: --after {page['next']}", quiet=common.quiet)
    return 0


@app.command
def show(document: UUID, /, *, common: Remote = DEFAULT) -> int:
    """A document, and what each stage did with it.

    Parameters
    ----------
    document
        Its id.
    """
    found = got(f"/v1/documents/{document}", common)
    if common.json:
        common.show(found)
        return 0
    print_fields({name: _shown(name, value, found) for name, value in found.items() if name not in ("stages", "warnings")})
    for warning in found.get("warnings", []):
        print(f"{'warning':18} {warning['detail']} [{warning['code']}]")
    stages = found.get("stages", [])
    print_table(
        ("stage", "state", "attempts", "ms", "error"), [(line["stage"], line["state"], line["attempts"], line["duration_ms"], _code(line)) for line in stages]
    )
    return 0


@app.command
def chunks(
    document: UUID,
    /,
    *,
    limit: Annotated[int, Parameter(validator=Number(gte=1))] = 50,
    after: Annotated[int, Parameter(validator=Number(gte=-1))] = -1,
    common: Remote = DEFAULT,
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
    page = got(f"/v1/documents/{document}/chunks", common, limit=limit, after=after)
    if common.json:
        common.show(page)
        return 0
    for item in page["items"]:
        print(f"--- {item['ordinal']}  {item.get('section') or ''}  [{item['char_start']}, {item['char_end']})\n{item['text']}")
    return 0


@app.command
def markdown(document: UUID, /, *, common: Remote = DEFAULT) -> int:
    """Its text, as spans point into it.

    Parameters
    ----------
    document
        Its id.
    """
    from anabranch.cli.serving import api_client

    async def ask() -> str:
        async with api_client(common) as client:
            return await client.text(f"/v1/documents/{document}/markdown")

    text = asyncio.run(ask())
    if common.json:
        common.show({"document_id": document, "markdown": text})
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
    common: Remote = DEFAULT,
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
    from anabranch.cli.serving import api_client

    tags = [] if no_tags else list(tag) if tag is not None else None
    said = {
        "title": title,
        "collection": collection,
        "tags": tags,
        "readers": list(reader) if reader is not None else None,
        "metadata": dict(map(_pair, metadata)) or None,
    }

    async def run() -> dict[str, Any]:
        async with api_client(common, stages=("all",)) as client:
            body = {name: value for name, value in said.items() if value is not None}
            return await _seen_through(client, await client.patch(f"/v1/documents/{document}", body))

    answer = asyncio.run(run())
    if common.json:
        common.show(answer)
    else:
        say("accepted: filters and lists know it soon", quiet=common.quiet)
    return OK


def _pair(assignment: str) -> tuple[str, Any]:
    """Raises ConfigurationError for what is no assignment."""
    key, sign, value = assignment.partition("=")
    if not sign or not key:
        raise ConfigurationError(f"--metadata {assignment}: not key=value", code="NOT_AN_ASSIGNMENT", remedy="Write --metadata key=value.")
    try:
        return key, json.loads(value) if value else None
    except ValueError:
        return key, value


@app.command
def delete(document: UUID, /, *, yes: Annotated[bool, Flag] = False, common: Remote = DEFAULT) -> int:
    """Take a document out of every channel. Its history stays in the log.

    Parameters
    ----------
    document
        Its id.
    yes
        Do not ask.
    """
    from anabranch.cli.serving import api_client

    async def run() -> dict[str, Any]:
        async with api_client(common, stages=("all",)) as client:
            found = await client.get(f"/v1/documents/{document}")
            if not yes and not agreed(_named(found)):
                return {}
            return await _seen_through(client, await client.delete(f"/v1/documents/{document}"))

    answer = asyncio.run(run())
    if not answer:
        say("nothing was removed")
        return FAILED
    if common.json:
        common.show(answer)
    else:
        say("accepted: it answers no question any more soon", quiet=common.quiet)
    return OK


async def _seen_through(client: ApiClient, accepted: dict[str, Any]) -> dict[str, Any]:
    """A server that stops with the command has done first what it accepted: nobody is left to do it, and the document would go on as it was."""
    with going_on(lambda: f"it was accepted, and {GOES_ON}; how far it is: anabranch documents show {accepted['document_id']}"):
        while client.passing and (await client.get(f"/v1/ingest/status/{accepted['ingestion_job_id']}"))["state"] not in ENDED:
            await asyncio.sleep(POLL_S)
    return accepted


def _named(found: dict[str, Any]) -> str:
    return f"{found['document_id']}  {found.get('title') or found.get('filename')}  {found.get('chunks_count')} chunks. Remove it?"


def _code(line: dict[str, Any]) -> str | None:
    return line["error"]["code"] if line.get("error") else None


def _shown(name: str, value: object, found: dict[str, Any]) -> object:
    if name == "visible_revision" and any(warning["code"] == "UNCHANGED" for warning in found.get("warnings", [])):
        return f"{value} (revision {found['revision']} changed nothing)"
    if name == "readers":
        return ", ".join(map(str, value)) or "only callers without readers" if isinstance(value, list) else "everyone in the tenant"
    return value
