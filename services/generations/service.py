"""List, compare, promote, roll back and drop generations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from evaluation.comparison import ComparisonRequest
from evaluation.promotion_gate import PromotionRequest, list_violations
from processors import STAGES, TOPICS, embed, index
from schemas.errors import InvalidRequest, PermanentError
from schemas.generations import Generation
from schemas.ports.log import EventLog
from schemas.principals import Principal
from schemas.topics import EMBEDDED
from services.generations.comparison import GenerationComparer
from services.generations.decisions import GenerationDecisions
from services.generations.stage_assignments import assign_stages
from services.storage import Storage
from sql.database import Pool
from sql.index.generation_switch import SwitchResult, roll_back, switch_generation
from sql.index.generations import PgCalibrations, PgGenerations, unknown_generation_error
from sql.index.partitions import (
    begin_generation_drop,
    delete_dropped_states,
    fetch_dropped_states,
    record_dropped_states,
    remove_generation_tables,
)
from sql.operations.erasure import PgErasure


@dataclass(frozen=True, slots=True)
class GenerationService:
    pool: Pool
    log: EventLog
    decisions: GenerationDecisions
    comparer: GenerationComparer
    calibrations: PgCalibrations

    async def list_generations(self, caller: Principal) -> list[dict[str, Any]]:
        return await PgGenerations(self.pool).list_summaries(_resolve_visible_tenant(caller))

    async def get_generation(self, caller: Principal, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        summary = await PgGenerations(self.pool).get_summary(name, _resolve_visible_tenant(caller))
        if summary is None:
            raise unknown_generation_error(name)
        return summary

    async def compare(
        self, tenant: str, a: str, b: str, request: ComparisonRequest
    ) -> dict[str, Any]:
        """Raises NotFound, InvalidRequest."""
        return await self.comparer.compare(tenant, a, b, request)

    async def promote(self, tenant: str, name: str, request: PromotionRequest) -> dict[str, Any]:
        """Make the generation live; with a gate, only if the comparison passes it.

        Raises PermanentError with code NOT_CALIBRATED unless it is calibrated or forced.
        """
        await self._require_calibration(tenant, name, is_forced=request.force)
        if request.gate is None:
            return _format_switch(
                await switch_generation(self.pool, name, self.decisions.publish_promoted), None
            )
        live = (await PgGenerations(self.pool).resolve(None)).name
        report = await self.comparer.compare(tenant, live, name, request.comparison)
        failures = (
            [f"{name} is already live"] if live == name else list_violations(request.gate, report)
        )
        if failures:
            return {
                "generation": name,
                "previous": None,
                "promoted": False,
                "reasons": failures,
                "comparison": report,
            }
        # Refused if another switch came after the comparison.
        return _format_switch(
            await switch_generation(
                self.pool, name, self.decisions.publish_promoted, expected_live=live
            ),
            report,
        )

    async def _require_calibration(self, tenant: str, name: str, *, is_forced: bool) -> None:
        """Thresholds of other generations belong to other scores. Raises NotFound as well."""
        summary = await PgGenerations(self.pool).get_summary(name, tenant)
        if summary is None:
            raise unknown_generation_error(name)
        # One that was live before is trusted as a rollback trusts it.
        if is_forced or summary["state"] not in ("building", "shadow"):
            return
        if summary["state"] == "shadow" and not await self.calibrations.fetch(tenant, name):
            raise PermanentError(
                f"Generation {name} has no calibration of its own.",
                code="NOT_CALIBRATED",
                remedy=f"Run `anabranch calibrate --generation {name}`, or promote with `--force`.",
            )

    async def roll_back(self, expected_live: str | None) -> dict[str, Any]:
        """Raises as `promote` does."""
        live = (await PgGenerations(self.pool).resolve(None)).name if expected_live else None
        if expected_live != live:
            raise InvalidRequest(
                f"{expected_live} is not live; {live} is.",
                code="GENERATION_NOT_LIVE",
                remedy="Roll back without a name, or promote a generation.",
            )
        return _format_switch(await roll_back(self.pool, self.decisions.publish_promoted), None)

    async def drop(self, name: str) -> dict[str, Any]:
        """Raises NotFound, PermanentError with code GENERATION_IS_LIVE."""
        return asdict(await remove_generation(self.pool, self.log, self.decisions, name))


def _resolve_visible_tenant(caller: Principal) -> str | None:
    """Return the tenant whose numbers the caller may see; None means all tenants, for operators."""
    return None if caller.has_role("operator") else caller.tenant


def _format_switch(switched: SwitchResult, report: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "generation": switched.generation,
        "previous": switched.previous,
        "promoted": True,
        "reasons": [],
        "comparison": report,
    }


RELEASE_WAIT_S = 2.0
"""Within this, every worker has stopped consuming for the generation."""


@dataclass(frozen=True, slots=True)
class DroppedGeneration:
    """`removed` is false while transaction `blocked_by` holds a table.

    Workers finish the removal when the transaction ends.
    """

    generation: str
    removed: bool
    blocked_by: dict[str, Any] | None
    topics: tuple[str, ...]


async def remove_generation(
    pool: Pool,
    log: EventLog,
    decisions: GenerationDecisions,
    name: str,
    *,
    release_wait_s: float = RELEASE_WAIT_S,
) -> DroppedGeneration:
    """Drop the generation irrevocably.

    Raises NotFound, PermanentError with code GENERATION_IS_LIVE, LogUnavailable,
    DatabaseUnavailable.
    """
    await begin_generation_drop(pool, name, decisions.publish_dropped)
    await asyncio.sleep(release_wait_s)
    return await finish_drop(pool, log, name)


async def finish_drop(pool: Pool, log: EventLog, name: str) -> DroppedGeneration:
    """Remove what is left of a dropped generation. Idempotent.

    Token states stay until no event in a topic refers to them; workers sweep them.
    """
    generations = PgGenerations(pool)
    generation = await generations.fetch(name)
    topics = (
        find_unused_topics(generation, await generations.fetch_undropped())
        if generation is not None
        else []
    )
    # The rows are the only list of these blobs, and they are about to be deleted.
    if generation is not None and generation.topics.get(EMBEDDED, EMBEDDED) in topics:
        await record_dropped_states(pool, name)
    # Before the tables: workers retry a removal only while the generation has tables.
    await log.delete_topics(topics)
    removal = await remove_generation_tables(pool, name)
    return DroppedGeneration(name, removal.removed, removal.blocked_by, tuple(topics))


def find_unused_topics(generation: Generation, remaining: Iterable[Generation]) -> list[str]:
    """List the topics that only this generation uses, without those that all generations share."""
    shared = {topic for topic in TOPICS if not topic.per_generation}
    used = {
        other_generation.topics.get(plain, plain)
        for other_generation in remaining
        for plain in generation.topics
    }
    return sorted(set(generation.topics.values()) - used - shared)


BATCH_SIZE = 20
"""Small, so that an event that arrives meanwhile is seen before the next batch."""
REFERRING_STAGES = (embed.STAGE.name, index.STAGE.name)


async def sweep_token_states(storage: Storage) -> int:
    """Delete unused token states; returns how many.

    Nothing is deleted while an event in flight, or a running replay, may refer to one. Interrupted
    calls are finished by the next.
    """
    deleted_count = 0
    while await fetch_dropped_states(storage.pool, 1) and not await _has_pending_references(
        storage
    ):
        # Only now: what was on its way a moment ago may refer to one.
        batch = await fetch_dropped_states(storage.pool, BATCH_SIZE)
        unused = [key for key, is_used in batch.items() if not is_used]
        # Blobs before their records, so that an interrupted sweep finds them again.
        await storage.blobs.delete(unused)
        await delete_dropped_states(storage.pool, list(batch))
        deleted_count += len(unused)
    return deleted_count


async def _has_pending_references(storage: Storage) -> bool:
    """Return whether an event in flight, or a running replay, may refer to token states.

    Replays are checked first: the events of a replay that has ended are in a topic.
    """
    if await PgErasure(storage.pool).fetch_running_replays():
        return True
    assignments = assign_stages(await storage.generations.fetch_undropped(), STAGES)
    return any(
        [
            await storage.log.count_pending(assignment.group, assignment.topic)
            for assignment in assignments
            if assignment.stage.name in REFERRING_STAGES
        ]
    )
