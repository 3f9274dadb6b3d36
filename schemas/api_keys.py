"""API keys: what they allow, without their secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from schemas.roles import Role
from schemas.timestamps import Timestamp

MAX_GROUPS = 100
PlainName = Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f\x7f]{1,200}$")]
"""A user or a group, without its prefix."""
KEY_ID_PATTERN = r"^[0-9a-f]{16}$"
MAX_GRACE_S = 30 * 86_400


class ApiKeyRequest(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="what the key is for")
    role: Role = Field("reader", description="never above the caller's own")
    user: PlainName | None = Field(None, description="the key reads only documents that this user may read")
    groups: list[PlainName] = Field([], max_length=MAX_GROUPS, description="and those that these groups may read")
    expires_at: Timestamp | None = Field(None, description="null: until it is revoked; UTC where no zone is given")

    def readers(self) -> tuple[str, ...] | None:
        """Names that a document's readers are matched with; None where the key is not limited."""
        if self.user is None and not self.groups:
            return None
        return (*([f"user:{self.user}"] if self.user else []), *(f"group:{group}" for group in self.groups))


class RotationRequest(BaseModel):
    """A new secret for a key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_s: int = Field(0, ge=0, le=MAX_GRACE_S, description="so long the old secret stays valid; 0: it is refused at once")


class ApiKey(BaseModel):
    """A key as it is listed. Its secret is shown once, when it is made."""

    model_config = ConfigDict(frozen=True)

    id: str
    tenant: str
    name: str
    role: Role
    readers: list[str] | None = Field(description="null: every document of the tenant")
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    rotated_at: datetime | None
    previous_until: datetime | None = Field(description="so long the secret before the last rotation is valid")
    revoked_at: datetime | None


class IssuedApiKey(ApiKey):
    """A key just made or rotated, with its secret."""

    key: str = Field(description="the whole key; it is shown once and cannot be read again")


class Identity(BaseModel):
    """Who calls, as `GET /v1/whoami` says."""

    id: str
    tenant: str
    role: Role
    readers: list[str] | None = Field(description="null: every document of the tenant")
