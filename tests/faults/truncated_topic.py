"""A topic that loses its beginning while a rebuild is to read it: refused with the missing range, and what answers goes on answering."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from anabranch.composition.overrides import now
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.desk.decisions import Decisions
from anabranch.desk.rebuilding import start_rebuild
from anabranch.settings import DatabaseSettings, KafkaSettings, Settings
from schemas.errors import PermanentError
from sql.dropping import give_up
from tests.faults.ground import PARTITIONS
from tests.faults.trial import Fault, Trial
from tests.integration.cluster import until
from tests.postgres_fixture import elsewhere

T = TypeVar("T")
TOPIC = "embedded"


def strike(trial: Trial) -> int:
    trial.staffed()
    trial.feed_to(1.0)
    trial.heard(len(trial.sent))
    trial.crew.await_quiet()
    for worker in trial.crew.alive():
        trial.crew.dismiss(worker)
    name = with_storage(trial, lambda storage: start_rebuild(storage, decisions(storage), keep=False))
    missing = truncate(trial)
    trial.staffed()
    said = why_it_failed(trial, name)
    trial.expect(missing in said, f"under way: {missing!r} is not in {said!r}")
    with_storage(trial, lambda storage: give_up(storage.pool, name, decisions(storage).dropped))
    said = with_storage(trial, refusal)
    trial.expect(missing in said, f"at the start: {missing!r} is not in {said!r}")
    trial.expect(trial.crew.select("select name from live_generation") == [("g1",)], "another generation answers")
    return 2


def truncate(trial: Trial) -> str:
    """Take away the first half of a partition that holds something; what is missing then, as it should be said."""
    topic = trial.crew.topic(TOPIC)
    held = trial.crew.select(
        "select p.log_partition, min(p.log_offset), max(p.log_offset) from visible v join revision_places p using (generation, document_id, ord)"
        f" where p.log_topic = '{TOPIC}' and generation = 'g1' group by 1 having count(*) > 1 order by 1"
    )
    partition, first, last = trial.mood.choice(held)
    below = (first + last) // 2 + 1
    admin = AdminClient({"bootstrap.servers": trial.crew.settings.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, partition, below)]).values():
        future.result()
    return f"{TOPIC}, partition {partition}: offsets {first} to {below - 1}"


def why_it_failed(trial: Trial, name: str) -> str:
    def error() -> str:
        return "".join(str(row[0]) for row in trial.crew.select(f"select error from generation_builds where generation = '{name}' and error is not null"))

    until(lambda: bool(error()), "the rebuild to fail")
    return error()


async def refusal(storage: Storage) -> str:
    try:
        return f"not refused: {await start_rebuild(storage, decisions(storage), keep=False)}"
    except PermanentError as error:
        return error.detail


def decisions(storage: Storage) -> Decisions:
    return Decisions(storage.log, storage.codec, now, uuid4)


def with_storage(trial: Trial, work: Callable[[Storage], Awaitable[T]]) -> T:
    crew = trial.crew
    kafka = KafkaSettings(bootstrap_servers=crew.settings.bootstrap_servers, topic_prefix=crew.settings.topic_prefix, partitions=PARTITIONS)
    settings = Settings(data_dir=Path(crew.folder) / "data", kafka=kafka, database=DatabaseSettings(url=SecretStr(crew.dsn)))

    async def run() -> T:
        async with prepare_storage(settings, crew.dsn, pool_size=2, name="fault") as storage:
            return await work(storage)

    return elsewhere(run)


FAULT = Fault("a topic truncated under a rebuild", strike)
