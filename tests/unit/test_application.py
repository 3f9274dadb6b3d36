"""Pieces of the shell that need no socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch.answering import answering
from anabranch.busy import QUEUED_PER_SLOT, Gate
from anabranch.composition.genesis import first_generation
from anabranch.data_folder import LOG, SERVER, Server, find_server, keep_log, locked, write_server
from anabranch.metrics import Metrics
from anabranch.settings_loading import load_settings
from anabranch.stages import stages_named
from processors import STAGES
from schemas.errors import ConfigurationError, TransientError
from schemas.generations import IndexConfig

SERVER_HERE = Server("http://127.0.0.1:1", "postgresql://x", "embedded", "postgres", 1, "/x", True)


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
    assert {"url", "database_url", "mode", "log", "pid", "data_dir", "persistent"} <= written.keys()


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


async def test_questions_wait_for_the_first_generation_without_holding_up_the_rest() -> None:
    class Later:
        live_now = False

        async def live(self) -> object:
            return first_generation(IndexConfig()) if self.live_now else None

    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def prepare(generation: object):  # type: ignore[no-untyped-def]
        yield "the retriever"

    generations = Later()
    async with answering(generations, prepare) as state:  # type: ignore[arg-type]
        with pytest.raises(TransientError) as caught:
            state.retriever()
        assert caught.value.code == "NO_GENERATION"
        generations.live_now = True
        async with asyncio.timeout(10):
            while state.found is None:
                await asyncio.sleep(0)
        assert state.retriever() == "the retriever"
