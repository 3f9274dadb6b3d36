"""API keys and their permissions, without their secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from schemas.models import Described
from schemas.principals import Role
from schemas.timestamps import Timestamp
from schemas.values import Value

MAX_GROUPS = 100
PlainName = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f]{1,200}$")]
"""A user or group name, without its prefix."""
KEY_ID_PATTERN = r"^[0-9a-f]{16}$"
MAX_GRACE_S = 30 * 86_400


class ApiKeyRequest(Value):
    """An API key to create."""

    name: str = Field(min_length=1, max_length=200, description="Purpose of the key.")
    role: Role = "reader"
    """Role of the key. Cannot exceed the caller's own role."""
    user: PlainName | None = None
    """Limit the key to documents that this user may read."""
    groups: list[PlainName] = Field([], max_length=MAX_GROUPS)
    """Also allow documents that these groups may read."""
    expires_at: Timestamp | None = None
    """When the key expires. Null never expires. UTC if no time zone is given."""

    def readers(self) -> tuple[str, ...] | None:
        """Return the names that are matched against a document's readers. None means no limit."""
        if self.user is None and not self.groups:
            return None
        return (
            *([f"user:{self.user}"] if self.user else []),
            *(f"group:{group}" for group in self.groups),
        )


class RotationRequest(Value):
    """Replace the secret of an API key."""

    grace_s: int = Field(0, ge=0, le=MAX_GRACE_S)
    """Seconds for which the previous secret stays valid. 0 revokes it immediately."""


class ApiKey(Described):
    """An API key without its secret, which is shown only at creation."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Id of the key: the part between `ab_` and the secret.")
    tenant: str = Field(description="Tenant that the key gives access to.")
    name: str = Field(description="Purpose of the key.")
    role: Role = Field(description="Role of the key.")
    readers: list[str] | None
    """Users and groups whose documents the key may read. Null allows every document of the tenant.
    """
    created_at: datetime = Field(description="When the key was created.")
    created_by: str = Field(description="Id of the caller that created the key.")
    expires_at: datetime | None = Field(description="When the key expires. Null never expires.")
    rotated_at: datetime | None = Field(description="When the secret was last rotated.")
    previous_until: datetime | None
    """Until when the secret before the last rotation stays valid."""
    revoked_at: datetime | None = Field(description="When the key was revoked.")


class IssuedApiKey(ApiKey):
    """A new or rotated API key, with its secret."""

    key: str
    """The complete key. It is shown once and cannot be retrieved again."""


class Identity(Described):
    """The authenticated caller."""

    id: str
    """`local` for the embedded token, `key:<key id>` for an API key, `jwt:<subject>` for a JSON Web
    Token.
    """
    tenant: str = Field(description="Tenant that the caller acts for.")
    role: Role = Field(description="Role of the caller.")
    readers: list[str] | None
    """Users and groups whose documents the caller may read. Null allows every document of the
    tenant.
    """
