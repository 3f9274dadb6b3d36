"""A topic that loses its beginning while a rebuild is to read it: refused with the missing range,
and what answers goes on answering.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from anabranch.composition.storage import prepare_storage
from anabranch.config.settings import DatabaseSettings, KafkaSettings, Settings
from schemas.errors import PermanentError
from schemas.timestamps import utc_now
from services.generations.decisions import GenerationDecisions
from services.generations.reindex import start_rebuild
from services.storage import Storage
from sql.index.partitions import begin_generation_drop
from tests.faults.environment import PARTITIONS
from tests.faults.trial import Fault, FaultTrial
from tests.support.eventually import eventually_blocking
from tests.support.postgres_fixture import run_in_thread

T = TypeVar("T")
TOPIC = "embedded"


def inject(trial: FaultTrial) -> int:
    trial.start_workers()
    trial.push_share(1.0)
    trial.wait_for_outcomes(len(trial.sent_ids))
    trial.fleet.wait_until_idle()
    trial.fleet.stop_running()
    name = run_with_storage(
        trial, lambda storage: start_rebuild(storage, make_decisions(storage), keep_previous=False)
    )
    missing = delete_first_half(trial)
    trial.start_workers()
    error = wait_for_build_error(trial, name)
    trial.expect(missing in error, f"during a rebuild: {missing!r} is not in {error!r}")
    run_with_storage(
        trial,
        lambda storage: begin_generation_drop(
            storage.pool, name, make_decisions(storage).publish_dropped
        ),
    )
    error = run_with_storage(trial, attempt_rebuild)
    trial.expect(missing in error, f"before a rebuild: {missing!r} is not in {error!r}")
    trial.expect(
        trial.fleet.select("select name from live_generation") == [("g1",)],
        "another generation is live",
    )
    return 2


def delete_first_half(trial: FaultTrial) -> str:
    """Delete the first half of a partition; return how the error should name the missing range."""
    topic = trial.fleet.topic_name(TOPIC)
    offset_ranges = trial.fleet.select(
        "select p.log_partition, min(p.log_offset), max(p.log_offset)"
        " from visible v join revision_positions p using (generation, document_id, ord)"
        f" where p.log_topic = '{TOPIC}' and generation = 'g1'"
        " group by 1 having count(*) > 1 order by 1"
    )
    partition, first, last = trial.rng.choice(offset_ranges)
    first_kept = (first + last) // 2 + 1
    admin = AdminClient({"bootstrap.servers": trial.fleet.settings.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, partition, first_kept)]).values():
        future.result()
    return f"{TOPIC}, partition {partition}: offsets {first} to {first_kept - 1}"


def wait_for_build_error(trial: FaultTrial, name: str) -> str:
    def error() -> str:
        return "".join(
            str(row[0])
            for row in trial.fleet.select(
                "select error from generation_builds"
                f" where generation = '{name}' and error is not null"
            )
        )

    eventually_blocking(lambda: bool(error()), what="the rebuild to fail")
    return error()


async def attempt_rebuild(storage: Storage) -> str:
    try:
        name = await start_rebuild(storage, make_decisions(storage), keep_previous=False)
    except PermanentError as error:
        return error.detail
    return f"not refused: {name}"


def make_decisions(storage: Storage) -> GenerationDecisions:
    return GenerationDecisions(storage.log, storage.codec, utc_now, uuid4)


def run_with_storage(trial: FaultTrial, work: Callable[[Storage], Awaitable[T]]) -> T:
    fleet = trial.fleet
    kafka = KafkaSettings(
        bootstrap_servers=fleet.settings.bootstrap_servers,
        topic_prefix=fleet.settings.topic_prefix,
        partitions=PARTITIONS,
    )
    settings = Settings(
        data_dir=Path(fleet.folder) / "data",
        kafka=kafka,
        database=DatabaseSettings(url=SecretStr(fleet.dsn)),
    )

    async def run() -> T:
        async with prepare_storage(settings, fleet.dsn, pool_size=2, name="fault") as storage:
            return await work(storage)

    return run_in_thread(run)


FAULT = Fault("a topic truncated under a rebuild", inject)
