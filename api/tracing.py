"""What the routes ask about the past: runs again, where things came from, what happens."""

from __future__ import annotations

from typing import Any, Protocol
from uuid import UUID

from schemas.lineage import DocumentLineage, RunLineage
from schemas.principals import Principal
from schemas.run_diffs import RunDiff


class History(Protocol):
    """Raises NotFound for a run that is not there, or of which too little was recorded."""

    async def rerun(self, caller: Principal, run_id: UUID) -> dict[str, Any]: ...

    async def diff(self, caller: Principal, run_id: UUID, other: UUID | None) -> RunDiff: ...


class Lineage(Protocol):
    """Raises NotFound for what is not known, TransientError where log, tables or blobs are away."""

    async def of_document(self, caller: Principal, document_id: UUID) -> DocumentLineage: ...

    async def of_run(self, caller: Principal, run_id: UUID, *, sentence: int | None, citation: int | None) -> RunLineage: ...

    def prov(self, found: DocumentLineage | RunLineage) -> dict[str, Any]:
        """As PROV-JSON."""
