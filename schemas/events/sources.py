"""Sources of documents: topic `control`."""

from __future__ import annotations

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.sources import SequenceReset, SourceSpec
from schemas.topics import CONTROL


class SourceAdded(EventData, name="source.added", topic=CONTROL):
    """A source was added."""

    source: SourceSpec = Field(description="The source and its settings.")
    epoch: int = Field(
        1,
        description="Greater than the epoch of an earlier source of the same name, so that withdrawn documents can return.",
    )


class SourceRemoved(EventData, name="source.removed", topic=CONTROL):
    """A source was removed. Its documents stay unless `withdraw` is set."""

    source: str = Field(description="Name of the source.")
    withdraw: bool = Field(False, description="Withdraw all documents of the source.")
    tenant: str | None = Field(None, description="Tenant of the source.")


class SourceReset(EventData, name="source.reset", topic=CONTROL):
    """The sequence numbers of a source restart, because its database was restored."""

    source: str = Field(
        description="Name of the source, or the ce_source of an external producer that numbers its changes."
    )
    reset: SequenceReset
    tenant: str | None = Field(None, description="Tenant of the source.")


EVENTS: tuple[type[EventData], ...] = (SourceAdded, SourceRemoved, SourceReset)
