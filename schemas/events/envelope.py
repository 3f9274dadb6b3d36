"""How an event is declared, and what surrounds it once it is a fact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

from schemas.records import Position
from schemas.values import BlobRef

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""The payload of one major version as the next has it. Pure: an event says the same whenever it is read."""


class EventData(BaseModel):
    """The data of a fact. Subclasses give the name, major version and topic in their class line: `class X(Event, name="document.x", topic="raw")`.
    Whoever raises the version adds to `upcasts`: older version → what makes it one of the next. What is in the log is never rewritten."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: ClassVar[str]
    version: ClassVar[int]
    topic: ClassVar[str]
    upcasts: ClassVar[Mapping[int, Upcast]]

    def __init_subclass__(cls, *, name: str = "", topic: str = "", version: int = 1, upcasts: Mapping[int, Upcast] | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[arg-type]
        if name:
            cls.name, cls.topic, cls.version, cls.upcasts = name, topic, version, upcasts or {}
            if missing := set(range(1, version)) - set(cls.upcasts):
                raise TypeError(f"{cls.event_type()} has no upcast from version {', '.join(map(str, sorted(missing)))}")

    @classmethod
    def event_type(cls) -> str:
        """The CloudEvents type: name and major version, such as `document.chunked.v1`."""
        return f"{cls.name}.v{cls.version}"

    @classmethod
    def upcast_payload(cls, payload: dict[str, Any], version: int) -> dict[str, Any]:
        """The payload of an older version as this one has it, step by step."""
        for from_version in range(version, cls.version):
            payload = cls.upcasts[from_version](payload)
        return payload


FOREIGN_BLOB = "foreign_blob"


def check_blob_prefix(data: EventData, prefix: str) -> None:
    """Raises PydanticCustomError of type FOREIGN_BLOB where the event names bytes that do not lie under `prefix`."""
    for name in data.model_fields_set:
        blob = getattr(data, name)
        if isinstance(blob, BlobRef) and (not blob.key.startswith(prefix) or ".." in blob.key.split("/")):
            raise PydanticCustomError(FOREIGN_BLOB, "{name} {key} does not lie under {prefix}", {"name": name, "key": blob.key, "prefix": prefix})


DataT = TypeVar("DataT", bound=EventData, covariant=True)


@dataclass(frozen=True, slots=True)
class Event(Generic[DataT]):
    """An event with its envelope. `id` is internal (see `schemas.ids`); `source` and `event_id` are what the producer wrote."""

    id: UUID
    data: DataT
    source: str
    event_id: str
    time: datetime | None
    tenant: str | None = None
    document_id: UUID | None = None
    pipeline_fingerprint: str | None = None
    causation_id: UUID | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    sequence: int | None = None
    """CloudEvents' Sequence extension, where the source numbers its changes."""
    epoch: int | None = None
    """Of the sequence, where the source says that its numbers began anew; a later one wins, whatever the numbers are."""
    step: int = 0
    """A correction of what was said under the same number of the sequence."""
    key: UUID | None = None
    """What its payload was sealed with; what follows from it is sealed with the same."""
    is_ours: bool = False
    """On `raw`: our API or a source of ours wrote it, by its signature."""
    payload_sha256: str = ""
    position: Position | None = None
    appended_at: datetime | None = None
