"""Lineage of documents and answers, verified at every hop."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from api.operations import OperationRoute, operation
from api.services import Caller, Services, ServicesDep
from schemas.lineage import DocumentLineage, RunLineage

router = APIRouter(route_class=OperationRoute, tags=["lineage"])
PROV_MEDIA_TYPE = "application/provenance+json"
LineageFormat = Annotated[
    Literal["json", "prov"], Query(alias="format", description="`prov` returns PROV-JSON (W3C).")
]
OrdinalParameter = Annotated[int | None, Query(ge=1, le=1000)]
Records = dict[str, dict[str, Any]]


class ProvDocument(BaseModel):
    """PROV-JSON (W3C member submission): records by kind, then id."""

    prefix: dict[str, str] = Field(description="Namespaces of the ids.")
    entity: Records = {}
    activity: Records = {}
    agent: Records = {}


PROV_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {PROV_MEDIA_TYPE: {"schema": ProvDocument.model_json_schema()}}}
}


@router.get(
    "/documents/{document}/lineage",
    operation_id="document_lineage",
    response_model=DocumentLineage,
    responses=PROV_RESPONSES,
)
@operation("reader", problems="404 NOT_FOUND")
async def get_document_lineage(
    document: UUID, services: ServicesDep, caller: Caller, shape: LineageFormat = "json"
) -> DocumentLineage | JSONResponse:
    """Trace a document from the uploaded bytes through every event to the index.

    Each event is read again at its position and verified.
    """
    lineage = await services.lineage.get_document_lineage(caller, document)
    return lineage if shape == "json" else _to_prov_response(services, lineage)


@router.get(
    "/runs/{run}/lineage",
    operation_id="run_lineage",
    response_model=RunLineage,
    responses=PROV_RESPONSES,
)
@operation("reader", problems="404 NOT_FOUND RUN_ERASED")
async def get_run_lineage(
    run: UUID,
    services: ServicesDep,
    caller: Caller,
    sentence: OrdinalParameter = None,
    citation: OrdinalParameter = None,
    shape: LineageFormat = "json",
) -> RunLineage | JSONResponse:
    """Trace each citation, or those of one sentence, back to the uploaded bytes.

    `broken` lists every hop that failed verification.
    """
    lineage = await services.lineage.get_run_lineage(
        caller, run, sentence=sentence, citation=citation
    )
    return lineage if shape == "json" else _to_prov_response(services, lineage)


def _to_prov_response(services: Services, lineage: DocumentLineage | RunLineage) -> JSONResponse:
    return JSONResponse(services.lineage.to_prov(lineage), media_type=PROV_MEDIA_TYPE)
