"""Documents with canaries, and their erasure over HTTP."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from schemas.events import EntityAmended, build_root_event
from schemas.timestamps import utc_now
from schemas.topics import CONTROL
from services.storage import Storage
from streams.codec import Codec
from tests.support.api_world import ApiWorld
from tests.support.eventually import eventually

UNENCRYPTED_TOPICS = {"raw", "outcomes"}


CANARY = "Quetzalcoatlus"


METADATA_CANARY = "x7canary"


CANARY_TEXT = (
    f"# The {METADATA_CANARY} report\n\n"
    f"{CANARY} Northropi was seen at the weir of Marlow "
    f"on 3 May 2021. Anna Lindqvist of {CANARY} Limited paid EUR 4,200 for the watch."
)


OTHER_TEXT = (
    "# Of lighthouses\n\n"
    "The lighthouse of Skerryvore was built by Alan Stevenson. Anna Lindqvist visited it in 1999."
)


async def erase(world: ApiWorld, scope: str, name: str) -> dict[str, Any]:
    response = await world.http.post("/v1/erasures", json={"scope": scope, "name": name})
    assert response.status_code == 202, response.text
    return await wait_until_erased(world, response.json()["receipt_id"])


async def wait_until_erased(world: ApiWorld, receipt_id: str) -> dict[str, Any]:
    """Wait until the erasure is done and return its receipt."""
    return await eventually(
        lambda: world.fetch_json(f"/v1/erasures/{receipt_id}"),
        lambda receipt: receipt and receipt["state"] == "done",
        what=f"erasure {receipt_id}",
    )


async def append_clear_alias(storage: Storage, tenant: str, alias: str) -> None:
    """Append an event as the versions did that did not seal aliases."""
    entity_id = uuid4()
    event = build_root_event(
        EntityAmended(tenant=tenant, entity_id=entity_id, add_aliases=[alias]),
        uuid4(),
        "anabranch/entities",
        utc_now,
        tenant=tenant,
    )
    clear_codec = Codec(signer=storage.codec.signer)
    await storage.log.append([await clear_codec.encode(event, CONTROL, str(entity_id))])


async def ingest_canary(world: ApiWorld, text: str = CANARY_TEXT) -> dict[str, Any]:
    """Ingest the document to erase, whose text, name, id and title are found only there."""
    return await world.ingest_until_searchable(
        text,
        f"{METADATA_CANARY}.md",
        external_id=f"{METADATA_CANARY}-1",
        title=f"A {METADATA_CANARY} title",
    )
