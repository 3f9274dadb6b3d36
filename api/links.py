"""Links that expire, for stores that cannot sign their own: the document, the moment of expiry, and an HMAC-SHA256 of both (RFC 2104)."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from schemas.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Links:
    """All replicas that share the secret accept each other's links."""

    secret: bytes

    def sign(self, document: UUID, expires: int) -> str:
        """`expires` is in seconds since 1970."""
        return hmac.new(self.secret, f"{document} {expires}".encode(), hashlib.sha256).hexdigest()

    def check(self, document: UUID, expires: int, signature: str, now: datetime) -> None:
        """Raises InvalidRequest with code LINK_EXPIRED or LINK_FORGED."""
        remedy = "Ask for a new link with GET /v1/documents/{id}/file?signed=true."
        if not hmac.compare_digest(self.sign(document, expires).encode(), signature.encode()):
            raise InvalidRequest("this link was not made here", code="LINK_FORGED", remedy=remedy)
        if expires < now.timestamp():
            raise InvalidRequest(f"this link expired at {datetime.fromtimestamp(expires, UTC).isoformat()}", code="LINK_EXPIRED", remedy=remedy)
