"""The text of a superseded revision is read from the log while the log holds it."""

from __future__ import annotations

import asyncpg
import httpx2

from anabranch.composition.storage import recover_database
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from processors.transcribe import MAX_INLINE_BYTES
from tests.support.api_world import ApiWorld, run_system
from tests.support.database_copies import copy_keys, copy_log
from tests.support.erasure import erase
from tests.support.limited_callers import open_limited_callers

FIRST = "<h1>Tolls</h1><p>A van pays 4.50 crowns.</p>"
SECOND = "<h1>Tolls</h1><p>A van pays 5.25 crowns.</p>"
LONG = "# Ledger\n\n" + "\n\n".join(
    f"Entry {number} records {number * 7919} herons." for number in range(MAX_INLINE_BYTES // 30)
)


async def fetch_text(world: ApiWorld, document: str, revision: int) -> httpx2.Response:
    return await world.http.get(f"/v1/documents/{document}/markdown", params={"revision": revision})


async def ingest_revisions(world: ApiWorld, *texts: str) -> str:
    for text in texts:
        receipt = await world.ingest_until_searchable(text, "tolls.html", external_id="tolls")
    return str(receipt["document_id"])


async def test_text_of_superseded_revision_is_served(world: ApiWorld) -> None:
    # The third has the bytes of the second and shares its text.
    document = await ingest_revisions(world, FIRST, SECOND, SECOND, FIRST)
    texts = [await fetch_text(world, document, revision) for revision in (1, 2, 3, 4)]
    assert ["4.50" in text.text for text in texts] == [True, False, False, True]
    assert texts[1].text == texts[2].text and "A van pays 5.25 crowns." in texts[1].text
    assert (await fetch_text(world, document, 5)).status_code == 404


async def test_text_above_the_inline_limit_is_served(world: ApiWorld) -> None:
    for text in (LONG, "# Ledger\n\nIt was lost."):
        receipt = await world.ingest_until_searchable(text, "ledger.md", external_id="ledger")
        visible = await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")
        assert visible.text.strip() == text
    superseded = await fetch_text(world, receipt["document_id"], 1)
    assert superseded.text.strip() == LONG


async def test_withdrawn_text_is_served_by_revision_only(world: ApiWorld) -> None:
    document = await ingest_revisions(world, FIRST)
    receipt = (await world.http.delete(f"/v1/documents/{document}")).json()
    await world.wait_until_final(receipt)
    assert (await world.http.get(f"/v1/documents/{document}/markdown")).status_code == 404
    assert "4.50" in (await fetch_text(world, document, 1)).text


async def test_text_that_the_log_lost_is_refused_with_the_reason(
    world: ApiWorld, database: str
) -> None:
    document = await ingest_revisions(world, FIRST, SECOND)
    connection = await asyncpg.connect(database)
    await connection.execute("delete from anabranch.events where topic = 'ocr_done'")
    expired = await fetch_text(world, document, 1)
    assert expired.status_code == 404
    assert "revision 1: removed from the log by retention." in expired.json()["detail"]
    await connection.execute("delete from anabranch.job_stages")
    await connection.close()
    unknown = await fetch_text(world, document, 1)
    assert "its position in the log is not recorded" in unknown.json()["detail"]
    assert "5.25" in (await fetch_text(world, document, 2)).text


async def test_text_of_another_document_is_not_served(world: ApiWorld, database: str) -> None:
    document = await ingest_revisions(world, FIRST, SECOND)
    await world.ingest_until_searchable("The vault is under the mill.", external_id="secret")
    connection = await asyncpg.connect(database)
    await connection.execute(
        "update anabranch.job_stages set log_offset = "
        "(select max(position) from anabranch.events where topic = 'ocr_done') "
        "where stage = 'chunk'"
    )
    await connection.close()
    refused = await fetch_text(world, document, 1)
    assert refused.status_code == 404 and "another event is stored there" in refused.text


async def test_erased_document_has_no_text_of_any_revision(world: ApiWorld) -> None:
    document = await ingest_revisions(world, FIRST, SECOND)
    await erase(world, "document", document)
    for revision in (1, 2):
        erased = await fetch_text(world, document, revision)
        assert erased.status_code == 404 and "crowns" not in erased.text, erased.text


async def test_superseded_text_is_limited_to_its_readers(
    settings: Settings, database: str, overrides: Overrides
) -> None:
    async with open_limited_callers(settings, database, overrides) as callers:
        for text, readers in ((FIRST, ["user:board"]), (SECOND, None)):
            receipt = await callers.ingest(
                "admin", text=text, external_id="tolls", **({"readers": readers} if readers else {})
            )
            await callers.wait_until_final(receipt)
        document = receipt.json()["document_id"]
        seen = {
            user: (await callers.fetch(user, document, "/markdown?revision=1")).status_code
            for user in ("admin", "ana")
        }
        assert seen == {"admin": 200, "ana": 404}
        assert (await callers.fetch("ana", document, "/markdown?revision=2")).status_code == 200


async def test_superseded_text_is_served_after_a_recovery(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        document = await ingest_revisions(world, FIRST, SECOND)
    await copy_log(database, other_database)
    await copy_keys(database, other_database)
    await recover_database(settings, other_database)
    async with run_system(settings, other_database, overrides) as world:
        found = await fetch_text(world, document, 1)
    assert "4.50" in found.text, found.text
