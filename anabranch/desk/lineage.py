"""Lineage of documents and of answers, by the tables, the log and the blobs of this system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from anabranch.desk.history import Runs
from retrieval.lineage.prov import document_prov, run_prov
from retrieval.lineage.runs import run_lineage
from retrieval.lineage.walk import Walk
from schemas.errors import NotFound
from schemas.lineage import DocumentLineage, RunLineage
from schemas.principals import Principal


@dataclass(frozen=True, slots=True)
class Lineage:
    """See `api.tracing.Lineage`."""

    walk: Walk
    runs: Runs

    async def of_document(self, caller: Principal, document_id: UUID) -> DocumentLineage:
        return await self.walk.document(caller, document_id)

    async def of_run(self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None) -> RunLineage:
        row = await self.runs.run(caller, run_id)
        if row is None:
            raise NotFound(f"no run {run_id}", remedy="It may not have reached the log yet; `anabranch runs list` shows those that have.")
        return await run_lineage(self.walk, caller, row, sentence=sentence, citation=citation)

    def prov(self, found: DocumentLineage | RunLineage) -> dict[str, Any]:
        return run_prov(found) if isinstance(found, RunLineage) else document_prov(found)
