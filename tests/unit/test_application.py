"""Pieces of the shell that need no socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch.desk.answering import Answering, answering
from anabranch.desk.busy import QUEUED_PER_SLOT, Gate
from anabranch.desk.questions import Asking
from anabranch.process.data_folder import LOG, SERVER, Server, find_server, keep_log, locked, write_server
from anabranch.process.metrics import Metrics
from anabranch.settings_loading import load_settings
from anabranch.stages import stages_named
from processors import STAGES
from schemas.errors import ConfigurationError, InvalidRequest, NotFound, TransientError
from schemas.generations import EmbedConfig, Generation, IndexConfig, State
from schemas.questions import SearchRequest, SearchResponse, Trace
from tests.callers import LOCAL

SERVER_HERE = Server("http://127.0.0.1:1", "token", "postgresql://x", "embedded", "postgres", 1, "/x", True)


def test_a_folder_is_held_by_one_and_free_again_afterwards(tmp_path: Path) -> None:
    with locked(tmp_path):
        write_server(tmp_path / SERVER, SERVER_HERE)
        assert find_server(tmp_path) == SERVER_HERE
        with pytest.raises(ConfigurationError) as caught, locked(tmp_path):
            raise AssertionError("held twice")
        assert caught.value.code == "DATA_DIR_IN_USE"
        assert SERVER_HERE.url in caught.value.detail
    assert find_server(tmp_path) is None, "an old file of a server that is gone"
    with locked(tmp_path):
        pass


def test_a_folder_without_anyone_has_no_server(tmp_path: Path) -> None:
    assert find_server(tmp_path / "nothing") is None
    with locked(tmp_path):
        assert find_server(tmp_path) is None
        (tmp_path / SERVER).write_text("{")
        assert find_server(tmp_path) is None


def test_a_folder_stays_with_the_kind_of_log_it_began_with(tmp_path: Path) -> None:
    embedded = load_settings(data_dir=tmp_path)
    keep_log(tmp_path, embedded)
    keep_log(tmp_path, embedded)
    assert (tmp_path / LOG).read_text().strip() == "postgres"
    with pytest.raises(ConfigurationError, match="postgres"):
        keep_log(tmp_path, load_settings(data_dir=tmp_path, sets=["kafka.bootstrap_servers=h:1"]))


def test_a_server_file_is_json_of_the_agreed_shape(tmp_path: Path) -> None:
    write_server(tmp_path / "ready.json", SERVER_HERE)
    written = json.loads((tmp_path / "ready.json").read_text())
    assert {"url", "token", "database_url", "mode", "log", "pid", "data_dir", "persistent"} <= written.keys()


async def test_a_full_gate_refuses_at_once_and_counts_it() -> None:
    metrics = Metrics("1")
    gate = Gate("questions", 1, metrics)
    async with gate.entered():
        waiting = [asyncio.create_task(_through(gate)) for _ in range(QUEUED_PER_SLOT)]
        await asyncio.sleep(0)
        with pytest.raises(TransientError) as caught:
            await _through(gate)
        assert caught.value.code == "BUSY"
    await asyncio.gather(*waiting)
    await _through(gate)
    assert _value(metrics, "anabranch_requests_refused_busy_total") == 1


async def _through(gate: Gate) -> None:
    async with gate.entered():
        await asyncio.sleep(0)


def test_metrics_carry_the_applications_prefix_and_no_label_of_a_tenant_or_document() -> None:
    metrics = Metrics("1")
    metrics.finished("embed", None)
    metrics.finished("embed", "UNREADABLE_DOCUMENT")
    metrics.took("embed", 0.5)
    names, labels = set(), set()
    for family in _families(metrics):
        names.add(family.name)
        labels |= {label for sample in family.samples for label in sample.labels}
    assert all(name.startswith("anabranch_") for name in names)
    assert labels.isdisjoint({"tenant", "document", "document_id", "query", "user"})
    assert _value(metrics, "anabranch_dead_letters_total") == 1


def _families(metrics: Metrics) -> Iterator[object]:
    return iter(text_string_to_metric_families(metrics.exposition()[0].decode()))


def _value(metrics: Metrics, name: str) -> float:
    return sum(sample.value for family in _families(metrics) for sample in family.samples if sample.name == name)  # type: ignore[attr-defined]


def test_stages_are_chosen_by_name_and_an_unknown_one_is_named() -> None:
    assert stages_named(["all"]) == list(STAGES)
    assert [stage.name for stage in stages_named(["embed", "index", "embed"])] == ["embed", "index"]
    with pytest.raises(ConfigurationError, match="embedd"):
        stages_named(["embedd"])


class Shelf:
    """Generations as a test says they are; retrievers are words."""

    def __init__(self, *generations: Generation) -> None:
        self.held = list(generations)
        self.opened: list[str] = []
        self.closed: list[str] = []

    async def live(self) -> Generation | None:
        return next((one for one in self.held if one.state == "live"), None)

    async def get(self, name: str) -> Generation | None:
        return next((one for one in self.held if one.name == name), None)

    async def undropped(self) -> list[Generation]:
        return [one for one in self.held if one.state != "dropped"]

    @asynccontextmanager
    async def prepare(self, generation: Generation) -> AsyncIterator[str]:
        self.opened.append(generation.name)
        yield f"who asks {generation.name}"
        self.closed.append(generation.name)


def one(name: str, state: State, dimension: int) -> Generation:
    return Generation(name=name, config=IndexConfig(embed=EmbedConfig(dimension=dimension)), how={}, topics={}, state=state)


async def test_questions_wait_for_the_first_generation_without_holding_up_the_rest() -> None:
    shelf = Shelf()
    async with answering(shelf, shelf.prepare) as state:  # type: ignore[arg-type]
        with pytest.raises(TransientError) as caught:
            async with state.asked(None):
                raise AssertionError("there is none")
        assert caught.value.code == "NO_GENERATION"
        shelf.held.append(one("g1", "live", 4))
        async with state.asked(None) as found:
            assert found == ("g1", "who asks g1")


async def test_each_generation_is_asked_with_its_own_embedding_which_equal_ones_share() -> None:
    shelf = Shelf(one("g1", "live", 4), one("g2", "shadow", 8), one("g3", "standby", 4))
    async with answering(shelf, shelf.prepare) as state:  # type: ignore[arg-type]
        for name, who in ((None, "g1"), ("g2", "g2"), ("g3", "g1"), ("g1", "g1")):
            async with state.asked(name) as found:
                assert found == (name or "g1", f"who asks {who}")
    assert shelf.opened == ["g1", "g2"] == shelf.closed


class Moving:
    """Answers of g1 until that is dropped under way, then of g2; what it is asked with is written down."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.asked: list[tuple[str | None, str | None]] = []

    @asynccontextmanager
    async def prepare(self, generation: Generation) -> AsyncIterator[Moving]:
        yield self

    async def search(self, tenant: str, request: SearchRequest, run: UUID, *, generation: str | None = None) -> SearchResponse:
        self.asked.append((request.generation, generation))
        if generation == "g1":
            self.shelf.held = [one("g1", "dropped", 4), one("g2", "live", 4)]
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


