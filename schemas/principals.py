"""The caller of the API, as authentication established it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Role = Literal["reader", "writer", "admin", "operator"]
ROLES: tuple[Role, ...] = ("reader", "writer", "admin", "operator")
"""In ascending order: each role may do everything that the roles before it may do. Only an operator may act for another tenant."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, for which tenant, and with which role. Tenant and role come from the credential, never from the request."""

    id: str
    """`local` for the embedded token, `key:<key id>` for an API key, `jwt:<subject>` for a JSON Web Token."""
    tenant: str
    role: Role = "reader"
    readers: tuple[str, ...] | None = None
    """Names such as `user:ana` and `group:finance` that a document's readers are matched with. None sees every document of the tenant."""

    def has_role(self, needed: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(needed)


class Authenticator(Protocol):
    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        """Return the caller that the bearer credential names.

        `tenant` is the tenant that an operator asks to act for (header `X-Anabranch-Tenant`), else None.
        Raises Unauthenticated for a missing, unknown, revoked or expired credential, Forbidden where the caller may not act for the tenant.
        """
