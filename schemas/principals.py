"""The authenticated caller of the API, its role and its tenant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator, Field

from schemas.errors import Forbidden, InvalidRequest

AuditOutcome = Literal["done", "refused", "failed"]
Role = Literal["reader", "writer", "admin", "operator"]
ROLES: tuple[Role, ...] = ("reader", "writer", "admin", "operator")
"""In ascending order: each role includes the permissions of the roles before it. Only an operator
may act for another tenant.
"""


MAX_TENANT_LENGTH = 64
_UUID_PATTERN = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TENANT_PATTERN = (
    rf"^(?!uploads$)(?!{_UUID_PATTERN}$)[a-z0-9][a-z0-9._-]{{0,{MAX_TENANT_LENGTH - 1}}}$"
)
"""Tenants are folders of the blob store. `uploads` and UUIDs are reserved for other folders; lower
case keeps names distinct on file systems that ignore case.
"""


def is_valid_tenant(name: str) -> bool:
    return re.fullmatch(_TENANT_PATTERN, name) is not None


def _validate_tenant(name: str) -> str:
    if not is_valid_tenant(name):
        raise ValueError(
            f"invalid tenant {name!r}: use 1 to {MAX_TENANT_LENGTH} characters of a-z, 0-9, '.', "
            "'_' and '-', beginning with a letter or digit; 'uploads' and UUIDs are reserved"
        )
    return name


Tenant = Annotated[
    str,
    AfterValidator(_validate_tenant),
    Field(
        min_length=1, max_length=MAX_TENANT_LENGTH, json_schema_extra={"pattern": _TENANT_PATTERN}
    ),
]
"""The owner of a document. The name is a folder of the blob store."""

ReaderScope = Sequence[str] | None
"""Reader names of a caller. None may read every document of its tenant."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller, its tenant and its role. Both come from the credential, not the request."""

    id: str
    """`local` for the embedded token, `key:<key id>` for an API key, `jwt:<subject>` for a JSON Web
    Token.
    """
    tenant: str
    role: Role = "reader"
    readers: tuple[str, ...] | None = None
    """Names such as `user:ana` and `group:finance`, matched against a document's readers. None
    reads every document.
    """

    home_tenant: str | None = None
    """The credential's own tenant, when an operator acts for another one."""

    def has_role(self, required_role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(required_role)

    def for_tenant(self, tenant: str | None) -> Principal:
        """Return this caller acting for the named tenant.

        Raises Forbidden unless it is its own tenant or the caller is an operator.
        """
        if tenant is None or tenant == self.tenant:
            return self
        if not is_valid_tenant(tenant):
            raise InvalidRequest(
                f"Invalid tenant name {tenant[:100]!r}.",
                remedy="Correct the header X-Anabranch-Tenant.",
            )
        if self.role != "operator":
            raise Forbidden(
                f"The role {self.role!r} may not act for tenant {tenant!r}.",
                code="FORBIDDEN_TENANT",
                remedy=(
                    "Omit the header X-Anabranch-Tenant (--tenant), or use an operator's "
                    "credential."
                ),
            )
        return replace(self, tenant=tenant, home_tenant=self.tenant)


class Authenticator(Protocol):
    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        """Return the caller that the bearer credential identifies.

        `tenant` is the tenant that an operator wants to act for (header `X-Anabranch-Tenant`), else
        None. Raises Unauthenticated for a missing, unknown, revoked or expired credential, and
        Forbidden if the caller may not act for the tenant.
        """
