"""Stage consumer: runs one stage over the partitions assigned to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from schemas.errors import LogUnavailable, NewerVersion, TransientError
from schemas.ports.consumers import ALL_PARTITIONS, ReaderStatus
from schemas.ports.log import Partition, Sink, Subscriber
from streams.partition_sink import (
    STATUS_RENEWAL_S,
    ByteBudget,
    PartitionLimits,
    PartitionSink,
)
from streams.runner import StageRunner

log = structlog.get_logger(__name__)
RETRY_DELAY_S = 1.0


def format_group_name(stage: str, generation: str | None) -> str:
    """Return the consumer group of a stage: one for each generation, whose partitions all workers
    share.
    """
    return f"anabranch.{stage}.{generation}" if generation else f"anabranch.{stage}"


@dataclass(slots=True)
class StageConsumer:
    """Runs one stage until cancelled.

    Restarts after outages; raises FatalError and defects of the runtime.
    """

    runner: StageRunner
    subscriber: Subscriber
    topic: str
    limits: PartitionLimits = field(default_factory=PartitionLimits)
    byte_budget: ByteBudget = field(default_factory=ByteBudget)
    failure: asyncio.Future[None] | None = None
    group: str | None = None
    """Default: the group of the stage and its generation."""
    reader_status: ReaderStatus | None = None
    """Where paused partitions and engine outages are reported."""

    async def run(self) -> None:
        while True:
            try:
                await self._consume()
            except TransientError as error:
                log.warning(
                    "stage_restarted",
                    group=self._get_group(),
                    topic=self.topic,
                    code=error.code,
                    detail=error.detail,
                )
                # Uncommitted records are read again; their claims make the repetition harmless.
                await asyncio.sleep(RETRY_DELAY_S)

    async def _consume(self) -> None:
        """Consume until an error; never returns."""
        # A future for each run: a late failure of an old sink must not end the next run.
        self.failure = asyncio.get_running_loop().create_future()
        read_task = asyncio.create_task(
            self.subscriber.subscribe(self._get_group(), self.topic, self.open_sink).run()
        )
        report_task = asyncio.create_task(self._report_engine_outage())
        try:
            await asyncio.wait({read_task, self.failure}, return_when=asyncio.FIRST_COMPLETED)
            # The sink's failure first: it is the cause if both ended.
            if self.failure.done():
                self.failure.result()
            if not read_task.cancelled():
                read_task.result()
            # A subscription never ends by itself: something it awaited was cancelled.
            raise LogUnavailable(f"Reading of {self.topic} ended unexpectedly.")
        finally:
            read_task.cancel()
            report_task.cancel()
            # Wait until sinks are closed: the next run may get the same partitions.
            await asyncio.gather(read_task, report_task, return_exceptions=True)

    async def _report_engine_outage(self) -> None:
        """Report the engine that the stage waits for, until it answers; retry failed reports."""
        is_reported = False
        while self.reader_status is not None:
            outage = self.runner.engine_outage
            # `is_reported` changes only after a successful report, so a failed one is repeated.
            with suppress(TransientError):
                if outage is not None:
                    await self.reader_status.set_paused(
                        self._get_group(), self.topic, ALL_PARTITIONS, outage
                    )
                elif is_reported:
                    await self.reader_status.clear_paused(
                        self._get_group(), self.topic, ALL_PARTITIONS
                    )
                is_reported = outage is not None
            await asyncio.sleep(STATUS_RENEWAL_S)

    def _get_group(self) -> str:
        generation = self.runner.publisher.generation
        return self.group or format_group_name(
            self.runner.stage.name,
            None
            if self.runner.stage.serves_all_generations or generation is None
            else generation.name,
        )

    def open_sink(self, partition: Partition) -> Sink:
        return PartitionSink(
            self.runner, partition, self._fail, self.limits, self.byte_budget, self._report_pause
        )

    async def _report_pause(self, partition: Partition, reason: NewerVersion | None) -> None:
        if self.reader_status is None:
            return
        place = self._get_group(), partition.topic, partition.number
        try:
            if reason is None:
                await self.reader_status.clear_paused(*place)
            else:
                await self.reader_status.set_paused(*place, reason)
        except TransientError as error:
            log.warning(
                "reader_status_not_stored",
                topic=partition.topic,
                partition=partition.number,
                code=error.code,
                detail=error.detail,
            )

    def _fail(self, error: BaseException) -> None:
        if self.failure is not None and not self.failure.done():
            self.failure.set_exception(error)
