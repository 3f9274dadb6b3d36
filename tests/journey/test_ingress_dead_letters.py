"""Dead letters of ingress, beside later events of the same documents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import Response

from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from tests.fakes.failing_server import run_asgi_app
from tests.fakes.ocr import RejectingEmbedder
from tests.support.api_world import ApiWorld, run_system
from tests.support.canaries import find_in_files, find_in_tables
from tests.support.erasure import UNENCRYPTED_TOPICS, erase
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_kafka, long_on_postgres
from tests.support.replay_helpers import (
    fetch_dead_letters,
    get,
    has_no_dead_letters,
    has_state,
    post,
    wait_for_replay,
)

PAGE_TEXT = "The quetzal flew over the weir."


class RepairableSite:
    """A site whose pages are missing until a test sets `is_fixed`."""

    def __init__(self) -> None:
        self.is_fixed = False
        self.requested_names: list[str] = []
        self.url = ""

    @contextmanager
    def serve(self) -> Iterator[RepairableSite]:
        app = FastAPI()
        app.get("/{name}")(self.get_page)
        with run_asgi_app(app) as self.url:
            yield self

    async def get_page(self, name: str) -> Response:
        self.requested_names.append(name)
        return (
            Response(f"{PAGE_TEXT} {name}", media_type="text/plain")
            if self.is_fixed
            else Response("no", 404)
        )


@pytest.fixture
def site() -> Iterator[RepairableSite]:
    with RepairableSite().serve() as found:
        yield found


@pytest.fixture
async def world(
    settings: Settings, database: str, overrides: Overrides, site: RepairableSite
) -> AsyncIterator[ApiWorld]:
    allowed = settings.ingest.model_copy(update={"url_allow": (site.url.removeprefix("http://"),)})
    async with run_system(
        settings.model_copy(update={"ingest": allowed}), database, overrides
    ) as found:
        yield found


async def ingest_missing_page(world: ApiWorld, site: RepairableSite, name: str) -> dict[str, Any]:
    """Ingest a document whose page is missing."""
    receipt = await post(
        world,
        "/v1/ingest",
        {"url": f"{site.url}/{name}", "external_id": name, "title": f"Quetzal {name}"},
    )
    assert (await world.wait_until_final(receipt))["state"] == "failed"
    return receipt


async def redrive_and_wait(world: ApiWorld, **chosen: Any) -> dict[str, Any]:
    [replay] = (await post(world, "/v1/dead-letters/redrive", chosen))["replays"]
    return await wait_for_replay(world, replay)


@long_on_kafka
async def test_redrive_after_fix_ingests_failed_documents(
    world: ApiWorld, site: RepairableSite
) -> None:
    receipts = [await ingest_missing_page(world, site, name) for name in "ab"]
    await world.wait_until_final(await world.ingest("%PDF-1.7\nno more", "torn.pdf"))
    causes = {
        (cause["stage"], cause["code"]): cause["events"]
        for cause in (await get(world, "/v1/dead-letters/causes"))["items"]
    }
    assert causes.pop(("receive", "FETCH_FAILED")) == 2 and list(causes.values()) == [1]
    assert (await redrive_and_wait(world, code="FETCH_FAILED"))["dead_lettered"] == 2, (
        "nothing has been mended yet"
    )
    site.is_fixed = True
    assert (await redrive_and_wait(world, code="FETCH_FAILED"))["replayed"] == 2
    for receipt in receipts:
        await eventually(
            lambda receipt=receipt: has_state(world, receipt["document_id"], "searchable")
        )  # type: ignore[misc]
        assert (await world.wait_until_final(receipt))["state"] == "searchable", (
            "whoever asks for the job is told, too"
        )
    assert len(await world.search("quetzal over the weir", channels=["lexical"])) == 2
    assert [letter["filename"] for letter in await fetch_dead_letters(world)] == ["torn.pdf"]


async def test_dead_letter_without_document_is_redriven_by_its_job(
    world: ApiWorld, site: RepairableSite
) -> None:
    mended, other = [await ingest_missing_page(world, site, name) for name in "ab"]
    await world.worker.storage.pool.execute("update dead_letters set document_id = null")
    site.is_fixed = True
    assert (await redrive_and_wait(world, document_id=mended["document_id"]))["replayed"] == 1
    await eventually(lambda: has_state(world, mended["document_id"], "searchable"))
    assert [letter["event_id"] for letter in await fetch_dead_letters(world)] == [
        other["ingestion_job_id"]
    ]


@long_on_kafka
async def test_redrive_does_not_overwrite_newer_revision_or_withdrawal(
    world: ApiWorld, site: RepairableSite
) -> None:
    old, missing = [await ingest_missing_page(world, site, name) for name in ("old", "gone")]
    await world.ingest_until_searchable("The otter swims.", external_id="old")
    await world.wait_until_final(
        (await world.http.delete(f"/v1/documents/{missing['document_id']}")).json()
    )
    site.is_fixed = True
    assert (await redrive_and_wait(world, all=True))["state"] == "done"
    await eventually(lambda: has_no_dead_letters(world))
    assert {(await world.wait_until_final(receipt))["state"] for receipt in (old, missing)} <= {
        "superseded",
        "withdrawn",
    }
    [chunk] = (await get(world, f"/v1/documents/{old['document_id']}/chunks"))["items"]
    assert "otter" in chunk["text"] and await world.search("quetzal", channels=["lexical"]) == []
    assert await has_state(world, missing["document_id"], "withdrawn") and await has_state(
        world, old["document_id"], "searchable"
    )


@long_on_postgres
async def test_documents_erased_during_redrive_are_not_redriven(
    world: ApiWorld, site: RepairableSite
) -> None:
    receipts = [await ingest_missing_page(world, site, name) for name in "ab"]
    [replay] = (await post(world, "/v1/dead-letters/redrive", {"all": True, "per_second": 0.5}))[
        "replays"
    ]
    await post(world, f"/v1/replays/{replay}/pause", {}, 200)
    for receipt in receipts:
        await erase(world, "document", receipt["document_id"])
    site.is_fixed, n_requests = True, len(site.requested_names)
    await post(world, f"/v1/replays/{replay}/resume", {}, 200)
    assert (await wait_for_replay(world, replay))["state"] == "done"
    assert len(site.requested_names) == n_requests and await has_no_dead_letters(world)
    assert [
        (await world.http.get(f"/v1/documents/{receipt['document_id']}")).status_code
        for receipt in receipts
    ] == [404] * 2
    assert (
        await world.http.post(
            "/v1/dead-letters/redrive", json={"event_ids": [receipts[0]["ingestion_job_id"]]}
        )
    ).status_code == 404
    assert (
        await find_in_tables(world.worker.storage.pool, ["quetzal"]) <= UNENCRYPTED_TOPICS
        and find_in_files(world.settings.data_dir, ["quetzal"]) == set()
    )


async def test_dead_letter_after_ingress_shows_document_names(
    settings: Settings, database: str
) -> None:
    async with run_system(settings, database, Overrides(embedder=RejectingEmbedder())) as world:
        await world.wait_until_final(
            await world.ingest(
                "A heron stood there.", "heron.md", external_id="heron", title="Of herons"
            )
        )
        [letter] = await fetch_dead_letters(world)
    assert (letter["stage"], letter["external_id"], letter["title"], letter["filename"]) == (
        "embed",
        "heron",
        "Of herons",
        "heron.md",
    )
