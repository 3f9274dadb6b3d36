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
class Linked:
    """What a link opens: the bytes of one revision. Those of a later one need another link."""

    tenant: str
    document: UUID
    revision: int


@dataclass(frozen=True, slots=True)
class Links:
    """All replicas that share the secret accept each other's links."""

    secret: bytes

    def sign(self, linked: Linked, expires: int) -> str:
        """`expires` is in seconds since 1970."""
        return hmac.new(self.secret, json.dumps([linked.tenant, str(linked.document), linked.revision, expires]).encode(), hashlib.sha256).hexdigest()

    def check(self, linked: Linked, expires: int, signature: str, now: datetime) -> None:
        """Raises InvalidRequest with code LINK_EXPIRED or LINK_FORGED."""
        remedy = "Ask for a new link with GET /v1/documents/{id}/file?signed=true."
        if not hmac.compare_digest(self.sign(linked, expires).encode(), signature.encode()):
            raise InvalidRequest("this link was not made here", code="LINK_FORGED", remedy=remedy)
        if expires < now.timestamp():
            raise InvalidRequest(f"this link expired at {datetime.fromtimestamp(expires, UTC).isoformat()}", code="LINK_EXPIRED", remedy=remedy)