async def test_a_question_whose_generation_is_dropped_under_way_is_asked_again_of_the_live_one_unless_it_named_it() -> None:
    shelf = Shelf(one("g1", "live", 4), one("g2", "standby", 4))
    moving = Moving(shelf)
    asking = Asking(Answering(shelf, moving.prepare), Metrics("1"), lambda: UUID(int=1))  # type: ignore[arg-type]
    assert (await asking.search(LOCAL, SearchRequest(query="heron"))).generation == "g2"
    assert moving.asked == [(None, "g1"), (None, "g2")]
    with pytest.raises(NotFound):
        await asking.search(LOCAL, SearchRequest(query="heron", generation="g1"))


async def test_what_is_building_dropped_or_unknown_is_not_asked() -> None:
    shelf = Shelf(one("g1", "live", 4), one("g2", "building", 8), one("g3", "dropped", 8))
    async with answering(shelf, shelf.prepare) as state:  # type: ignore[arg-type]
        for name, error in (("g2", InvalidRequest), ("g3", NotFound), ("g4", NotFound)):
            with pytest.raises(error):
                async with state.asked(name):
                    raise AssertionError("asked")


async def test_a_retriever_is_let_go_when_its_generation_is_dropped_and_its_last_question_is_over() -> None:
    shelf = Shelf(one("g1", "live", 4), one("g2", "standby", 8))
    state = Answering(shelf, shelf.prepare)  # type: ignore[arg-type]
    async with state.asked("g2"):
        shelf.held[1] = one("g2", "dropped", 8)
        await state.tidy()
        assert shelf.closed == []
    await state.tidy()
    assert shelf.closed == ["g2"] and shelf.opened == ["g2", "g1"]
