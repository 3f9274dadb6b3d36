"""Decisions about what documents are taken from: topic `control`."""

from __future__ import annotations

from pydantic import Field

from schemas.events.envelope import EventData
from schemas.sources import SequenceReset, SourceSpec


class SourceAdded(EventData, name="source.added", topic="control"):
    """Documents come from here too. `epoch` is above that of an earlier source of the same name, so that what was withdrawn with it comes back."""

    source: SourceSpec
    epoch: int = 1


class SourceRemoved(EventData, name="source.removed", topic="control"):
    """Nothing is read from this source any more. Its documents stay, unless `withdraw`."""

    source: str
    withdraw: bool = False
    tenant: str | None = Field(None, description="whose source it is")


class SourceReset(EventData, name="source.reset", topic="control"):
    """The numbers of a source begin anew: its database was restored. `source` is its name, or the ce_source of another producer that numbers its changes."""

    source: str
    reset: SequenceReset
    tenant: str | None = Field(None, description="whose source it is")


EVENTS: tuple[type[EventData], ...] = (SourceAdded, SourceRemoved, SourceReset)
