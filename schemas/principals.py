"""The caller of the API, as authentication established it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from schemas.errors import Forbidden, InvalidRequest
from schemas.events.raw import is_valid_tenant
from schemas.roles import ROLES, Role

ReaderScope = Sequence[str] | None
"""Names that a caller goes by. None: it may read every document of its tenant."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, for which tenant, and with which role. Tenant and role come from the credential, never from the request."""

    id: str
    """`local` for the embedded token, `key:<key id>` for an API key, `jwt:<subject>` for a JSON Web Token."""
    tenant: str
    role: Role = "reader"
    readers: tuple[str, ...] | None = None
    """Names such as `user:ana` and `group:finance` that a document's readers are matched with. None sees every document of the tenant."""

    home_tenant: str | None = None
    """The credential's own tenant, where an operator acts for another one."""

    def has_role(self, required_role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(required_role)

    def for_tenant(self, tenant: str | None) -> Principal:
        """Return this caller on behalf of the named tenant. Raises Forbidden unless it is an operator or the tenant its own."""
        if tenant is None or tenant == self.tenant:
            return self
        if not is_valid_tenant(tenant):
            raise InvalidRequest(f"{tenant[:100]!r} is not a valid tenant name.", remedy="Correct the header X-Anabranch-Tenant.")
        if self.role != "operator":
            raise Forbidden(
                f"The role {self.role!r} may not act for another tenant.",
                code="FORBIDDEN_TENANT",
                remedy="Leave out the header X-Anabranch-Tenant (--tenant), or use an operator's credential.",
            )
        return replace(self, tenant=tenant, home_tenant=self.tenant)


class Authenticator(Protocol):
    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        """Return the caller that the bearer credential names.

        `tenant` is the tenant that an operator asks to act for (header `X-Anabranch-Tenant`), else None.
        Raises Unauthenticated for a missing, unknown, revoked or expired credential, Forbidden where the caller may not act for the tenant.
        """
