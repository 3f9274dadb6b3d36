"""`anabranch erase`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from anabranch.cli.api_calls import call_api, get
from anabranch.cli.errors import OK
from anabranch.cli.names import DOCUMENTS, NamedResource, WholeDocumentName, call_by_name
from anabranch.cli.options import REMOTE, CollectionName, RemoteOptions, Yes, make_group
from anabranch.cli.output import (
    CONTINUES_WHILE_RUNNING,
    confirm,
    print_table,
    resume_hint,
)

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient
    from schemas.events.control import Scope

app = make_group("erase")
POLL_S = 0.3


@app.command
def document(
    document: WholeDocumentName, /, *, yes: Yes = False, common: RemoteOptions = REMOTE
) -> int:
    """Erase one document. If it is ingested again later, it starts with a new history."""
    return erase_by_name(DOCUMENTS, "document", document, yes, common)


@app.command
def collection(name: CollectionName, /, *, yes: Yes = False, common: RemoteOptions = REMOTE) -> int:
    """Erase all documents of a collection."""
    return run_erase("collection", name, yes, common)


@app.command
def tenant(name: str, /, *, yes: Yes = False, common: RemoteOptions = REMOTE) -> int:
    """Erase all data of a tenant.

    Args:
        name: Tenant name; `default` in embedded mode.
    """
    return run_erase("tenant", name, yes, common)


@app.command(name="receipts")
def list_receipts(*, common: RemoteOptions = REMOTE) -> int:
    """List erasure receipts, the newest first."""
    columns = ("receipt_id", "scope", "name", "documents", "state", "completed_at")
    found = get("/v1/erasures", common)
    return common.show_page(found, *columns, optional=("completed_at", "documents"))


def erase_by_name(
    resource: NamedResource, scope: Scope, name: str, yes: bool, common: RemoteOptions
) -> int:
    async def erase(client: ApiClient, found_id: str) -> dict[str, Any]:
        label = found_id if found_id == name else f"{found_id} ({name})"
        return await _confirm_and_erase(client, scope, found_id, label, yes, common)

    receipt = call_by_name(resource, name, common, erase, is_exact=True, stages=("all",))
    return _print_receipt(scope, name, receipt, common)


def run_erase(scope: Scope, name: str, yes: bool, common: RemoteOptions) -> int:
    receipt = call_api(
        common,
        lambda client: _confirm_and_erase(client, scope, name, name, yes, common),
        stages=("all",),
    )
    return _print_receipt(scope, name, receipt, common)


def _print_receipt(scope: Scope, name: str, receipt: dict[str, Any], common: RemoteOptions) -> int:
    if common.print_if_json(receipt):
        return OK
    n_documents = receipt["documents"]
    documents = f"{n_documents} {'document' if n_documents == 1 else 'documents'}, "
    print(
        f"erased {scope} {name}: {documents if scope != 'fact' else ''}"
        f"receipt {receipt['receipt_id']}"
    )
    print_table(("place", "removed"), sorted(receipt["removed"].items()))
    print(
        f"log: {receipt['log']['method']}, {receipt['log']['events']} events can no longer be read"
    )
    for remaining in receipt["remains"]:
        print(f"remains: {remaining}")
    return OK


async def _confirm_and_erase(
    client: ApiClient, scope: Scope, name: str, label: str, yes: bool, common: RemoteOptions
) -> dict[str, Any]:
    """Erase and wait for the receipt."""
    confirm(f"Erase {scope} {label} permanently?", yes=yes)
    accepted = await client.post("/v1/erasures", {"scope": scope, "name": name})
    common.print_note(f"receipt {accepted['receipt_id']}: waiting for events in progress to finish")
    with resume_hint(
        f"the erasure {CONTINUES_WHILE_RUNNING}; show its receipt: anabranch erase receipts"
    ):
        while True:
            # The request may not have reached the tables yet.
            page = await client.get("/v1/erasures", limit=500)
            for receipt in page["items"]:
                if receipt["receipt_id"] == accepted["receipt_id"] and receipt["state"] == "done":
                    return dict(receipt)
            await asyncio.sleep(POLL_S)
