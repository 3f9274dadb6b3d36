"""Collections: default profiles, deletion, and what a rebuild restores of both."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from anabranch.composition.storage import recover_database
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.errors import LogUnavailable
from services.erasure import withdrawal
from sql.operations.integrity import check_integrity
from tests.support.api_world import ApiWorld, run_system
from tests.support.database_copies import copy_keys, copy_log
from tests.support.eventually import eventually
from tests.support.log_backends import long_on_postgres

LAWS, SONGS = "laws/2024 é", "songs"
QUESTION = "When does the ferry to Corvo leave?"
TEXT = "The ferry to Corvo leaves at nine."


def to_path(name: str) -> str:
    return f"/v1/collections/{quote(name, safe='')}"


async def set_profile(world: ApiWorld, name: str, profile: str | None) -> dict[str, Any]:
    response = await world.http.put(to_path(name), json={"default_profile": profile})
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_collection_is_split_and_extracted_as_it_is_configured(world: ApiWorld) -> None:
    text = "\n\n".join(f"Ada Brandt of Quill Limited wrote {'a page ' * 40}." for _ in range(40))

    async def list_chunks(**fields: Any) -> int:
        receipt = await world.ingest(text, force="true", **fields)
        expected = {"ORG"} if fields["collection"] == LAWS else {"ORG", "PERSON"}

        async def fetch_types() -> set[str]:
            page = await world.fetch_json(f"/v1/documents/{receipt['document_id']}/entities")
            return {item["type"] for item in page["items"]}

        status = await world.wait_until_final(receipt)
        await eventually(fetch_types, lambda types: types == expected, what="extracted entities")
        return int(status["chunks_count"])

    others = await list_chunks(collection=SONGS, external_id="other")
    # At the same moment: none undoes the other.
    for response in await asyncio.gather(
        world.http.put(to_path(LAWS), json={"chunking": "small"}),
        world.http.put(to_path(LAWS), json={"extract": {"entities": ["ORG"]}}),
    ):
        assert response.status_code == 200, response.text
    own = await list_chunks(collection=LAWS, external_id="own")
    assert own > others == await list_chunks(collection=SONGS, external_id="third")
    # What a request omits stays.
    shown = await set_profile(world, LAWS, "strict")
    assert (shown["chunking"], shown["extract"]["entities"]) == ("small", ["ORG"])
    assert shown["chunk"]["child_tokens"] < 330
    response = await world.http.put(to_path(LAWS), json={"chunking": None})
    assert response.json()["chunk"] is None and response.json()["extract"] is not None
    assert await list_chunks(collection=LAWS, external_id="own") == others
    for wrong, code in (
        ({"chunking": "none"}, "UNKNOWN_PROFILE"),
        ({"extract": {"entities": []}}, "INVALID_REQUEST"),
        ({"extract": {"entities": ["x" * 65]}}, "INVALID_REQUEST"),
    ):
        refused = await world.http.put(to_path(LAWS), json=wrong)
        assert (refused.status_code, refused.json()["code"]) == (422, code)


async def request_deletion(world: ApiWorld, name: str) -> UUID:
    response = await world.http.delete(to_path(name))
    assert response.status_code == 202, response.text
    return UUID(response.json()["deletion_id"])


async def wait_until_deleted(world: ApiWorld, name: str) -> dict[str, Any]:
    return await eventually(
        lambda: world.fetch_json(to_path(name)),
        lambda found: found and found["deletion"] and found["deletion"]["state"] == "done",
        what=f"the deletion of {name}",
    )


async def list_searchable(world: ApiWorld) -> set[str]:
    page = await world.fetch_json("/v1/documents", state="searchable")
    return {item["external_id"] for item in page["items"]}


async def fetch_used_profile(world: ApiWorld, *collections: str, **options: Any) -> str:
    answer = await world.ask(QUESTION, filters={"collections": list(collections)}, **options)
    return str(answer["trace"]["profile"])


async def test_question_that_names_collection_uses_its_default_profile(world: ApiWorld) -> None:
    for name in (LAWS, SONGS):
        await world.ingest_until_searchable(TEXT, external_id=name, collection=name)
    assert (await set_profile(world, LAWS, "rrf"))["default_profile"] == "rrf"
    assert await fetch_used_profile(world, LAWS) == "rrf"
    # A profile that is named wins, even the default one.
    assert await fetch_used_profile(world, LAWS, profile="default") == "default"
    assert await fetch_used_profile(world) == await fetch_used_profile(world, SONGS) == "default"
    assert await fetch_used_profile(world, LAWS, SONGS) == "default"
    await set_profile(world, SONGS, "rrf")
    assert await fetch_used_profile(world, LAWS, SONGS) == "rrf"
    found = await world.http.post(
        "/v1/search", json={"query": QUESTION, "filters": {"collections": [LAWS]}}
    )
    assert found.json()["trace"]["profile"] == "rrf"
    listed = (await world.fetch_json("/v1/collections"))["items"]
    assert [(item["name"], item["documents"], item["default_profile"]) for item in listed] == [
        (LAWS, 1, "rrf"),
        (SONGS, 1, "rrf"),
    ]
    await set_profile(world, LAWS, None)
    assert await fetch_used_profile(world, LAWS) == "default"


async def test_unknown_profile_and_collection_are_named(world: ApiWorld) -> None:
    refused = await world.http.put(to_path(LAWS), json={"default_profile": "fast"})
    assert (refused.status_code, refused.json()["code"]) == (422, "UNKNOWN_PROFILE")
    for response in (await world.http.get(to_path(LAWS)), await world.http.delete(to_path(LAWS))):
        assert response.status_code == 404 and LAWS in response.json()["detail"]
    # Of a file that is gone since.
    await world.ingest_until_searchable(TEXT, external_id="ferry", collection=LAWS)
    await set_profile(world, LAWS, "rrf")
    await world.worker.storage.pool.execute("update collection_profiles set default_profile = 'x'")
    asked = {"query": QUESTION, "filters": {"collections": [LAWS]}}
    response = await world.http.post("/v1/query", json=asked)
    assert (response.status_code, response.json()["code"]) == (422, "UNKNOWN_PROFILE")
    assert LAWS in response.json()["detail"]


@long_on_postgres
async def test_deletion_covers_what_was_sent_before_it(world: ApiWorld) -> None:
    for name in ("one", "two"):
        await world.ingest_until_searchable(f"{TEXT} {name}", external_id=name, collection=LAWS)
    moved = await world.ingest_until_searchable(TEXT, external_id="moved", collection=LAWS)
    await world.ingest_until_searchable(TEXT, external_id="song", collection=SONGS)
    await set_profile(world, LAWS, "rrf")
    amended = await world.http.patch(
        f"/v1/documents/{moved['document_id']}", json={"collection": SONGS}
    )
    assert amended.status_code == 202
    # Still on its way when the deletion is requested.
    await world.ingest(f"{TEXT} three", external_id="three", collection=LAWS)
    deletion_id = await request_deletion(world, LAWS)
    await world.ingest(f"{TEXT} four", external_id="four", collection=LAWS)
    deleted = await wait_until_deleted(world, LAWS)
    assert (deleted["default_profile"], UUID(deleted["deletion"]["deletion_id"])) == (
        None,
        deletion_id,
    )
    await eventually(
        lambda: list_searchable(world), lambda found: found == {"four", "moved", "song"}
    )
    # What is left may be deleted too; a repeated request finds nothing, and says which it was.
    last = await request_deletion(world, LAWS)
    assert last != deletion_id and (await wait_until_deleted(world, LAWS))["documents"] == 0
    assert await request_deletion(world, LAWS) == last
    assert await list_searchable(world) == {"moved", "song"}
    assert set((await check_integrity(world.worker.storage.pool, assume_idle=True)).values()) == {0}


async def test_interrupted_deletion_is_resumed(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"law-{number}" for number in range(5)}
    for name in names:
        await world.ingest_until_searchable(f"{TEXT} {name}", external_id=name, collection=LAWS)
    build_raw_record, calls = withdrawal.build_raw_record, 0

    async def fail_once(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise LogUnavailable("The log is away.", remedy="Wait.")
        return await build_raw_record(*arguments, **options)

    monkeypatch.setattr(withdrawal, "DOCUMENTS_PER_BATCH", 2)
    monkeypatch.setattr(withdrawal, "build_raw_record", fail_once)
    await request_deletion(world, LAWS)
    await wait_until_deleted(world, LAWS)
    assert calls > len(names) and await list_searchable(world) == set()
    n_removed = await world.worker.storage.pool.fetchval(
        "select count(*) from events "
        "where topic = 'accepted' and headers::text like '%document.removed%'"
    )
    assert n_removed == len(names)


async def test_rebuild_restores_default_profile_and_deletion(
    settings: Settings, database: str, other_database: str, overrides: Overrides
) -> None:
    async with run_system(settings, database, overrides) as world:
        for name in (LAWS, SONGS):
            await world.ingest_until_searchable(TEXT, external_id=name, collection=name)
            await set_profile(world, name, "rrf")
        await request_deletion(world, LAWS)
        await wait_until_deleted(world, LAWS)
        # Moved into the deleted collection afterwards: a repeated deletion would withdraw it.
        song = (await world.fetch_json("/v1/documents", external_id=SONGS))["items"][0]
        await world.http.patch(f"/v1/documents/{song['document_id']}", json={"collection": LAWS})
        await eventually(
            lambda: world.fetch_json(to_path(LAWS)), lambda found: found["documents"] == 1
        )
        before = [await world.fetch_json(path) for path in ("/v1/collections", to_path(LAWS))]
        await copy_log(database, other_database)
        await copy_keys(database, other_database)
    assert await recover_database(settings, other_database) is not None
    async with run_system(settings, other_database, overrides) as world:
        after = [await world.fetch_json(path) for path in ("/v1/collections", to_path(LAWS))]
        assert after == before
        assert [item["default_profile"] for item in after[0]["items"]] == [None, "rrf"]
        assert await list_searchable(world) == {SONGS}
