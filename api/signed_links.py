"""Expiring links for blob stores that cannot sign their own.

The signature is an HMAC-SHA256 (RFC 2104) over target and expiry.
"""

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
    """The file of one revision. A later revision needs a new link."""

    tenant: str
    document_id: UUID
    revision: int


@dataclass(frozen=True, slots=True)
class LinkSigner:
    """All replicas with the same secret accept each other's links."""

    secret: bytes

    def sign(self, target: LinkTarget, expires_at_s: int) -> str:
        """Return the signature. `expires_at_s` is a Unix time."""
        return hmac.new(
            self.secret,
            json.dumps(
                [target.tenant, str(target.document_id), target.revision, expires_at_s]
            ).encode(),
            hashlib.sha256,
        ).hexdigest()

    def verify(self, target: LinkTarget, expires_at_s: int, signature: str, now: datetime) -> None:
        """Raises InvalidRequest with code LINK_EXPIRED or LINK_FORGED."""
        remedy = "Get a new link from GET /v1/documents/{id}/file?signed=true."
        if not hmac.compare_digest(self.sign(target, expires_at_s).encode(), signature.encode()):
            raise InvalidRequest("Invalid link signature.", code="LINK_FORGED", remedy=remedy)
        if expires_at_s < now.timestamp():
            raise InvalidRequest(
                f"The link expired at {datetime.fromtimestamp(expires_at_s, UTC).isoformat()}.",
                code="LINK_EXPIRED",
                remedy=remedy,
            )
