"""The declaration of event data, and the envelope of an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from pydantic import ConfigDict
from pydantic_core import PydanticCustomError

from schemas.models import Described
from schemas.topics import Position, Topic
from schemas.values import BlobRef

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a payload to the next major version. Pure."""


class EventData(Described):
    """The data of an event.

    Subclasses declare name, topic and major version in their class line: `class
    DocumentX(EventData, name="document.x", topic=RAW)`. A subclass with a version above 1 needs one
    function in `upcasts` for every older version, since stored events are never rewritten. With
    `is_sealed`, its events are sealed on a topic whose others are not.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: ClassVar[str]
    version: ClassVar[int]
    topic: ClassVar[Topic]
    upcasts: ClassVar[Mapping[int, Upcast]]
    is_sealed: ClassVar[bool]
    """Whether payloads are encrypted. Events of an earlier version may be in clear."""

    def __init_subclass__(
        cls,
        *,
        name: str = "",
        topic: Topic | None = None,
        version: int = 1,
        upcasts: Mapping[int, Upcast] | None = None,
        is_sealed: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[arg-type]
        if name:
            if topic is None:
                raise TypeError(f"Event {name} has no topic.")
            cls.name, cls.topic, cls.version, cls.upcasts = name, topic, version, upcasts or {}
            cls.is_sealed = is_sealed or topic.is_sealed
            # Checked when the class is defined: a gap would otherwise appear with the first old
            # event.
            if missing := set(range(1, version)) - set(cls.upcasts):
                raise TypeError(
                    f"{cls.event_type()} has no upcast from version "
                    f"{', '.join(map(str, sorted(missing)))}"
                )

    @classmethod
    def event_type(cls) -> str:
        """Return the CloudEvents type: name and major version, such as `document.chunked.v1`."""
        return f"{cls.name}.v{cls.version}"

    @classmethod
    def upcast_payload(cls, payload: dict[str, Any], version: int) -> dict[str, Any]:
        """Convert the payload of an older version to this one."""
        # One step per version, so that an upcast never changes once it is released.
        for from_version in range(version, cls.version):
            payload = cls.upcasts[from_version](payload)
        return payload


FOREIGN_BLOB = "foreign_blob"


def check_blob_prefix(data: EventData, prefix: str) -> None:
    """Raise PydanticCustomError of type FOREIGN_BLOB if a blob of the event does not have this key
    prefix.
    """
    for name in data.model_fields_set:
        blob = getattr(data, name)
        if isinstance(blob, BlobRef) and (
            # `..` would leave the prefix on a blob store that is a folder.
            not blob.key.startswith(prefix) or ".." in blob.key.split("/")
        ):
            raise PydanticCustomError(
                FOREIGN_BLOB,
                "{name} {key} does not start with {prefix}",
                {"name": name, "key": blob.key, "prefix": prefix},
            )


DataT = TypeVar("DataT", bound=EventData, covariant=True)


@dataclass(frozen=True, slots=True)
class Event(Generic[DataT]):
    """An event with its envelope.

    `id` is internal (see `schemas.ids`); `source` and `event_id` are the producer's.
    """

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
    """CloudEvents' Sequence extension, if the source numbers its changes."""
    epoch: int | None = None
    """Epoch of the sequence, if the source states one. The later epoch wins, whatever the numbers
    are.
    """
    step: int = 0
    """Counts corrections under the same sequence number."""
    key: UUID | None = None
    """The key that encrypts the payload, inherited by derived events."""
    is_ours: bool = False
    """On `raw`: signed by the API or by a source of this system."""
    payload_sha256: str = ""
    position: Position | None = None
    appended_at: datetime | None = None


def build_root_event(
    data: EventData, event_id: UUID, source: str, clock: Callable[[], datetime], **envelope: Any
) -> Event[Any]:
    """Build an event without a cause: a decision or a query."""
    return Event(
        id=event_id, data=data, source=source, event_id=str(event_id), time=clock(), **envelope
    )
