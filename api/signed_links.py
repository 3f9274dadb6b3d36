"""Expiring links for blob stores that cannot sign their own.

The signature is an HMAC-SHA256 (RFC 2104) over target and expiry.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from itsdangerous import Signer

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

    @property
    def _signer(self) -> Signer:
        return Signer(self.secret, salt="link", key_derivation="hmac", digest_method=hashlib.sha256)

    def sign(self, target: LinkTarget, expires_at_s: int) -> str:
        """Return the signature. `expires_at_s` is a Unix time."""
        return self._signer.get_signature(_format_claims(target, expires_at_s)).decode()

    def verify(self, target: LinkTarget, expires_at_s: int, signature: str, now: datetime) -> None:
        """Raises InvalidRequest with code LINK_EXPIRED or LINK_FORGED."""
        remedy = "Get a new link from GET /v1/documents/{id}/file?signed=true."
        # The signature first: the expiry of a forged link means nothing.
        if not self._signer.verify_signature(_format_claims(target, expires_at_s), signature):
            raise InvalidRequest("Invalid link signature.", code="LINK_FORGED", remedy=remedy)
        if expires_at_s < now.timestamp():
            raise InvalidRequest(
                f"The link expired at {datetime.fromtimestamp(expires_at_s, UTC).isoformat()}.",
                code="LINK_EXPIRED",
                remedy=remedy,
            )


def _format_claims(target: LinkTarget, expires_at_s: int) -> bytes:
    return json.dumps(
        [target.tenant, str(target.document_id), target.revision, expires_at_s]
    ).encode()
