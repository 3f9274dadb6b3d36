"""Sources: tables, folders and URLs that documents are read from."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field

from api.operations import OperationRoute, operation
from api.services import ServicesDep, WholeTenant
from schemas.responses import Page, ResponseModel, Time
from schemas.sources import SourceRequest

router = APIRouter(route_class=OperationRoute, tags=["sources"])
SourceName = Annotated[str, Path(max_length=255)]


class SourceStatus(ResponseModel):
    """The last report of the worker that reads the source. Each kind of source adds fields."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": True})

    state: str = Field(description="Such as starting, running or failed.")


class Source(SourceRequest):
    """A source with its progress."""

    kind: str
    ce_source: str
    epoch: int = Field(description="Counts the restarts of its sequence numbers.")
    state: str
    documents: int
    pending: int = Field(description="Rows whose latest change is not emitted yet.")
    incomplete: int = Field(description="Rows whose latest state is not known yet.")
    last_change_at: Time | None
    status: SourceStatus


class AddedSource(ResponseModel):
    status: Literal["accepted"]
    name: str
    ce_source: str


class ResetSource(ResponseModel):
    status: Literal["accepted"]
    name: str
    epoch: int
    begins: dict[int, int] = Field(description="First offset of the new epoch, by partition.")


class RemovedSource(ResponseModel):
    status: Literal["accepted"]
    name: str
    documents: int
    withdrawn: int


@router.get("/sources", operation_id="list_sources")
@operation("admin")
async def list_sources(services: ServicesDep, caller: WholeTenant) -> Page[Source]:
    """List sources."""
    return Page[Source].build(await services.sources.list_sources(caller.tenant))


@router.post("/sources", status_code=202, operation_id="add_source")
@operation(
    "admin",
    problems="422 DSN_IN_REQUEST FORBIDDEN_FOLDER FORBIDDEN_TABLE NEEDS_KAFKA PASSWORD_IN_LOG "
    "RELATIVE_PATH SOURCE_EXISTS",
    audit=("source.added", "{name}"),
)
async def add_source(
    source: SourceRequest, services: ServicesDep, caller: WholeTenant
) -> AddedSource:
    """Add a source. Its documents arrive once a worker has read the decision."""
    return AddedSource.model_validate(await services.sources.add_source(caller.tenant, source))


@router.post("/sources/reset", status_code=202, operation_id="reset_source")
@operation("admin", problems="404 NO_SUCH_SOURCE", audit=("source.reset", "{name}"))
async def reset_source(
    name: Annotated[str, Query(min_length=1, max_length=1024)],
    services: ServicesDep,
    caller: WholeTenant,
) -> ResetSource:
    """Accept new sequence numbers after the source's database was restored.

    Numbers from now on order after all earlier ones. `name` may also be the ce_source of a producer
    that writes for this tenant only; others require an operator.
    """
    return ResetSource.model_validate(await services.sources.reset_source(caller, name))


@router.get("/sources/{name}", operation_id="get_source")
@operation("admin", problems="404 NO_SUCH_SOURCE")
async def get_source(name: SourceName, services: ServicesDep, caller: WholeTenant) -> Source:
    """Get a source."""
    return Source.model_validate(await services.sources.get_source(caller.tenant, name))


@router.delete("/sources/{name}", status_code=202, operation_id="remove_source")
@operation("admin", problems="404 NO_SUCH_SOURCE", audit=("source.removed", "{name}"))
async def remove_source(
    name: SourceName, services: ServicesDep, caller: WholeTenant, withdraw: bool = False
) -> RemovedSource:
    """Stop reading the source. Its documents stay, unless `withdraw` is set."""
    return RemovedSource.model_validate(
        await services.sources.remove_source(caller.tenant, name, withdraw=withdraw)
    )
