"""Administrative actions: topic `control`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.roles import Role
from schemas.topics import CONTROL


class AuditRecorded(EventData, name="audit.recorded", topic=CONTROL):
    """A caller performed an action that requires an administrator or an operator.

    The event contains no secrets.
    """

    audit_id: UUID
    who: str = Field(
        description=(
            "Caller: `local`, `key:<key id>`, `jwt:<subject>`, or `cli:<account>` for a command with direct database access."
        )
    )
    role: Role = Field(description="Role of the caller.")
    what: str = Field(description="The action, such as `source.added`.")
    subject: str | None = Field(None, description="What the action applied to.")
    tenant: str
    at: datetime
    request_id: str | None = None
    outcome: str = Field("done", description="`done`, or the code of the error.")


EVENTS: tuple[type[EventData], ...] = (AuditRecorded,)
