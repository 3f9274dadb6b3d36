"""Kafka Connect with Debezium's Postgres connector, as a process on this machine's Java."""

from __future__ import annotations

import asyncio
import re
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from streams.kafka.broker import _find_free_port, find_java, get_default_jars_dir

POM = Path(__file__).with_name("pom.xml")
WORKER_PROPERTIES = """bootstrap.servers={bootstrap}
group.id=connect-{name}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable={schemas}
value.converter.schemas.enable={schemas}
config.storage.topic=connect-{name}-config
offset.storage.topic=connect-{name}-offset
status.storage.topic=connect-{name}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
offset.flush.interval.ms=500
plugin.path={plugins}
plugin.discovery=service_load
topic.creation.enable=true
listeners=http://127.0.0.1:{port}
"""


def ensure_plugin_folder() -> Path:
    """Fetched by Maven when it is not there yet; shared by all tests of a user."""
    [version] = re.findall(r"<debezium>(.+)</debezium>", POM.read_text())
    folder = get_default_jars_dir().parent / f"debezium-{version}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            fetch = [
                "mvn",
                "-B",
                "-q",
                "-f",
                str(POM),
                "dependency:copy-dependencies",
                f"-DoutputDirectory={scratch}/fetched",
            ]
            subprocess.run(fetch, check=True, stdout=subprocess.DEVNULL)
            [archive] = Path(scratch, "fetched").glob("*.tar.gz")
            with tarfile.open(archive) as plugin:
                plugin.extractall(Path(scratch, "plugin"), filter="data")
            Path(scratch, "plugin").rename(folder)
    return folder


class KafkaConnect:
    """The worker's REST interface."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    async def start_connector(self, name: str, config: dict[str, Any]) -> None:
        """Returns when the connector and its task run."""
        response = await self._http.put(f"/connectors/{name}/config", json=config)
        assert response.status_code < 300, response.text
        async with asyncio.timeout(60):
            while not await self._is_running(name):
                await asyncio.sleep(0.2)

    async def stop_connector(self, name: str) -> None:
        response = await self._http.delete(f"/connectors/{name}")
        assert response.status_code < 300, response.text

    async def _is_running(self, name: str) -> bool:
        response = await self._http.get(f"/connectors/{name}/status")
        if response.status_code != 200:
            return False
        status = response.json()
        assert "FAILED" not in str(status), status
        return bool(status["tasks"]) and all(task["state"] == "RUNNING" for task in status["tasks"])


@asynccontextmanager
async def run_kafka_connect(
    bootstrap: str, folder: Path, name: str, *, schemas: bool
) -> AsyncIterator[KafkaConnect]:
    plugins, port = await asyncio.to_thread(ensure_plugin_folder), _find_free_port(None)
    worker = folder / "connect.properties"
    worker.write_text(
        WORKER_PROPERTIES.format(
            bootstrap=bootstrap, name=name, schemas=str(schemas).lower(), plugins=plugins, port=port
        )
    )
    logging = folder / "log4j2.properties"
    logging.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.c.ref=c\nappender.c.type=Console\nappender.c.name=c\n"
    )
    quick = [
        "-Xms192m",
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={logging}",
    ]
    command = [
        find_java() or "java",
        *quick,
        "-cp",
        f"{get_default_jars_dir()}/*",
        "org.apache.kafka.connect.cli.ConnectDistributed",
        str(worker),
    ]
    with (folder / "connect.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            await _wait_until_ready(http, process, folder / "connect.log")
            yield KafkaConnect(http)
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _wait_until_ready(
    http: httpx2.AsyncClient, process: subprocess.Popen[bytes], log: Path
) -> None:
    for _ in range(600):
        assert process.poll() is None, f"Connect ended: {log.read_text()[-2000:]}"
        try:
            if (await http.get("/connectors")).status_code == 200:
                return
        except httpx2.HTTPError:
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
    raise AssertionError(f"Connect does not answer: {log.read_text()[-2000:]}")


def make_connector_config(dsn: str, prefix: str, **more: str) -> dict[str, Any]:
    place = urlsplit(dsn)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": place.hostname,
        "database.port": str(place.port),
        "database.user": place.username,
        "database.password": place.password,
        "database.dbname": place.path[1:],
        "topic.prefix": prefix,
        "table.include.list": "public.notes",
        "plugin.name": "pgoutput",
        "slot.name": prefix.replace("-", "_"),
        "publication.name": prefix.replace("-", "_"),
        "publication.autocreate.mode": "filtered",
        "skipped.operations": "none",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "4",
        **more,
    }
