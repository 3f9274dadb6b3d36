"""Administrative acts: topic `control`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.roles import Role


class AuditRecorded(EventData, name="audit.recorded", topic="control"):
    """Somebody did something that only an administrator or an operator may do. It holds no secret."""

    audit_id: UUID
    who: str = Field(description="`local`, `key:<key id>`, `jwt:<subject>`, or `cli:<account>` for a command with direct access to the database")
    role: Role
    what: str = Field(description="the act, such as `source.added`")
    subject: str | None = Field(None, description="what it was done to")
    tenant: str
    at: datetime
    request_id: str | None = None
    outcome: str = Field("done", description="`done`, or the code of the error")


EVENTS: tuple[type[EventData], ...] = (AuditRecorded,)
