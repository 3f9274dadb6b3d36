"""Where documents and answers came from, verified at every hop."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from api.access import Caller, Use
from schemas.lineage import DocumentLineage, RunLineage

router = APIRouter(tags=["lineage"])
PROV = "application/provenance+json"
Shape = Annotated[Literal["json", "prov"], Query(alias="format", description="`prov`: PROV-JSON of the W3C")]
Number = Annotated[int | None, Query(ge=1, le=1000)]
RESPONSES: dict[int | str, dict[str, Any]] = {200: {"content": {PROV: {"schema": {"type": "object"}}}}}


@router.get("/documents/{document}/lineage", operation_id="document_lineage", response_model=DocumentLineage, responses=RESPONSES)
async def of_document(document: UUID, use: Use, caller: Caller, shape: Shape = "json") -> DocumentLineage | JSONResponse:
    """From the uploaded bytes over every event to what is searched: each read again at its own place and compared."""
    found = await use.lineage.of_document(caller, document)
    return found if shape == "json" else JSONResponse(use.lineage.prov(found), media_type=PROV)


@router.get("/runs/{run}/lineage", operation_id="run_lineage", response_model=RunLineage, responses=RESPONSES)
async def of_run(run: UUID, use: Use, caller: Caller, sentence: Number = None, citation: Number = None, shape: Shape = "json") -> RunLineage | JSONResponse:
    """From each citation (or those of one sentence of the answer) back to the uploaded bytes. `broken` names every place where something does not fit."""
    found = await use.lineage.of_run(caller, run, sentence=sentence, citation=citation)
    return found if shape == "json" else JSONResponse(use.lineage.prov(found), media_type=PROV)
