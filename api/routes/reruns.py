"""Past questions, answered again and compared."""

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

    other: UUID | None = Field(None, description="a run to compare with; without one the question is asked now, as a run of its own")


@router.post("/runs/{run}/rerun", operation_id="rerun_run")
async def rerun_run(run: UUID, services: ServicesDep, caller: Caller) -> dict[str, Any]:
    """The answer made again as it was, from its recorded candidates, numbers and passages: `{run_id, kind, same, differences[], missing[], response}`.
    No model and no index is asked. 404 where a passage that it was read from is gone."""
    return await services.run_history.rerun(caller, run)


@router.post("/runs/{run}/diff", operation_id="diff_run")
async def diff_run(run: UUID, body: RunDiffRequest, services: ServicesDep, caller: Caller) -> RunDiff:
    """What is different now, or in another run: passages that moved, came and went, the answer, and why."""
    return await services.run_history.diff_run(caller, run, body.other)
