"""Links that expire, for stores that cannot sign their own: the tenant, the document, its revision and the moment of expiry, under an HMAC-SHA256 (RFC 2104)."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from schemas.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """What a link opens: the bytes of one revision. Those of a later one need another link."""

    tenant: str
    document_id: UUID
    revision: int


@dataclass(frozen=True, slots=True)
class LinkSigner:
    """All replicas that share the secret accept each other's links."""

    secret: bytes

    def sign(self, target: LinkTarget, expires_at_s: int) -> str:
        """`expires` is in seconds since 1970."""
        return hmac.new(self.secret, json.dumps([target.tenant, str(target.document_id), target.revision, expires_at_s]).encode(), hashlib.sha256).hexdigest()

    def verify(self, target: LinkTarget, expires_at_s: int, signature: str, now: datetime) -> None:
        """Raises InvalidRequest with code LINK_EXPIRED or LINK_FORGED."""
        remedy = "Ask for a new link with GET /v1/documents/{id}/file?signed=true."
        if not hmac.compare_digest(self.sign(target, expires_at_s).encode(), signature.encode()):
            raise InvalidRequest("this link was not made here", code="LINK_FORGED", remedy=remedy)
        if expires_at_s < now.timestamp():
            raise InvalidRequest(f"this link expired at {datetime.fromtimestamp(expires_at_s, UTC).isoformat()}", code="LINK_EXPIRED", remedy=remedy)
