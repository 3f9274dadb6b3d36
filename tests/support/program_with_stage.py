"""Run the system in a process of its own and print as JSON what it knows of one stage and topic."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from anabranch.cli.config import build_asyncapi_files, build_schema_files
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.kafka.settings import resolve_retention_ms, resolve_topic_partitions
from anabranch.kafka.topic_checks import KafkaPrincipals, build_required_grants
from processors import STAGES
from services.monitoring.lag_diagnosis import list_consumers
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_world import ApiWorld, run_system

TEXT = "# Insurance\n\nThe ferry is insured under policy AM-55871."


async def describe(world: ApiWorld, topic: str, stage: str) -> dict[str, Any]:
    storage = world.worker.storage
    receipt = await world.ingest_until_searchable(TEXT, "policy.md")
    status = await world.wait_until_all_stages_done(receipt)
    records = [record async for record in storage.log.read(topic)]
    feed = (await world.http.get("/v1/events", params={"topics": topic})).json()
    return {
        "status": {line["stage"]: line["state"] for line in status["stages"]},
        "content_types": [record.record.headers["content-type"].decode() for record in records],
        "payloads": [
            (await storage.codec.decode(record)).data.model_dump(mode="json") for record in records
        ],
        "feed": [event["type"] for event in feed["items"]],
        "consumers": [
            consumer.group for consumer in await list_consumers(storage) if consumer.stage == stage
        ],
    }


async def main(folder: Path, dsn: str, topic: str, stage: str) -> None:
    settings = load_settings(data_dir=folder, sets=["logging.level=error"])
    async with run_system(settings, dsn, Overrides(embedder=NullEmbedder(64, 16))) as world:
        seen = await describe(world, topic, stage)
    asyncapi = json.loads(build_asyncapi_files()["asyncapi.json"])
    grants = build_required_grants(settings, KafkaPrincipals())
    print(
        json.dumps(
            {
                **seen,
                "stages": [stage.name for stage in STAGES],
                "channel": asyncapi["channels"][topic],
                "schemas": [name for name in build_schema_files() if topic in name],
                "partitions": resolve_topic_partitions(settings)[topic],
                "retention_ms": resolve_retention_ms(settings).get(topic),
                "writers": [
                    grant.principal for grant in grants if grant.name == topic and grant.can_write
                ],
            }
        )
    )


if __name__ == "__main__":
    folder, dsn, topic, stage = sys.argv[1:]
    asyncio.run(main(Path(folder), dsn, topic, stage))
