"""Dead letters of documents that came no further than the door, and what becomes of them when others speak of the same documents meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import Response

from anabranch.composition.overrides import Overrides
from anabranch.settings import Settings
from tests.both_logs import on_both_logs
from tests.canaries import in_files, in_tables
from tests.fakes.choosy import Choosy
from tests.fakes.serving import serving
from tests.journey.conftest import World, running
from tests.journey.replaying import ended, get, is_state, letters, none_left, post, until
from tests.journey.test_erasure import erase
from tests.journey.test_erasure_meanwhile import CLEAR

PAGE = "The quetzal flew over the weir."


class Site:
    """Pages that are not there until somebody puts them there."""

    def __init__(self) -> None:
        self.is_mended = False
        self.asked: list[str] = []
        self.address = ""

    @contextmanager
    def serving(self) -> Iterator[Site]:
        app = FastAPI()
        app.get("/{name}")(self.page)
        with serving(app) as self.address:
            yield self

    async def page(self, name: str) -> Response:
        self.asked.append(name)
        return Response(f"{PAGE} {name}", media_type="text/plain") if self.is_mended else Response("no", 404)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().serving() as found:
        yield found


@pytest.fixture
async def world(settings: Settings, database: str, overrides: Overrides, site: Site) -> AsyncIterator[World]:
    allowed = settings.ingest.model_copy(update={"url_allow": (site.address.removeprefix("http://"),)})
    async with running(settings.model_copy(update={"ingest": allowed}), database, overrides) as found:
        yield found


async def refused(world: World, site: Site, name: str) -> dict[str, Any]:
    """A document whose page is not there."""
    receipt = await post(world, "/v1/ingest", {"url": f"{site.address}/{name}", "external_id": name, "title": f"Quetzal {name}"})
    assert (await world.ended(receipt))["state"] == "failed"
    return receipt


async def redriven(world: World, **chosen: Any) -> dict[str, Any]:
    [replay] = (await post(world, "/v1/dead-letters/redrive", chosen))["replays"]
    return await ended(world, replay)


@on_both_logs
async def test_documents_that_failed_at_the_door_come_in_once_what_was_wrong_is_mended(world: World, site: Site) -> None:
    receipts = [await refused(world, site, name) for name in "ab"]
    await world.ended(await world.ingest("%PDF-1.7\nno more", "torn.pdf"))
    causes = {(cause["stage"], cause["code"]): cause["events"] for cause in (await get(world, "/v1/dead-letters/causes"))["items"]}
    assert causes.pop(("receive", "FETCH_FAILED")) == 2 and list(causes.values()) == [1]
    assert (await redriven(world, code="FETCH_FAILED"))["buried"] == 2, "nothing has been mended yet"
    site.is_mended = True
    assert (await redriven(world, code="FETCH_FAILED"))["replayed"] == 2
    for receipt in receipts:
        await until(lambda receipt=receipt: is_state(world, receipt["document_id"], "searchable"))  # type: ignore[misc]
        assert (await world.ended(receipt))["state"] == "searchable", "whoever asks for the job is told, too"
    assert len(await world.search("quetzal over the weir", channels=["lexical"])) == 2
    assert [letter["filename"] for letter in await letters(world)] == ["torn.pdf"]


async def test_a_letter_that_does_not_tell_its_document_is_redriven_with_the_document_of_its_job(world: World, site: Site) -> None:
    mended, other = [await refused(world, site, name) for name in "ab"]
    await world.worker.storage.pool.execute("update dead_letters set document_id = null")
    site.is_mended = True
    assert (await redriven(world, document_id=mended["document_id"]))["replayed"] == 1
    await until(lambda: is_state(world, mended["document_id"], "searchable"))
    assert [letter["event_id"] for letter in await letters(world)] == [other["ingestion_job_id"]]


@on_both_logs
async def test_what_failed_at_the_door_does_not_come_back_over_a_newer_revision_or_a_withdrawal(world: World, site: Site) -> None:
    old, gone = [await refused(world, site, name) for name in ("old", "gone")]
    await world.searchable("The otter swims.", external_id="old")
    await world.ended((await world.http.delete(f"/v1/documents/{gone['document_id']}")).json())
    site.is_mended = True
    assert (await redriven(world, all=True))["state"] == "done"
    await until(lambda: none_left(world))
    assert {(await world.ended(receipt))["state"] for receipt in (old, gone)} <= {"superseded", "withdrawn"}
    [chunk] = (await get(world, f"/v1/documents/{old['document_id']}/chunks"))["items"]
    assert "otter" in chunk["text"] and await world.search("quetzal", channels=["lexical"]) == []
    assert await is_state(world, gone["document_id"], "withdrawn") and await is_state(world, old["document_id"], "searchable")


@on_both_logs
async def test_what_is_erased_in_the_middle_of_a_redrive_is_not_redriven(world: World, site: Site) -> None:
    receipts = [await refused(world, site, name) for name in "ab"]
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True, "per_second": 0.5}))["replays"]
    await post(world, f"/v1/replays/{replay}/pause", {}, 200)
    for receipt in receipts:
        await erase(world, "document", receipt["document_id"])
    site.is_mended, asked = True, len(site.asked)
    await post(world, f"/v1/replays/{replay}/resume", {}, 200)
    assert (await ended(world, replay))["state"] == "done"
    assert len(site.asked) == asked and await none_left(world)
    assert [(await world.http.get(f"/v1/documents/{receipt['document_id']}")).status_code for receipt in receipts] == [404] * 2
    assert (await world.http.post("/v1/dead-letters/redrive", json={"event_ids": [receipts[0]["ingestion_job_id"]]})).status_code == 404
    assert await in_tables(world.worker.storage.pool, ["quetzal"]) <= CLEAR and in_files(world.settings.data_dir, ["quetzal"]) == set()


async def test_a_letter_behind_the_door_is_shown_with_the_names_of_its_document(settings: Settings, database: str) -> None:
    async with running(settings, database, Overrides(embedder=Choosy())) as world:
        await world.ended(await world.ingest("A heron stood there.", "heron.md", external_id="heron", title="Of herons"))
        [letter] = await letters(world)
    assert (letter["stage"], letter["external_id"], letter["title"], letter["filename"]) == ("embed", "heron", "Of herons", "heron.md")
