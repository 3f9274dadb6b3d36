"""Finding a local server, limiting queries and pooling retrievers, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch.config.loader import load_settings
from anabranch.process.data_folder import (
    LOG_KIND_FILE,
    SERVER_FILE,
    ServerInfo,
    find_server,
    lock_folder,
    store_log_kind,
    write_server,
)
from anabranch.process.ingress_settings import select_stages
from anabranch_integrations.passages import PassageSearch, read_text
from processors import STAGES
from schemas.budgets import RunProfile
from schemas.errors import ConfigurationError, InvalidRequest, NotFound, TransientError
from schemas.generations import EmbedConfig, Generation, GenerationState, IndexConfig
from schemas.principals import Principal
from schemas.profiles import Profile
from schemas.questions import (
    ChannelRank,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
    SearchResult,
    Trace,
)
from schemas.values import Span
from services.instrumentation.metrics import Metrics
from services.query import service
from services.query.retriever_pool import RetrieverPool, open_retriever_pool
from services.query.service import QUEUED_PER_SLOT, ConcurrencyLimiter, QueryService, RequestT
from sql.index.generations import PgGenerations
from tests.support.api_client import LOCAL_CALLER

LOCAL_SERVER = ServerInfo(
    "http://127.0.0.1:1", "token", "postgresql://x", "embedded", "postgres", 1, "/x", True
)


def test_data_directory_is_locked_by_one_process(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        write_server(tmp_path / SERVER_FILE, LOCAL_SERVER)
        assert find_server(tmp_path) == LOCAL_SERVER
        with pytest.raises(ConfigurationError) as caught, lock_folder(tmp_path):
            raise AssertionError("held twice")
        assert caught.value.code == "DATA_DIR_IN_USE"
        assert LOCAL_SERVER.url in caught.value.detail
    assert find_server(tmp_path) is None, "an old file of a server that is gone"
    with lock_folder(tmp_path):
        pass


def test_unused_or_invalid_data_directory_has_no_server(tmp_path: Path) -> None:
    assert find_server(tmp_path / "nothing") is None
    with lock_folder(tmp_path):
        assert find_server(tmp_path) is None
        (tmp_path / SERVER_FILE).write_text("{")
        assert find_server(tmp_path) is None


def test_data_directory_keeps_its_log_backend(tmp_path: Path) -> None:
    embedded = load_settings(data_dir=tmp_path)
    store_log_kind(tmp_path, embedded)
    store_log_kind(tmp_path, embedded)
    assert (tmp_path / LOG_KIND_FILE).read_text().strip() == "postgres"
    with pytest.raises(ConfigurationError, match="postgres"):
        store_log_kind(
            tmp_path, load_settings(data_dir=tmp_path, sets=["kafka.bootstrap_servers=h:1"])
        )


def test_server_file_has_documented_keys(tmp_path: Path) -> None:
    write_server(tmp_path / "ready.json", LOCAL_SERVER)
    written = json.loads((tmp_path / "ready.json").read_text())
    assert {
        "url",
        "token",
        "database_url",
        "mode",
        "log",
        "pid",
        "data_dir",
        "persistent",
    } <= written.keys()


async def test_full_limiter_rejects_immediately_and_counts() -> None:
    metrics = Metrics("1")
    gate = ConcurrencyLimiter("questions", 1, metrics)
    async with gate.acquire_slot("acme"):
        waiting = [asyncio.create_task(_pass_limiter(gate)) for _ in range(QUEUED_PER_SLOT)]
        await asyncio.sleep(0)
        with pytest.raises(TransientError) as caught:
            await _pass_limiter(gate)
        assert caught.value.code == "BUSY"
    await asyncio.gather(*waiting)
    await _pass_limiter(gate)
    assert _sum_samples(metrics, "anabranch_requests_refused_busy_total") == 1


async def test_tenants_take_turns_behind_one_that_floods_the_limiter() -> None:
    gate, order = ConcurrencyLimiter("questions", 1, Metrics("1")), list[str]()
    async with gate.acquire_slot("mallory"):
        tenants = [*["mallory"] * QUEUED_PER_SLOT, "acme", "bolt", "acme"]
        waiting = [asyncio.create_task(_pass_limiter(gate, name, order)) for name in tenants]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order[:6] == ["mallory", "acme", "bolt", "mallory", "acme", "mallory"]
    assert len(order) == len(tenants) and (gate.free_slots, gate.queues) == (1, {})


async def test_query_that_gives_up_takes_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_WAIT_S", 0.01)
    gate = ConcurrencyLimiter("questions", 1, Metrics("1"))
    async with gate.acquire_slot("acme"):
        with pytest.raises(TransientError, match="Too many concurrent questions"):
            await _pass_limiter(gate)
        late = [asyncio.create_task(_pass_limiter(gate)) for _ in range(2)]
        await asyncio.sleep(0)
        late[0].cancel()
    # The slot has come to the other one, which is cancelled before it runs.
    late[1].cancel()
    await asyncio.gather(*late, return_exceptions=True)
    assert gate.free_slots == 1
    await _pass_limiter(gate)


async def _pass_limiter(
    gate: ConcurrencyLimiter, tenant: str = "acme", order: list[str] | None = None
) -> None:
    async with gate.acquire_slot(tenant):
        if order is not None:
            order.append(tenant)
        await asyncio.sleep(0)


def test_metrics_have_prefix_and_no_tenant_labels() -> None:
    metrics = Metrics("1")
    metrics.count_finished("embed", None)
    metrics.count_finished("embed", "UNREADABLE_DOCUMENT")
    metrics.observe_duration("embed", 0.5)
    names, labels = set(), set()
    for family in _parse_metric_families(metrics):
        names.add(family.name)
        labels |= {label for sample in family.samples for label in sample.labels}
    assert all(name.startswith("anabranch_") for name in names)
    assert labels.isdisjoint({"tenant", "document", "document_id", "query", "user"})
    assert _sum_samples(metrics, "anabranch_dead_letters_total") == 1


def _parse_metric_families(metrics: Metrics) -> Iterator[object]:
    return iter(text_string_to_metric_families(metrics.format_exposition()[0].decode()))


def _sum_samples(metrics: Metrics, name: str) -> float:
    return sum(
        sample.value
        for family in _parse_metric_families(metrics)
        for sample in family.samples
        if sample.name == name
    )  # type: ignore[attr-defined]


def test_stages_are_selected_by_name() -> None:
    assert select_stages(["all"]) == list(STAGES)
    assert [stage.name for stage in select_stages(["embed", "index", "embed"])] == [
        "embed",
        "index",
    ]
    with pytest.raises(ConfigurationError, match="embedd"):
        select_stages(["embedd"])


class FakeGenerationStore:
    """Generations from the test, with strings as retrievers."""

    def __init__(self, *generations: Generation) -> None:
        self.generations = list(generations)
        self.opened: list[str] = []
        self.closed: list[str] = []

    async def fetch_live(self) -> Generation | None:
        return next((one for one in self.generations if one.state == "live"), None)

    async def fetch(self, name: str) -> Generation | None:
        return next((one for one in self.generations if one.name == name), None)

    resolve = PgGenerations.resolve

    async def fetch_undropped(self) -> list[Generation]:
        return [one for one in self.generations if one.state != "dropped"]

    @asynccontextmanager
    async def prepare(self, generation: Generation) -> AsyncIterator[str]:
        self.opened.append(generation.name)
        yield f"who asks {generation.name}"
        self.closed.append(generation.name)


def make_generation(name: str, state: GenerationState, dimension: int) -> Generation:
    return Generation(
        name=name,
        config=IndexConfig(embed=EmbedConfig(dimension=dimension)),
        how={},
        topics={},
        state=state,
    )


async def test_queries_are_unavailable_until_first_generation_is_live() -> None:
    generation_store = FakeGenerationStore()
    async with open_retriever_pool(generation_store, generation_store.prepare) as state:  # type: ignore[arg-type]
        with pytest.raises(TransientError) as caught:
            async with state.acquire(None):
                raise AssertionError("there is none")
        assert caught.value.code == "NO_GENERATION"
        generation_store.generations.append(make_generation("g1", "live", 4))
        async with state.acquire(None) as found:
            assert found == ("g1", "who asks g1")


async def test_generations_with_equal_embedding_share_a_retriever() -> None:
    generation_store = FakeGenerationStore(
        make_generation("g1", "live", 4),
        make_generation("g2", "shadow", 8),
        make_generation("g3", "standby", 4),
    )
    async with open_retriever_pool(generation_store, generation_store.prepare) as state:  # type: ignore[arg-type]
        for name, who in ((None, "g1"), ("g2", "g2"), ("g3", "g1"), ("g1", "g1")):
            async with state.acquire(name) as found:
                assert found == (name or "g1", f"who asks {who}")
    assert generation_store.opened == ["g1", "g2"] == generation_store.closed


class DroppingRetriever:
    """Answers from g1 until it is dropped, then from g2; records the requests."""

    def __init__(self, store: FakeGenerationStore) -> None:
        self.store = store
        self.requests: list[tuple[str | None, str | None]] = []

    @asynccontextmanager
    async def prepare(self, generation: Generation) -> AsyncIterator[DroppingRetriever]:
        yield self

    async def search(
        self, tenant: str, request: SearchRequest, run: UUID, *, generation: str | None = None
    ) -> SearchResponse:
        self.requests.append((request.generation, generation))
        if generation == "g1":
            self.store.generations = [
                make_generation("g1", "dropped", 4),
                make_generation("g2", "live", 4),
            ]
            raise NotFound("no generation g1", remedy="")
        trace = Trace(
            generation=generation,
            profile="default",
            route={"mode": "hybrid", "decided_by": "rules", "reason": ""},
            channels={},
            channels_used=[],
            channels_failed={},
            timings_ms={},
            reranker=None,
            max_rerank_score=None,
            threshold=None,
        )
        return SearchResponse(run_id=run, generation=generation or "", results=[], trace=trace)


async def keep_profile(caller: Principal, request: RequestT) -> RequestT:
    return request


async def test_query_retries_on_live_generation_after_drop() -> None:
    generation_store = FakeGenerationStore(
        make_generation("g1", "live", 4), make_generation("g2", "standby", 4)
    )
    retriever = DroppingRetriever(generation_store)
    query_service = QueryService(
        RetrieverPool(generation_store, retriever.prepare),  # type: ignore[arg-type]
        Metrics("1"),
        lambda: UUID(int=1),
        keep_profile,
        lambda request: Profile(name="default"),
    )
    assert (
        await query_service.search(LOCAL_CALLER, SearchRequest(query="heron"))
    ).generation == "g2"
    assert retriever.requests == [(None, "g1"), (None, "g2")]
    with pytest.raises(NotFound):
        await query_service.search(LOCAL_CALLER, SearchRequest(query="heron", generation="g1"))


async def test_query_that_exceeds_run_timeout_is_ended() -> None:
    class HangingRetriever(DroppingRetriever):
        async def query(self, *args: Any, **options: Any) -> QueryResponse:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    generation_store = FakeGenerationStore(make_generation("g1", "live", 4))
    query_service = QueryService(
        RetrieverPool(generation_store, HangingRetriever(generation_store).prepare),  # type: ignore[arg-type]
        Metrics("1"),
        lambda: UUID(int=1),
        keep_profile,
        lambda request: Profile(name="default", run=RunProfile(timeout_s=1)),
    )
    with pytest.raises(TransientError, match="longer than 1 s") as raised:
        async with asyncio.timeout(30):
            await query_service.query(LOCAL_CALLER, QueryRequest(query="heron"))
    assert raised.value.code == "RUN_TIMED_OUT"


async def test_unqueryable_generations_are_rejected() -> None:
    generation_store = FakeGenerationStore(
        make_generation("g1", "live", 4),
        make_generation("g2", "building", 8),
        make_generation("g3", "dropped", 8),
    )
    async with open_retriever_pool(generation_store, generation_store.prepare) as state:  # type: ignore[arg-type]
        for name, error in (("g2", InvalidRequest), ("g3", NotFound), ("g4", NotFound)):
            with pytest.raises(error):
                async with state.acquire(name):
                    raise AssertionError("the query ran")


async def test_retriever_closes_after_drop_and_last_query() -> None:
    generation_store = FakeGenerationStore(
        make_generation("g1", "live", 4), make_generation("g2", "standby", 8)
    )
    state = RetrieverPool(generation_store, generation_store.prepare)  # type: ignore[arg-type]
    async with state.acquire("g2"):
        generation_store.generations[1] = make_generation("g2", "dropped", 8)
        await state.refresh()
        assert generation_store.closed == []
    await state.refresh()
    assert generation_store.closed == ["g2"] and generation_store.opened == ["g2", "g1"]


RESULT = SearchResult(
    rank=1,
    score=2.5,
    document_id=UUID(int=1),
    external_id="rent.pdf",
    revision=1,
    title="Rent",
    source_uri=None,
    link="/v1/documents/1/file#page=3",
    chunk_id=UUID(int=2),
    parent_id=UUID(int=3),
    section="Terms",
    pages=[3],
    spans=[Span(char_start=0, char_end=9, page=3, box=(0.1, 0.2, 0.3, 0.4))],
    snippet="The rent …",
    text="The rent is due.",
    channels={"lexical": ChannelRank(rank=1, score=7.0)},
)


def test_metadata_locates_the_passage_on_its_page() -> None:
    described = PassageSearch("https://server/base/", "key").describe(RESULT)
    assert described["spans"] == [
        {"char_start": 0, "char_end": 9, "page": 3, "box": [0.1, 0.2, 0.3, 0.4]}
    ]
    assert described["link"] == "https://server/base/v1/documents/1/file#page=3"
    assert described["document_id"] == str(UUID(int=1)) and described["pages"] == [3]
    assert described["channels"] == {"lexical": {"rank": 1, "score": 7.0}}
    assert "text" not in described and "snippet" not in described


def test_server_without_whole_texts_gives_snippets() -> None:
    assert read_text(RESULT) == "The rent is due."
    assert read_text(RESULT.model_copy(update={"text": None})) == "The rent …"
    assert "key" not in repr(PassageSearch("https://server", "key"))
