"""Start and stop experiments, assign live questions to their arms, and report on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TypeVar
from uuid import UUID

from evaluation.exam import compute_share
from schemas.errors import InvalidRequest, unknown_resource_error
from schemas.events import ExperimentConfigured
from schemas.exams import ShareInterval
from schemas.experiments import (
    ARMS,
    ArmReport,
    Difference,
    Experiment,
    ExperimentReport,
    ExperimentRequest,
)
from schemas.principals import Principal
from schemas.questions import QueryRequest, SearchRequest
from services.publishing import EventPublisher
from services.query.service import ApplyDefaultProfile
from sql.catalog.profiles import PgExperiments

CE_SOURCE = "anabranch/api"
RequestT = TypeVar("RequestT", bound=SearchRequest)
POWER_FACTOR = 2 * (1.959964 + 0.841621) ** 2
"""Factor of a two-sided test at 5 % with a power of 80 %."""
MAX_VARIANCE = 0.25
"""Variance of a share of one half, which has the largest."""


@dataclass(frozen=True, slots=True)
class ExperimentService:
    tables: PgExperiments
    publisher: EventPublisher
    check_profile: Callable[[str], object]
    """Raises InvalidRequest for an unknown workflow profile."""
    apply_default_profile: ApplyDefaultProfile

    async def start(self, caller: Principal, request: ExperimentRequest) -> ExperimentReport:
        """Raises InvalidRequest for unknown or equal profiles, and with code EXPERIMENT_RUNNING if
        another one divides the same questions.
        """
        for profile in (request.control, request.candidate):
            self.check_profile(profile)
        if request.control == request.candidate:
            raise InvalidRequest(
                f"Control and candidate are both {request.control!r}.", remedy="Name two profiles."
            )
        async with self.tables.lock(f"experiments of {caller.tenant}"):
            for other in await self.tables.list_experiments(caller.tenant):
                if other.control == request.control and other.stopped_at is None:
                    raise InvalidRequest(
                        f"Experiment {other.experiment_id} already divides the questions of "
                        f"profile {request.control!r}.",
                        code="EXPERIMENT_RUNNING",
                        remedy="Stop it with `anabranch experiments stop`.",
                    )
            experiment = Experiment(
                experiment_id=self.publisher.fresh_id(),
                started_at=self.publisher.clock(),
                **request.model_dump(),
            )
            return await self._record(caller, experiment)

    async def stop(self, caller: Principal, experiment_id: UUID) -> ExperimentReport:
        """Stop it; all its questions get the control from then on. Repeating it has no effect."""
        experiment = await self._find(caller, experiment_id)
        if experiment.stopped_at is None:
            changes = {"stopped_at": self.publisher.clock()}
            return await self._record(caller, experiment.model_copy(update=changes))
        return await self._report(caller, experiment)

    async def get_report(self, caller: Principal, experiment_id: UUID) -> ExperimentReport:
        return await self._report(caller, await self._find(caller, experiment_id))

    async def list_reports(self, caller: Principal) -> list[ExperimentReport]:
        experiments = await self.tables.list_experiments(caller.tenant)
        return [await self._report(caller, experiment) for experiment in experiments]

    async def choose_profile(self, caller: Principal, request: RequestT) -> RequestT:
        """Return the request with the default profile of its collections, and with the profile of
        its arm if an experiment divides the questions of that profile.

        A question that names a profile takes part in none, and one whose candidate was deleted
        divides none.
        """
        applied = await self.apply_default_profile(caller, request)
        if "profile" in request.model_fields_set:
            return applied
        for experiment in await self.tables.fetch_running(caller.tenant):
            if experiment.control == applied.profile:
                with suppress(InvalidRequest):
                    self.check_profile(experiment.candidate)
                    arm = experiment.assign(_get_unit(request))
                    return applied.join_experiment(arm, getattr(experiment, arm.arm))
        return applied

    async def _find(self, caller: Principal, experiment_id: UUID) -> Experiment:
        for experiment in await self.tables.list_experiments(caller.tenant):
            if experiment.experiment_id == experiment_id:
                return experiment
        raise unknown_resource_error(
            "experiment", experiment_id, "List experiments with GET /v1/experiments."
        )

    async def _record(self, caller: Principal, experiment: Experiment) -> ExperimentReport:
        decision = ExperimentConfigured(tenant=caller.tenant, experiment=experiment)
        key = str(experiment.experiment_id)
        await self.publisher.publish(decision, CE_SOURCE, key, tenant=caller.tenant)
        # The rows that stage `control` will write, so that the next question sees them.
        await self.tables.write(decision)
        return await self._report(caller, experiment)

    async def _report(self, caller: Principal, experiment: Experiment) -> ExperimentReport:
        counts = await self.tables.count_outcomes(caller.tenant, experiment.experiment_id)
        return build_report(experiment, counts)


def _get_unit(request: SearchRequest) -> str:
    """Return what is assigned: a whole conversation by its first turn, else the question."""
    turns = request.history if isinstance(request, QueryRequest) else []
    return turns[0].text if turns else request.query


def build_report(
    experiment: Experiment, counts: Mapping[str, Mapping[str, int]]
) -> ExperimentReport:
    """Build the report from `runs`, `refused`, `judged` and `useful` by arm."""
    no_runs = dict.fromkeys(("runs", "refused", "judged", "useful"), 0)
    arms = [
        ArmReport(
            arm=arm,
            profile=getattr(experiment, arm),
            runs=found["runs"],
            refused=found["refused"],
            useful=ShareInterval(**compute_share(found["useful"], found["judged"])),
        )
        for arm, found in ((arm, counts.get(arm, no_runs)) for arm in ARMS)
    ]
    # Fixed from the start: a number that follows from the outcomes would be one more look at them.
    needed = ceil(POWER_FACTOR * MAX_VARIANCE / experiment.min_effect**2)
    missing = {arm.arm: max(0, needed - arm.useful.n) for arm in arms}
    difference = compare_arms(*(arm.useful for arm in arms))
    verdict = "collecting"
    if difference is not None and not any(missing.values()):
        is_better, is_worse = difference.low > 0, difference.high < 0
        verdict = "candidate" if is_better else "control" if is_worse else "no_difference"
    return ExperimentReport.model_validate(
        {
            **dict(experiment),
            "arms": arms,
            "difference": difference,
            "needed": needed,
            "missing": missing,
            "verdict": verdict,
        }
    )


def compare_arms(control: ShareInterval, candidate: ShareInterval) -> Difference | None:
    """Return the difference with Newcombe's interval from the two of Wilson (1998, method 10)."""
    bounds = [control.value, control.low, control.high]
    others = [candidate.value, candidate.low, candidate.high]
    if None in bounds or None in others:
        return None
    (p1, l1, u1), (p2, l2, u2) = (
        [float(bound or 0) for bound in part] for part in (bounds, others)
    )
    value = p2 - p1
    low = value - sqrt((p2 - l2) ** 2 + (u1 - p1) ** 2)
    high = value + sqrt((u2 - p2) ** 2 + (p1 - l1) ** 2)
    return Difference(value=round(value, 4), low=round(low, 4), high=round(high, 4))
