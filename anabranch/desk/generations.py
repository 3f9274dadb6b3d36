"""Generations as people handle them: look, compare, promote, roll back, drop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from anabranch.desk.comparing import Comparing
from anabranch.desk.decisions import Decisions
from anabranch.desk.dropping import drop_generation
from evaluation.comparing import ComparisonRequest
from evaluation.gate import PromotionRequest, reasons_against
from schemas.errors import InvalidRequest, NotFound
from schemas.ports.log import EventLog
from schemas.principals import Principal
from sql.generations import PgGenerations
from sql.generations_told import PgGenerationsTold
from sql.pool import Pool
from sql.switching import Switched, roll_back, switch


@dataclass(frozen=True, slots=True)
class GenerationDesk:
    """`api.services.GenerationDesk`."""

    pool: Pool
    log: EventLog
    decisions: Decisions
    comparing: Comparing

    async def all(self, caller: Principal) -> list[dict[str, Any]]:
        return await PgGenerationsTold(self.pool).all(_tenant_shown(caller))

    async def one(self, caller: Principal, name: str) -> dict[str, Any]:
        found = await PgGenerationsTold(self.pool).one(name, _tenant_shown(caller))
        if found is None:
            raise _unknown(name)
        return found

    async def compare(self, tenant: str, a: str, b: str, wanted: ComparisonRequest) -> dict[str, Any]:
        return await self.comparing.compare(tenant, a, b, wanted)

    async def promote(self, tenant: str, name: str, wanted: PromotionRequest) -> dict[str, Any]:
        """With a gate: only where it holds."""
        if wanted.gate is None:
            return _told(await switch(self.pool, name, self.decisions.promoted), None)
        live = await self._live()
        report = await self.comparing.compare(tenant, live, name, wanted.comparison)
        against = [f"{name} is the one that answers"] if live == name else reasons_against(wanted.gate, report)
        if against:
            return {"generation": name, "previous": None, "promoted": False, "reasons": against, "comparison": report}
        return _told(await switch(self.pool, name, self.decisions.promoted, over=live), report)

    async def roll_back(self, expected: str | None) -> dict[str, Any]:
        if expected is not None and expected != (live := await self._live()):
            remedy = "Roll back without a name, or promote the one that is to answer."
            raise InvalidRequest(f"{expected} does not answer, {live} does", code="GENERATION_NOT_LIVE", remedy=remedy)
        return _told(await roll_back(self.pool, self.decisions.promoted), None)

    async def drop(self, name: str) -> dict[str, Any]:
        return asdict(await drop_generation(self.pool, self.log, self.decisions, name))

    async def _live(self) -> str:
        live = await PgGenerations(self.pool).live()
        if live is None:
            raise NotFound("no generation answers yet", remedy="Start a worker: it makes the first one.")
        return live.name


def _tenant_shown(caller: Principal) -> str | None:
    """Tables hold all tenants side by side: what they hold in all is for operators."""
    return None if caller.has_role("operator") else caller.tenant


def _told(switched: Switched, report: dict[str, Any] | None) -> dict[str, Any]:
    return {"generation": switched.generation, "previous": switched.previous, "promoted": True, "reasons": [], "comparison": report}


def _unknown(name: str) -> NotFound:
    return NotFound(f"no generation {name!r}", code="NO_SUCH_GENERATION", remedy="`anabranch generations list` shows them.")
