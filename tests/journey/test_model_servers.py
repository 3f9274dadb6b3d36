"""Model servers that only the settings name, and profiles that are read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import prepare_worker
from anabranch.config.loader import load_settings
from anabranch.config.overrides import NO_OVERRIDES, Overrides
from anabranch.config.settings import Settings
from schemas.errors import GenerationMismatch
from tests.fakes.openai_server import NATIVE_DIMENSION, FakeOpenAI, fake_openai
from tests.support.api_client import api_client
from tests.support.api_world import ApiWorld, run_system
from tests.support.eventually import eventually

FERRY_TEXT = (
    "# Ferry\n\n"
    "The ferry to Sable Point leaves at nine. The ticket office closes at eight in the evening."
)


@pytest.fixture(scope="module")
def models() -> Iterator[FakeOpenAI]:
    with fake_openai(api_key="key") as fake:
        yield fake


@pytest.fixture
def settings(tmp_path: Path, models: FakeOpenAI) -> Settings:
    server = [
        f"{section}.{key}={value}"
        for section in ("chat", "embed", "rerank")
        for key, value in (("base_url", models.url), ("api_key", "key"))
    ]
    named = [
        "chat.model=writer",
        "embed.model=vectors",
        f"embed.dimension={NATIVE_DIMENSION}",
        "rerank.model=judge",
    ]
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *server, *named])


@pytest.fixture
async def world(settings: Settings, database: str) -> AsyncIterator[ApiWorld]:
    async with run_system(settings, database, NO_OVERRIDES) as found:
        yield found


async def test_model_server_embeds_reranks_and_answers(world: ApiWorld, models: FakeOpenAI) -> None:
    await world.ingest_until_searchable(FERRY_TEXT, "ferry.md", external_id="ferry")
    answer = await world.ask("When does the ticket office close?")
    assert not answer["refused"], answer
    assert "eight" in answer["answer"]
    assert answer["citations"][0]["quote"] in FERRY_TEXT
    assert (answer["trace"]["models"], answer["trace"]["reranker"]) == (
        {"embed": "vectors", "answer": "writer"},
        "judge",
    )
    assert answer["trace"]["model_calls"] == 3
    paths = {path.removeprefix("/v1") for path, _ in models.requests}
    assert {"/embeddings", "/rerank", "/chat/completions"} <= paths


async def test_index_rejects_different_embedding_model(
    world: ApiWorld, settings: Settings, database: str
) -> None:
    other = settings.model_copy(
        update={"embed": settings.embed.model_copy(update={"model": "other"})}
    )
    with pytest.raises(GenerationMismatch, match=r"embed\.model"):
        async with prepare_worker(other, database):
            raise AssertionError("it started")


@pytest.fixture
def profiles_dir(settings: Settings) -> Path:
    folder = settings.data_dir / "profiles"
    folder.mkdir(parents=True)
    return folder


async def fetch_profile(http: httpx2.AsyncClient, name: str) -> dict[str, Any]:
    response = await http.get(f"/v1/profiles/workflow/{name}")
    return dict(response.json()) if response.status_code == 200 else {}


async def test_reload_through_one_process_reaches_the_other(
    settings: Settings, database: str, overrides: Overrides, profiles_dir: Path
) -> None:
    async with (
        run_system(settings, database, overrides) as world,
        prepare_api(settings, database, overrides=overrides) as services,
        api_client(services) as other,
    ):
        (profiles_dir / "field.yaml").write_text("lexical: {k: 7}")
        reloaded = (await world.http.post("/v1/reload-config")).json()
        assert reloaded["changed"] == ["workflow/field"]
        found = await eventually(lambda: fetch_profile(other, "field"))
        assert found["settings"]["lexical"]["k"] == 7
        assert found == await fetch_profile(world.http, "field")

        (profiles_dir / "field.yaml").write_text("lexical: {k: 8}")
        (profiles_dir / "broken.yaml").write_text("lexical: {k: 0}")
        for http in (world.http, other):
            refused = await http.post("/v1/reload-config")
            assert refused.status_code == 422 and refused.json()["code"] == "INVALID_PROFILE"
            assert "broken.yaml" in refused.json()["detail"]

        (profiles_dir / "broken.yaml").unlink()
        # The other way round. Until here, nothing of the refused reload was in use.
        assert (await fetch_profile(other, "field"))["settings"]["lexical"]["k"] == 7
        again = (await other.post("/v1/reload-config")).json()
        assert again["changed"] == ["workflow/field"] and again["sha256"] != reloaded["sha256"]
        await eventually(
            lambda: fetch_profile(world.http, "field"),
            lambda profile: profile["settings"]["lexical"]["k"] == 8,
            stall_s=5,
        )
        same = (await world.http.post("/v1/reload-config")).json()
        assert same == {"changed": [], "sha256": again["sha256"]}
