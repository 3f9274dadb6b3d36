"""`anabranch erase`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

from cyclopts import App, Parameter

from anabranch.cli.calls import got
from anabranch.cli.consent import agreed
from anabranch.cli.exits import FAILED, OK
from anabranch.cli.interrupted import GOES_ON, going_on
from anabranch.cli.options import Remote
from anabranch.cli.output import print_table, say
from schemas.events.erasure import Scope

app = App(name="erase", help="Remove documents for good, from the log too.", result_action="return_value")
Flag = Parameter(negative="")
DEFAULT = Remote()
POLL_S = 0.3


@app.command
def document(document: UUID, /, *, yes: Annotated[bool, Flag] = False, common: Remote = DEFAULT) -> int:
    """One document. Sent again later it begins a new life.

    Parameters
    ----------
    document
        Its id.
    yes
        Do not ask.
    """
    return _erase("document", str(document), yes, common)


@app.command
def collection(name: str, /, *, yes: Annotated[bool, Flag] = False, common: Remote = DEFAULT) -> int:
    """All documents of a collection.

    Parameters
    ----------
    name
        Its name.
    yes
        Do not ask.
    """
    return _erase("collection", name, yes, common)


@app.command
def tenant(name: str, /, *, yes: Annotated[bool, Flag] = False, common: Remote = DEFAULT) -> int:
    """Everything of a tenant.

    Parameters
    ----------
    name
        Its name; `default` in embedded mode.
    yes
        Do not ask.
    """
    return _erase("tenant", name, yes, common)


@app.command(name="receipts")
def list_receipts(*, common: Remote = DEFAULT) -> int:
    """What was erased, the newest first."""
    page = got("/v1/erasures", common)
    if common.json:
        common.show(page)
        return OK
    print_table(
        ("receipt_id", "scope", "name", "documents", "state", "completed_at"),
        [(item["receipt_id"], item["scope"], item["name"], item["documents"], item["state"], item["completed_at"]) for item in page["items"]],
    )
    return OK


def _erase(scope: Scope, name: str, yes: bool, common: Remote) -> int:
    if not yes and not agreed(f"Erase {scope} {name} for good? There is no way back."):
        say("nothing was erased")
        return FAILED
    receipt = asyncio.run(_receipt(scope, name, common))
    if common.json:
        common.show(receipt)
        return OK
    print(f"erased {scope} {name}: {receipt['documents']} documents, receipt {receipt['receipt_id']}")
    print_table(("place", "removed"), sorted(receipt["removed"].items()))
    print(f"log: {receipt['log']['method']}, {receipt['log']['events']} events can no longer be read")
    for place in receipt["remains"]:
        print(f"remains: {place}")
    return OK


async def _receipt(scope: Scope, name: str, common: Remote) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async with api_client(common, stages=("all",)) as client:
        asked = await client.post("/v1/erasures", {"scope": scope, "name": name})
        say(f"receipt {asked['receipt_id']}: waiting until nothing of it is under way any more", quiet=common.quiet)
        with going_on(lambda: f"the erasure {GOES_ON}; its receipt: anabranch erase receipts"):
            while True:
                found = await _found(client, asked["receipt_id"])
                if found is not None and found["state"] == "done":
                    return found
                await asyncio.sleep(POLL_S)


async def _found(client: Any, receipt: str) -> dict[str, Any] | None:
    """None until the request has come to the tables."""
    items: list[dict[str, Any]] = (await client.get("/v1/erasures", limit=500))["items"]
    return next((item for item in items if item["receipt_id"] == receipt), None)
