"""Lineage of documents and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retrieval.lineage.prov import build_document_prov, build_run_prov
from retrieval.lineage.run_lineage import trace_run
from retrieval.lineage.tracer import LineageTracer
from schemas.errors import unknown_run_error
from schemas.lineage import DocumentLineage, RunLineage
from schemas.principals import Principal
from services.query.run_history import RunLookup


@dataclass(frozen=True, slots=True)
class LineageService:
    tracer: LineageTracer
    runs: RunLookup

    async def get_document_lineage(self, caller: Principal, document_id: UUID) -> DocumentLineage:
        return await self.tracer.trace_document(caller, document_id)

    async def get_run_lineage(
        self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None
    ) -> RunLineage:
        row = await self.runs.get_run(caller, run_id)
        if row is None:
            raise unknown_run_error(run_id)
        return await trace_run(self.tracer, caller, row, sentence=sentence, citation=citation)

    def to_prov(self, lineage: DocumentLineage | RunLineage) -> dict[str, Any]:
        return (
            build_run_prov(lineage)
            if isinstance(lineage, RunLineage)
            else build_document_prov(lineage)
        )
