"""What a worker process does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from anabranch.background.gauges import Gauges
from anabranch.composition.overrides import Overrides
from anabranch.composition.storage import wait_for_kafka
from anabranch.composition.worker import prepare_worker
from anabranch.indexing import outdated_error
from anabranch.ingress import check_ingress
from anabranch.process.data_folder import check_ours
from anabranch.process.database import database
from anabranch.process.listening import check_free
from anabranch.process.metrics import Metrics
from anabranch.process.metrics_server import metrics_server
from anabranch.settings import Settings
from anabranch.stages import stages_named
from anabranch.version import program_version
from processors import receive
from schemas.errors import AnabranchError

log = structlog.get_logger(__name__)


async def work(settings: Settings, stages: Iterable[str], report: Path | None) -> None:
    """Until cancelled. Raises what stopped a stage, and ConfigurationError (unknown stage, port taken) before anything is made."""
    chosen, metrics = stages_named(stages), Metrics(program_version())
    metrics_at = (settings.worker.metrics_host, settings.worker.metrics_port)
    if any(stage is receive.STAGE for stage in chosen):
        check_ingress(settings)
    await check_free(*metrics_at, option="--metrics-port")
    check_ours(settings.data_dir)
    await wait_for_kafka(settings)
    async with AsyncExitStack() as stack:
        url = stack.enter_context(metrics_server(metrics.registry, *metrics_at))
        dsn = await stack.enter_async_context(database(settings, shared=True))
        worker = await stack.enter_async_context(prepare_worker(settings, dsn, stages=chosen, overrides=Overrides(watch=metrics.watch), observer=metrics))
        log.info("worker reads", stages=[stage.name for stage in chosen], generation=worker.generation.name, log=settings.log_kind, metrics=url)
        _report(report, url, outdated_error(worker.generation, worker.outdated) if worker.outdated else None)
        async with asyncio.TaskGroup() as group:
            group.create_task(Gauges(worker.storage, metrics).run())
            group.create_task(worker.run())


def _report(path: Path | None, metrics_url: str, outdated: AnabranchError | None) -> None:
    if path is not None:
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps({"metrics_url": metrics_url, "outdated": f"{outdated.detail}. {outdated.remedy}" if outdated else None}))
        draft.replace(path)
