"""Rerun and compare past queries."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from api.dependencies import Caller, ServicesDep
from schemas.run_diffs import RunDiff

router = APIRouter(tags=["runs"])


class RunDiffRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    other: UUID | None = Field(
        None, description="Run to compare with. By default the query runs again now, as a new run."
    )


@router.post("/runs/{run}/rerun", operation_id="rerun_run")
async def rerun_run(run: UUID, services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """Rebuild the answer from its recorded candidates, numbers and passages.

    Returns `{run_id, kind, same, differences[], missing[], response}`. Calls no model and no index. 404 when
    a passage that the answer was read from no longer exists.
    """
    return await services.run_history.rerun(caller, run)


@router.post("/runs/{run}/diff", operation_id="diff_run")
async def diff_run(
    run: UUID, body: RunDiffRequest, services: ServicesDep, caller: Caller
) -> RunDiff:
    """Compare a run with now or with another run.

    Lists moved, removed and new passages, changes of the answer, and the reasons.
    """
    return await services.run_history.diff_run(caller, run, body.other)
