"""Ingest a Postgres table through real Kafka Connect and Debezium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from anabranch.config.overrides import Overrides
from sql.embedded.server import EmbeddedPostgres
from streams.kafka.client import KafkaClientSettings
from tests.debezium.connect import make_connector_config, run_kafka_connect
from tests.debezium.notes_table import COLUMN_ENCODINGS, open_notes_table
from tests.fakes.null_embedder import NullEmbedder
from tests.support.postgres_fixture import tcp_dsn
from tests.support.simulated_pipeline import LineParser
from tests.support.source_environment import run_source_environment

pytestmark = pytest.mark.kafka

FAST_OVERRIDES = Overrides(parser=LineParser(), embedder=NullEmbedder(8, 4))
LONG_TEXT = " ".join(f"sentence {number} about herons in the reeds." for number in range(300))
"""Stored beside its row, so that the log of the database names it only when it changes."""


@pytest.fixture
async def shop(empty_database: str) -> AsyncIterator[asyncpg.Connection]:
    async with open_notes_table(empty_database) as connection:
        yield connection


@pytest.mark.parametrize(
    "schemas", [True, pytest.param(False, marks=pytest.mark.long)], ids=["with schema", "without"]
)
async def test_debezium_table_changes_become_documents(
    shop: asyncpg.Connection,
    postgres_server: EmbeddedPostgres,
    empty_database: str,
    database: str,
    kafka_settings: KafkaClientSettings,
    tmp_path: Path,
    schemas: bool,
) -> None:
    prefix, rows = f"shop-{uuid4().hex[:8]}", 20
    await shop.execute(
        "insert into notes select g, 'note ' || g, 'Heron ' || g || ' stands.', g / 4.0, "
        "'2026-03-01 12:00', '2026-03-02', '{\"n\": 1}'"
        f" from generate_series(1, {rows}) g"
    )
    sets = [
        f"kafka.bootstrap_servers={kafka_settings.bootstrap_servers}",
        f"kafka.topic_prefix={kafka_settings.topic_prefix}",
        "kafka.partitions=2",
    ]
    mapping = {
        "body": ["body"],
        "title": "title",
        "metadata": ["price", "made", "day", "facts"],
        "encodings": {} if schemas else COLUMN_ENCODINGS,
    }
    async with (
        run_source_environment(
            tmp_path / "data", database, *sets, overrides=FAST_OVERRIDES
        ) as world,
        run_kafka_connect(
            kafka_settings.bootstrap_servers, tmp_path, prefix, schemas=schemas
        ) as connect,
    ):
        await world.add_source(
            "crm", {"kind": "debezium", "topic": f"{prefix}.public.notes", "mapping": mapping}
        )
        await connect.start_connector(
            prefix, make_connector_config(tcp_dsn(postgres_server, empty_database), prefix)
        )
        expected = {str(key): f"Heron {key} stands." for key in range(1, rows + 1)}
        await world.wait_for_texts("crm", expected)
        metadata = await world.worker.storage.pool.fetchval(
            "select metadata from documents where external_id = '2'"
        )
        assert metadata == {
            "price": "0.50",
            "made": "2026-03-01T12:00:00",
            "day": "2026-03-02",
            "facts": {"n": 1},
        }

        await shop.execute("insert into notes values (5000, 'long', $$" + LONG_TEXT + "$$)")
        await shop.execute(
            "update notes set body = 'Heron 1 flies.' where id = 1; delete from notes "
            "where id = 2; update notes set id = 3000 where id = 3"
        )
        await shop.execute("update notes set title = 'longer' where id = 5000")
        await shop.execute("update notes set id = 6000 where id = 5000")
        expected |= {"1": "Heron 1 flies.", "3000": expected.pop("3"), "6000": LONG_TEXT}
        del expected["2"]
        await world.wait_for_texts("crm", expected)

        await connect.stop_connector(prefix)
        await shop.execute("delete from notes where id > 10 and id < 3000")
        again = make_connector_config(
            tcp_dsn(postgres_server, empty_database), prefix, **{"snapshot.mode": "always"}
        )
        await connect.start_connector(prefix, again)
        expected = {
            key: text for key, text in expected.items() if int(key) <= 10 or int(key) >= 3000
        }
        await world.wait_for_texts("crm", expected)

        await shop.execute(
            "begin; truncate notes; insert into notes (id, body) "
            "values (7, 'Only this one.'); commit"
        )
        await world.wait_for_texts("crm", {"7": "Only this one."})
        assert await world.fetch_dead_letters() == []
