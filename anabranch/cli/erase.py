"""`anabranch erase`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter

from anabranch.cli.api_calls import get
from anabranch.cli.errors import FAILED, OK
from anabranch.cli.options import RemoteOptions
from anabranch.cli.output import (
    CONTINUES_WHILE_RUNNING,
    confirm,
    print_stderr,
    print_table,
    resume_hint,
)
from schemas.events.control import Scope

app = App(
    name="erase",
    help="Erase documents permanently, from the log too.",
    result_action="return_value",
)
Flag = Parameter(negative="")
DEFAULT = RemoteOptions()
POLL_S = 0.3


@app.command
def document(
    document: UUID, /, *, yes: Annotated[bool, Flag] = False, common: RemoteOptions = DEFAULT
) -> int:
    """Erase one document. If it is ingested again later, it starts with a new history.

    Parameters
    ----------
    document
        Document id.
    yes
        Skip the confirmation prompt.
    """
    return run_erase("document", str(document), yes, common)


@app.command
def collection(
    name: str, /, *, yes: Annotated[bool, Flag] = False, common: RemoteOptions = DEFAULT
) -> int:
    """Erase all documents of a collection.

    Parameters
    ----------
    name
        Collection name.
    yes
        Skip the confirmation prompt.
    """
    return run_erase("collection", name, yes, common)


@app.command
def tenant(
    name: str, /, *, yes: Annotated[bool, Flag] = False, common: RemoteOptions = DEFAULT
) -> int:
    """Erase all data of a tenant.

    Parameters
    ----------
    name
        Tenant name; `default` in embedded mode.
    yes
        Skip the confirmation prompt.
    """
    return run_erase("tenant", name, yes, common)


@app.command(name="receipts")
def list_receipts(*, common: RemoteOptions = DEFAULT) -> int:
    """List erasure receipts, the newest first."""
    columns = ("receipt_id", "scope", "name", "documents", "state", "completed_at")
    return common.show_page(get("/v1/erasures", common), *columns)


def run_erase(scope: Scope, name: str, yes: bool, common: RemoteOptions) -> int:
    if not yes and not confirm(f"Erase {scope} {name} permanently?"):
        print_stderr("nothing was erased")
        return FAILED
    receipt = asyncio.run(_erase_and_wait(scope, name, common))
    if common.is_json:
        common.print_result(receipt)
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


async def _erase_and_wait(scope: Scope, name: str, common: RemoteOptions) -> dict[str, Any]:
    from anabranch.cli.server_connection import open_client

    async with open_client(common, stages=("all",)) as client:
        accepted = await client.post("/v1/erasures", {"scope": scope, "name": name})
        print_stderr(
            f"receipt {accepted['receipt_id']}: waiting for events in progress to finish",
            quiet=common.quiet,
        )
        with resume_hint(
            lambda: (
                f"the erasure {CONTINUES_WHILE_RUNNING}; show its receipt: anabranch erase receipts"
            )
        ):
            while True:
                # The request may not have reached the tables yet.
                page = await client.get("/v1/erasures", limit=500)
                for receipt in page["items"]:
                    if (
                        receipt["receipt_id"] == accepted["receipt_id"]
                        and receipt["state"] == "done"
                    ):
                        return dict(receipt)
                await asyncio.sleep(POLL_S)
