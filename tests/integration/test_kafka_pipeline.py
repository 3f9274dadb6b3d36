"""The whole pipeline on real Kafka in several worker processes: killed, scaled, shared, slowed down."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from processors import STAGES
from streams.kafka.settings import KafkaSettings
from tests.integration.cluster import Cluster, Found, cluster, tail, told, until
from tests.workload import Event, histories, received, shuffled

pytestmark = pytest.mark.kafka

DOCUMENTS = 300


@pytest.fixture
def clean_settings(kafka_settings: KafkaSettings) -> KafkaSettings:
    return replace(kafka_settings, topic_prefix=f"clean-{kafka_settings.topic_prefix}")


@pytest.fixture
def troubled(kafka_settings: KafkaSettings, database: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(kafka_settings, database, tmp_path / "troubled") as found:
        yield found


@pytest.fixture
def clean(clean_settings: KafkaSettings, other_database: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster(clean_settings, other_database, tmp_path / "clean") as found:
        yield found


def run_with_a_kill(system: Cluster, events: Sequence[Event]) -> dict[str, set[tuple[str, str]]]:
    """Two workers, one of them killed in the middle, a third in its place. Gives what was told of each event."""
    first, second = system.start(pause_s=0.05), system.start(pause_s=0.05)
    until(lambda: first.ready and second.ready, "two workers")
    most = len(events) * 2 // 3
    with tail(system.settings, "outcomes") as outcomes:
        system.push(events[:most])
        until(lambda: len(told(outcomes)) > most // 5 and bool(first.embedded) and bool(second.embedded), "the middle")
        first.end(signal.SIGKILL)
        assert len(told(outcomes)) < most, "killed in the middle"
        third = system.start()
        until(lambda: third.ready, "a third worker")
        system.push(events[most:])
        until(
            lambda: len(told(outcomes)) == len(events), lambda: f"outcomes of {sorted({headers['ce_id'] for _, headers, _ in events} - told(outcomes).keys())}"
        )
        system.await_quiet()
        return told(outcomes)


def run_without_trouble(system: Cluster, events: Iterable[Event], count: int) -> dict[str, set[tuple[str, str]]]:
    worker = system.start()
    until(lambda: worker.ready, "a worker")
    system.push(events)
    with tail(system.settings, "outcomes") as outcomes:
        until(lambda: len(told(outcomes)) == count, "every outcome of the clean run")
        system.await_quiet()
        return told(outcomes)


def kinds(outcomes: set[tuple[str, str]]) -> set[str]:
    return {kind for kind, _ in outcomes}


def as_appended(system: Cluster, topic: str, count: int) -> list[Found]:
    """What a topic holds, in the order in which the door numbers revisions."""
    with tail(system.settings, topic) as records:
        until(lambda: len(records.poll()) == count, f"all of {topic}")
        return sorted(records.poll(), key=lambda record: record.at)


def test_killing_one_of_two_workers_and_starting_a_third_ends_in_the_tables_of_a_clean_run(troubled: Cluster, clean: Cluster) -> None:
    documents = histories(random.Random(7), DOCUMENTS)
    events = shuffled(documents, random.Random(8))
    said = run_with_a_kill(troubled, events)
    again = [(record.key, record.headers, record.value) for record in as_appended(troubled, "raw", len(events))]
    expected = run_without_trouble(clean, again, len(events))
    assert {len(outcomes) for outcomes in said.values()} == {1}, "of an event one thing is told, however often"
    last = [history[-1][1]["ce_id"] for history in documents.values()]
    assert [kinds(said[event]) for event in last] == [kinds(expected[event]) for event in last]
    found, wanted = troubled.checksum()["tables"], clean.checksum()["tables"]
    assert found == wanted
    assert found["documents"]["rows"] == DOCUMENTS - 30 - 15, "all but the withdrawn and the unreadable"
    assert all(found[table]["rows"] for table in ("child_chunks", "chunk_vectors", "chunk_states", "entity_mentions", "relations", "lexical_counts")), found


def test_two_workers_for_one_stage_share_its_partitions(troubled: Cluster) -> None:
    others = [stage.name for stage in STAGES if stage.name != "embed"]
    one, two, rest = troubled.start("embed"), troubled.start("embed"), troubled.start(*others)
    until(lambda: one.ready and two.ready and rest.ready, "three workers")
    troubled.await_members("anabranch.embed.g1", 2)
    names = [f"shared-{number}" for number in range(100)]
    troubled.push(received(name, 0, f"Herons of {name}") for name in names)
    with tail(troubled.settings, "outcomes") as outcomes:
        until(lambda: len(outcomes.poll()) == len(names), "every outcome")
    chunked = as_appended(troubled, "chunked", len(names))
    partitions = {record.data["origin"]["external_id"]: record.at[1] for record in chunked}
    by_one, by_two = ({partitions[name] for name in worker.embedded} for worker in (one, two))
    assert sorted(one.embedded + two.embedded) == sorted(names), "each document is embedded once, by one of them"
    assert by_one and by_two
    assert not by_one & by_two, "a partition belongs to one of them"
