"""Experiments with two profiles on live questions."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from api.operations import OperationRoute, operation
from api.services import ServicesDep, WholeTenant
from schemas.experiments import ExperimentReport, ExperimentRequest
from schemas.responses import Page

router = APIRouter(route_class=OperationRoute, prefix="/experiments", tags=["experiments"])


@router.get("", operation_id="list_experiments")
@operation("reader")
async def list_experiments(services: ServicesDep, caller: WholeTenant) -> Page[ExperimentReport]:
    """List experiments with their outcomes, the latest first."""
    return Page[ExperimentReport].build(await services.experiments.list_reports(caller))


@router.post("", status_code=201, operation_id="start_experiment")
@operation(
    "admin",
    problems="422 EXPERIMENT_RUNNING UNKNOWN_PROFILE",
    audit=("experiment.started", "{experiment_id}"),
)
async def start_experiment(
    body: ExperimentRequest, services: ServicesDep, caller: WholeTenant
) -> ExperimentReport:
    """Let a candidate answer a share of the questions that name no profile and get the control.

    Equal questions, and all questions of a conversation, get the same arm.
    """
    return await services.experiments.start(caller, body)


@router.get("/{experiment}", operation_id="get_experiment")
@operation("reader", problems="404 NOT_FOUND")
async def get_experiment(
    experiment: UUID, services: ServicesDep, caller: WholeTenant
) -> ExperimentReport:
    """Get an experiment: useful answers of each arm by feedback, and what a decision needs."""
    return await services.experiments.get_report(caller, experiment)


@router.post("/{experiment}/stop", operation_id="stop_experiment")
@operation("admin", problems="404 NOT_FOUND", audit=("experiment.stopped", "{experiment}"))
async def stop_experiment(
    experiment: UUID, services: ServicesDep, caller: WholeTenant
) -> ExperimentReport:
    """Stop an experiment. All its questions get the control from then on."""
    return await services.experiments.stop(caller, experiment)
