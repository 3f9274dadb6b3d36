"""Run the consumers of every generation that is not dropped, and follow changes within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import structlog

from processors import STAGES
from schemas.errors import AnabranchError, TransientError
from schemas.generations import Generation
from schemas.ports.consumers import ALL_PARTITIONS
from schemas.ports.log import RecordAppender, Subscriber
from schemas.ports.stage_ports import StagePorts
from schemas.topics import ACCEPTED, Record
from services.background_tasks import cancel_tasks
from services.engines import EngineRegistry, Engines, make_outdated_error
from services.generations.stage_assignments import (
    SERVING_STATES,
    StageAssignment,
    StageRole,
    assign_stages,
    emits_index_events,
    restrict_to_document_changes,
)
from services.instrumentation.metrics import NotifyingLog, OutcomeSuppressingLog, log_outcomes
from services.storage import Storage
from services.worker.assignment_ledgers import BuildThrottle, ThrottledRunner, build_ledger
from sql.database import Pool
from sql.inbox.ledger import PgLedger
from sql.operations.monitoring import PgReaderStatus
from streams.chained_records import ChainedRecords
from streams.partition_sink import STATUS_RENEWAL_S, PartitionLimits
from streams.publisher import Publisher
from streams.retry import AttemptLimits
from streams.runner import StageRunner
from streams.stage import Instrumentation, Stage
from streams.stage_chain import ChainedRunner, ChainLink, StageChain
from streams.stage_consumer import StageConsumer

log = structlog.get_logger(__name__)
POLL_S = 0.5
MAX_CHAINED_DOCUMENTS = 128
"""Documents in the chain at once; they share transactions."""
FIRST_POLL_S = 0.05
"""Poll interval until the first generation exists."""


@dataclass(slots=True)
class ConsumerSupervisor:
    """Start and stop stage consumers.

    Builds use `build_pool`, so that they take no connection from serving generations.
    """

    storage: Storage
    stages: Sequence[Stage]
    initial_generation: Generation
    engine_registry: EngineRegistry
    build_pool: Pool
    instrumentation: Instrumentation
    build_ports: Callable[[Generation, Engines], StagePorts]
    clock: Callable[[], datetime]
    attempt_limits: AttemptLimits
    subscriber: Subscriber
    bounds: PartitionLimits = field(default_factory=PartitionLimits)
    assignment_tasks: dict[tuple[object, ...], tuple[StageAssignment, asyncio.Task[None]]] = field(
        default_factory=dict
    )
    consumers: dict[tuple[object, ...], StageConsumer] = field(default_factory=dict)
    throttles: dict[str, BuildThrottle] = field(default_factory=dict)
    chained_records: dict[str, ChainedRecords] = field(default_factory=dict)
    unavailable: set[str] = field(default_factory=set)
    """Generations whose engines this process cannot open."""
    delegated: dict[tuple[object, ...], StageAssignment] = field(default_factory=dict)
    """Assignments that another version of this program has to emit."""
    pauses_renewed_at: float | None = None
    has_generations: bool = False
    """True once the tables of the first generation exist."""

    async def run(self) -> None:
        """Run until cancelled.

        Raises the error of a serving generation's consumer; a failed build stops only itself.
        """
        try:
            async with asyncio.TaskGroup() as group:
                # Stage `control` has to run before a generation exists: it projects the first one.
                await self._reconcile([], group)
                while True:
                    await asyncio.sleep(POLL_S if await self._poll(group) else FIRST_POLL_S)
        finally:
            with suppress(TransientError):
                # Engine calls counted since the last poll would be lost.
                await self.sync_builds()
                await self._end_delegation(list(self.delegated))

    async def _poll(self, group: asyncio.TaskGroup) -> bool:
        """Reconcile once; return whether any generation exists. A lost database changes nothing."""
        try:
            generations = await self.storage.generations.fetch_undropped()
            await self.sync_builds()
            # Before `_reconcile`, which starts again what this removes.
            await self._retry_stopped()
            if generations:
                self.has_generations = True
                await self._reconcile(generations, group)
                await self._renew_pauses(
                    {generation.name: generation for generation in generations}
                )
        # Consumers survive the outage by themselves; stopping them would only cause rebalances.
        except TransientError:
            return bool(self.assignment_tasks)
        return bool(generations)

    async def _reconcile(self, generations: Sequence[Generation], group: asyncio.TaskGroup) -> None:
        """Start and stop consumers.

        Until the first generation is projected, only shared stages run: `control` projects it.
        """
        assignments = assign_stages(
            generations or [self.initial_generation], self.stages, self.storage.producer_topics
        )
        wanted_assignments = {
            assignment.key: assignment
            for assignment in assignments
            if generations or assignment.stage.serves_all_generations
        }
        # Stop before starting: a successor continues in the consumer group of a stopped consumer.
        await self._stop_consumers(
            [key for key in self.assignment_tasks if key not in wanted_assignments]
        )
        await self._end_delegation([key for key in self.delegated if key not in wanted_assignments])
        for key, assignment in wanted_assignments.items():
            if (
                key not in self.assignment_tasks
                and key not in self.delegated
                and (consumer := await self._build_consumer(assignment, assignments)) is not None
            ):
                self.assignment_tasks[key] = (
                    assignment,
                    group.create_task(self._consume(assignment, consumer)),
                )
                self.consumers[key] = consumer

    def list_runners(self) -> dict[tuple[str, str | None], StageRunner]:
        """Map (stage, generation or None if shared) to the runners that are not delegated."""
        active = [
            (self.assignment_tasks[key][0], consumer)
            for key, consumer in self.consumers.items()
            if key in self.assignment_tasks and key not in self.delegated
        ]
        return {
            (
                assignment.stage.name,
                None if assignment.stage.serves_all_generations else assignment.generation.name,
            ): consumer.runner
            for assignment, consumer in active
        }

    async def _stop_consumers(self, keys: Sequence[tuple[object, ...]]) -> None:
        tasks = [self.assignment_tasks.pop(key)[1] for key in keys]
        for key in keys:
            del self.consumers[key]
        await cancel_tasks(tasks)

    async def _retry_stopped(self) -> None:
        """Start consumers again after their build was resumed."""
        # Only builds: the error of a serving consumer ends the task group instead.
        stopped = self.unavailable | {
            assignment.generation.name
            for assignment, task in self.assignment_tasks.values()
            if task.done()
        }
        builds = await self.storage.builds.list_by_name() if stopped else {}
        for name in stopped & {name for name, build in builds.items() if build.error is None}:
            self.unavailable.discard(name)
            await self._stop_consumers(
                [
                    key
                    for key, (assignment, task) in self.assignment_tasks.items()
                    if assignment.generation.name == name and task.done()
                ]
            )

    async def _consume(self, assignment: StageAssignment, consumer: StageConsumer) -> None:
        try:
            await consumer.run()
        except Exception as error:
            # Ends the task group, and with it the worker.
            if not assignment.suppresses_outcomes:
                raise
            log.error(
                "build_consumer_failed",
                generation=assignment.generation.name,
                stage=assignment.stage.name,
                error=repr(error),
            )
            await self._record_failure(assignment.generation.name, error)

    async def _build_consumer(
        self, assignment: StageAssignment, assignments: Sequence[StageAssignment]
    ) -> StageConsumer | None:
        """Build the consumer; None if this process lacks what the generation needs, or delegates
        it.
        """
        generation = assignment.generation
        if generation.name in self.unavailable:
            return None
        try:
            engines = await self.engine_registry.get_counting(generation)
        except AnabranchError as error:
            # A generation that serves must not stop unnoticed; a build can wait.
            if generation.state in SERVING_STATES:
                raise
            self.unavailable.add(generation.name)
            log.error(
                "generation_engines_unavailable",
                generation=generation.name,
                code=error.code,
                detail=error.detail,
                remedy=error.remedy,
            )
            await self._record_failure(generation.name, error)
            return None
        # This program would emit other events than those that the index consists of (ADR 9).
        if emits_index_events(
            assignment
        ) and assignment.emitting_stage in await self.engine_registry.find_outdated_stages(
            generation
        ):
            self._delegate(assignment)
            if (restricted := restrict_to_document_changes(assignment)) is None:
                return None
            # Withdrawals and amendments apply at once; only texts wait for the other program.
            assignment = restricted
        ports = self.build_ports(generation, engines)
        runner = await self._build_runner(assignment, assignments, ports)
        limits = self.bounds
        if isinstance(runner, ChainedRunner):
            # Small documents: together they hold less memory than one large one.
            limits = replace(
                limits,
                max_reactions=MAX_CHAINED_DOCUMENTS,
                # While Postgres works on one batch, the rows of another are encoded.
                concurrent_finishes=2,
            )
        return StageConsumer(
            runner,
            self.subscriber,
            assignment.topic,
            limits,
            group=assignment.group,
            reader_status=PgReaderStatus(self.storage.pool),
        )

    async def _build_runner(
        self, assignment: StageAssignment, assignments: Sequence[StageAssignment], ports: StagePorts
    ) -> StageRunner:
        """Build a runner that is throttled for a build, or that chains stages behind ingress."""
        generation, codec = assignment.generation, self.storage.codec
        pool = self.storage.pool
        event_log: RecordAppender = self.storage.log
        if assignment.suppresses_outcomes:
            pool, event_log = self.build_pool, OutcomeSuppressingLog(event_log)
        runner_args: tuple[Any, ...] = (
            assignment.stage,
            build_ledger(assignment, pool),
            NotifyingLog(event_log, self._report_published),
            ports,
            # Event ids derive from the stage's name, so a successor has to emit under the original
            # one.
            Publisher(assignment.emitting_stage, generation, codec, self.clock),
            codec,
            self.instrumentation,
        )
        throttle = (
            await self._load_throttle(generation.name) if assignment.suppresses_outcomes else None
        )
        if throttle:
            return ThrottledRunner(throttle, *runner_args, limits=self.attempt_limits)
        if assignment.stage.name == "receive" and (
            chain := await self._build_chain(generation, assignments, ports)
        ):
            return ChainedRunner(
                *runner_args,
                limits=self.attempt_limits,
                chain=chain,
                is_ready=lambda: self.has_generations,
                on_published=self._report_published,
            )
        return StageRunner(
            *runner_args,
            limits=self.attempt_limits,
            chained_records=self._find_chained_records(assignment),
        )

    async def _build_chain(
        self, generation: Generation, assignments: Sequence[StageAssignment], ports: StagePorts
    ) -> StageChain | None:
        """Build the chain of the generation's consumers behind ingress; None if this process may
        not run all of them.
        """
        links = [
            assignment
            for assignment in assignments
            if assignment.generation.name == generation.name
            and not assignment.stage.serves_all_generations
        ]
        if (
            # Other processes host the other stages.
            any(stage not in self.stages for stage in STAGES)
            or generation.state not in SERVING_STATES
            # The ordinary path embeds and extracts many documents at once, and shows a document
            # before its entities are known.
            or generation.config.calls_model_servers
            or links[0].topic != ACCEPTED
            # A successor reads on in the group of a generation that was dropped.
            or len({(link.stage.name, link.topic) for link in links}) < len(links)
            # Texts come from elsewhere than the stage that decides about revisions.
            or links[0].role is not StageRole.PRODUCE
            or await self.engine_registry.find_outdated_stages(generation)
        ):
            return None
        return StageChain(
            [
                ChainLink(
                    assignment.stage,
                    assignment.topic,
                    assignment.group,
                    Publisher(
                        assignment.emitting_stage, generation, self.storage.codec, self.clock
                    ),
                )
                for assignment in links
            ],
            PgLedger(self.storage.pool, generation),
            ports,
            self._find_chained_records(links[0]),
        )

    def _find_chained_records(self, assignment: StageAssignment) -> ChainedRecords | None:
        """Return the chains that may have applied what this consumer reads."""
        generation = assignment.generation
        if (
            # There, the events themselves name the groups that need not read them.
            self.storage.log.is_in_database
            or assignment.stage.serves_all_generations
            or generation.state not in SERVING_STATES
        ):
            return None
        return self.chained_records.setdefault(
            generation.name, ChainedRecords(PgLedger(self.storage.pool, generation))
        )

    def _report_published(self, records: Sequence[Record]) -> None:
        log_outcomes(records)
        self.instrumentation.count_published(records)

    def _delegate(self, assignment: StageAssignment) -> None:
        """Leave the events untouched: a worker of the version that built the generation continues
        with them.
        """
        # Without a renewal time the next poll reports the pause at once.
        self.delegated[assignment.key], self.pauses_renewed_at = assignment, None
        reason = make_outdated_error(assignment.generation, [assignment.emitting_stage])
        log.warning(
            "stage_delegated",
            stage=assignment.emitting_stage,
            detail=reason.detail,
            remedy=reason.remedy,
        )

    async def _end_delegation(self, keys: Sequence[tuple[object, ...]]) -> None:
        """Clear the pauses of assignments that no longer wait."""
        for assignment in [self.delegated.pop(key) for key in keys]:
            await PgReaderStatus(self.storage.pool).clear_paused(
                assignment.group, assignment.topic, ALL_PARTITIONS
            )

    async def _renew_pauses(self, generations: Mapping[str, Generation]) -> None:
        now = asyncio.get_running_loop().time()
        if self.pauses_renewed_at is not None and now - self.pauses_renewed_at < STATUS_RENEWAL_S:
            return
        # `_reconcile` has removed assignments of dropped generations before.
        for assignment in self.delegated.values():
            reason = make_outdated_error(
                generations[assignment.generation.name], [assignment.emitting_stage]
            )
            await PgReaderStatus(self.storage.pool).set_paused(
                assignment.group, assignment.topic, ALL_PARTITIONS, reason
            )
        self.pauses_renewed_at = now

    async def _load_throttle(self, generation: str) -> BuildThrottle:
        """Return the build's throttle, configured before the first event is consumed."""
        if generation not in self.throttles:
            build = await self.storage.builds.get(generation)
            throttle = BuildThrottle()
            if build is not None:
                throttle.configure(paused=build.paused, events_per_second=build.events_per_second)
            self.throttles[generation] = throttle
        return self.throttles[generation]

    async def sync_builds(self) -> None:
        """Apply pace changes to the builds, and add up their engine calls."""
        if not self.throttles:
            return
        build_store = self.storage.builds
        for name, build in (await build_store.list_by_name()).items():
            if name in self.throttles:
                self.throttles[name].configure(
                    paused=build.paused, events_per_second=build.events_per_second
                )
                # Counts that are taken but not stored are lost; they are only statistics.
                await build_store.add_engine_calls(
                    name, self.engine_registry.take_input_counts(name)
                )

    async def _record_failure(self, generation: str, error: Exception) -> None:
        try:
            await self.storage.builds.record_failure(generation, error)
        except TransientError:
            log.warning("build_failure_not_recorded", generation=generation)
