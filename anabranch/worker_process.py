"""What a worker process does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import structlog
from prometheus_client import start_http_server

from anabranch.composition.worker import prepare_worker, stages_named
from anabranch.database import database
from anabranch.gauges import Gauges
from anabranch.metrics import Metrics
from anabranch.settings import Settings
from anabranch.version import program_version

log = structlog.get_logger(__name__)


async def work(settings: Settings, stages: Iterable[str], metrics_at: tuple[str, int], report: Path | None) -> None:
    """Until cancelled. Raises what stopped a stage."""
    chosen, metrics = stages_named(stages), Metrics(program_version())
    server, thread = start_http_server(metrics_at[1], metrics_at[0], metrics.registry)
    url = f"http://{metrics_at[0]}:{server.server_port}/metrics"
    try:
        async with database(settings, shared=True) as dsn, prepare_worker(settings, dsn, stages=chosen, observer=metrics) as worker:
            log.info("worker reads", stages=[stage.name for stage in chosen], generation=worker.generation.name, log=settings.log_kind, metrics=url)
            _report(report, url)
            async with asyncio.TaskGroup() as group:
                group.create_task(Gauges(worker.storage, metrics).run())
                group.create_task(worker.run())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _report(path: Path | None, metrics_url: str) -> None:
    if path is not None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"metrics_url": metrics_url}))
        draft.replace(path)
