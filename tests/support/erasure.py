"""Documents with canaries, and their erasure over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.api_world import TIMEOUT_S, ApiWorld

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
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await world.http.get(f"/v1/erasures/{response.json()['receipt_id']}")
            if found.status_code == 200 and found.json()["state"] == "done":
                return dict(found.json())
            await asyncio.sleep(0.05)
