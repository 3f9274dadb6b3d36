"""List, compare, promote, roll back and drop generations."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from evaluation.comparison import ComparisonRequest
from evaluation.promotion_gate import PromotionRequest, list_violations
from schemas.errors import InvalidRequest, PermanentError
from schemas.ports.log import EventLog
from schemas.principals import Principal
from services.generations.comparison import GenerationComparer
from services.generations.decisions import GenerationDecisions
from services.generations.removal import remove_generation
from sql.catalog.exams import PgCalibrations
from sql.index.generation_switch import SwitchResult, roll_back, switch_generation
from sql.index.generations import (
    PgGenerations,
    PgGenerationSummaries,
    no_live_generation_error,
    unknown_generation_error,
)
from sql.pool import Pool


@dataclass(frozen=True, slots=True)
class GenerationService:
    pool: Pool
    log: EventLog
    decisions: GenerationDecisions
    comparer: GenerationComparer
    calibrations: PgCalibrations

    async def list_generations(self, caller: Principal) -> list[dict[str, Any]]:
        return await PgGenerationSummaries(self.pool).list_summaries(
            _resolve_visible_tenant(caller)
        )

    async def get_generation(self, caller: Principal, name: str) -> dict[str, Any]:
        """Raises NotFound."""
        summary = await PgGenerationSummaries(self.pool).get_summary(
            name, _resolve_visible_tenant(caller)
        )
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
        live = await self._fetch_live_name()
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
        summary = await PgGenerationSummaries(self.pool).get_summary(name, tenant)
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
        if expected_live is not None and expected_live != (live := await self._fetch_live_name()):
            remedy = "Roll back without a name, or promote a generation."
            raise InvalidRequest(
                f"{expected_live} is not live; {live} is.",
                code="GENERATION_NOT_LIVE",
                remedy=remedy,
            )
        return _format_switch(await roll_back(self.pool, self.decisions.publish_promoted), None)

    async def drop(self, name: str) -> dict[str, Any]:
        """Raises NotFound, PermanentError with code GENERATION_IS_LIVE."""
        return asdict(await remove_generation(self.pool, self.log, self.decisions, name))

    async def _fetch_live_name(self) -> str:
        live = await PgGenerations(self.pool).fetch_live()
        if live is None:
            raise no_live_generation_error()
        return live.name


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
