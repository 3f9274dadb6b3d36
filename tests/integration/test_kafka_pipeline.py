"""Run the pipeline on real Kafka in several worker processes: kill, scale, slow down."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from processors import STAGES
from streams.kafka.client_settings import KafkaClientSettings
from tests.support.cluster import (
    ConsumedRecord,
    WorkerCluster,
    collect_outcomes,
    run_cluster,
    tail_topic,
)
from tests.support.eventually import eventually_blocking
from tests.support.workload import KafkaEvent, generate_histories, interleave, make_received

pytestmark = pytest.mark.kafka

DOCUMENTS = 300


@pytest.fixture
def clean_settings(kafka_settings: KafkaClientSettings) -> KafkaClientSettings:
    return replace(kafka_settings, topic_prefix=f"clean-{kafka_settings.topic_prefix}")


@pytest.fixture
def interrupted_cluster(
    kafka_settings: KafkaClientSettings, database: str, tmp_path: Path
) -> Iterator[WorkerCluster]:
    with run_cluster(kafka_settings, database, tmp_path / "troubled") as found:
        yield found


@pytest.fixture
def clean(
    clean_settings: KafkaClientSettings, other_database: str, tmp_path: Path
) -> Iterator[WorkerCluster]:
    with run_cluster(clean_settings, other_database, tmp_path / "clean") as found:
        yield found


def run_with_kill(
    system: WorkerCluster, events: Sequence[KafkaEvent]
) -> dict[str, set[tuple[str, str]]]:
    """Kill one of two workers midway, start a third, and return each event's outcomes."""
    first, second = system.start_worker(pause_s=0.05), system.start_worker(pause_s=0.05)
    eventually_blocking(lambda: first.is_ready and second.is_ready, what="two workers")
    most = len(events) * 2 // 3
    with tail_topic(system.settings, "outcomes") as outcomes:
        system.push(events[:most])
        eventually_blocking(
            lambda: (
                len(collect_outcomes(outcomes)) > most // 5
                and bool(first.embedded_words)
                and bool(second.embedded_words)
            ),
            what="the middle",
        )
        first.stop(signal.SIGKILL)
        assert len(collect_outcomes(outcomes)) < most, "killed in the middle"
        third = system.start_worker()
        eventually_blocking(lambda: third.is_ready, what="a third worker")
        system.push(events[most:])
        event_ids = {headers["ce_id"] for _, headers, _ in events}
        eventually_blocking(
            lambda: len(collect_outcomes(outcomes)) == len(events),
            what=lambda: f"outcomes of {sorted(event_ids - collect_outcomes(outcomes).keys())}",
        )
        system.wait_until_idle()
        return collect_outcomes(outcomes)


def run_uninterrupted(
    system: WorkerCluster, events: Iterable[KafkaEvent], count: int
) -> dict[str, set[tuple[str, str]]]:
    worker = system.start_worker()
    eventually_blocking(lambda: worker.is_ready, what="a worker")
    system.push(events)
    with tail_topic(system.settings, "outcomes") as outcomes:
        eventually_blocking(
            lambda: len(collect_outcomes(outcomes)),
            lambda n_outcomes: n_outcomes == count,
            what="every outcome of the clean run",
        )
        system.wait_until_idle()
        return collect_outcomes(outcomes)


def get_outcome_types(outcomes: set[tuple[str, str]]) -> set[str]:
    return {kind for kind, _ in outcomes}


def read_in_append_order(system: WorkerCluster, topic: str, count: int) -> list[ConsumedRecord]:
    """Return the records of a topic in the order in which ingress numbers revisions."""
    with tail_topic(system.settings, topic) as records:
        eventually_blocking(
            lambda: len(records.poll_records()),
            lambda n_records: n_records == count,
            what=f"all of {topic}",
        )
        return sorted(records.poll_records(), key=lambda record: record.append_position)


@pytest.mark.long
def test_killed_worker_leaves_same_tables_as_clean_run(
    interrupted_cluster: WorkerCluster, clean: WorkerCluster
) -> None:
    """Repeat on more documents what `tests/faults` shows of killed workers."""
    documents = generate_histories(random.Random(7), DOCUMENTS)
    events = interleave(documents, random.Random(8))
    outcomes_by_event = run_with_kill(interrupted_cluster, events)
    again = [
        (record.key, record.headers, record.value)
        for record in read_in_append_order(interrupted_cluster, "raw", len(events))
    ]
    expected = run_uninterrupted(clean, again, len(events))
    assert {len(outcomes) for outcomes in outcomes_by_event.values()} == {1}, (
        "of an event one thing is told, however often"
    )
    last = [history[-1][1]["ce_id"] for history in documents.values()]
    assert [get_outcome_types(outcomes_by_event[event]) for event in last] == [
        get_outcome_types(expected[event]) for event in last
    ]
    found, wanted = (
        interrupted_cluster.compute_checksum()["tables"],
        clean.compute_checksum()["tables"],
    )
    assert found == wanted
    assert found["documents"]["rows"] == DOCUMENTS - 30 - 15, (
        "all but the withdrawn and the unreadable"
    )
    assert all(
        found[table]["rows"]
        for table in (
            "child_chunks",
            "chunk_vectors",
            "chunk_states",
            "entity_mentions",
            "relations",
            "lexical_counts",
        )
    ), found


def test_two_workers_for_one_stage_share_its_partitions(interrupted_cluster: WorkerCluster) -> None:
    others = [stage.name for stage in STAGES if stage.name != "embed"]
    one, two, rest = (
        interrupted_cluster.start_worker("embed"),
        interrupted_cluster.start_worker("embed"),
        interrupted_cluster.start_worker(*others),
    )
    eventually_blocking(
        lambda: one.is_ready and two.is_ready and rest.is_ready, what="three workers"
    )
    interrupted_cluster.wait_for_members("anabranch.embed.g1", 2)
    names = [f"shared-{number}" for number in range(40)]
    interrupted_cluster.push(make_received(name, 0, f"Herons of {name}") for name in names)
    with tail_topic(interrupted_cluster.settings, "outcomes") as outcomes:
        eventually_blocking(
            lambda: len(outcomes.poll_records()),
            lambda n_records: n_records == len(names),
            what="every outcome",
        )
    chunked = read_in_append_order(interrupted_cluster, "chunked", len(names))
    partitions = {
        record.data["origin"]["external_id"]: record.append_position[1] for record in chunked
    }
    by_one, by_two = ({partitions[name] for name in worker.embedded_words} for worker in (one, two))
    assert sorted(one.embedded_words + two.embedded_words) == sorted(names), (
        "each document is embedded once, by one of them"
    )
    assert by_one and by_two
    assert not by_one & by_two, "a partition belongs to one of them"
