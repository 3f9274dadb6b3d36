"""Ports of run history and lineage."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import UUID

from schemas.lineage import DocumentLineage, RunLineage
from schemas.principals import Principal
from schemas.run_records import RunDiff


class RunHistoryPort(Protocol):
    """Raises NotFound for an unknown or incompletely recorded run."""

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]: ...

    async def diff_run(
        self, caller: Principal, run_id: UUID, other_run_id: UUID | None
    ) -> RunDiff: ...


class LineagePort(Protocol):
    """Raises NotFound for unknown ids, TransientError when log, tables or blobs are unavailable."""

    async def get_document_lineage(
        self, caller: Principal, document_id: UUID
    ) -> DocumentLineage: ...

    async def get_run_lineage(
        self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None
    ) -> RunLineage: ...

    def to_prov(self, lineage: DocumentLineage | RunLineage) -> dict[str, Any]:
        """Format as PROV-JSON."""
