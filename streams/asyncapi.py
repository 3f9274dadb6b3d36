"""Generate the AsyncAPI 3.0 document and the JSON Schemas of all events from their classes.

Topics are channels. Operations are named from the system's side: it receives `raw` and sends
everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.events import (
    DocumentAmended,
    DocumentFailed,
    DocumentIndexed,
    DocumentReceived,
    DocumentSuperseded,
    DocumentWithdrawn,
    EventData,
    RemovalCompleted,
    list_event_classes,
)
from schemas.topics import OUTCOMES, RAW, Topic, map_retention_ms
from streams.codec import SEALED_CONTENT_TYPE

DOCUMENT_ID = "3f0e0c8e-6f0a-8d5c-9a53-5d3a4c3f7b11"
OUTCOME_FIELDS = {
    "external_id": "contract-17",
    "tenant": "default",
    "document_id": DOCUMENT_ID,
    "event_id": "contract-17/4",
    "source": "shop/contracts",
}
OUTCOME_HEADERS = {"ce_id": "0f6f7a52-6c1c-8a0e-b6a4-2f5b0c1d9e77", "ce_source": "anabranch/index"}


@dataclass(frozen=True, slots=True)
class Example:
    """An example event. `headers` holds those that do not follow from its type."""

    name: str
    payload: Mapping[str, Any]
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"ce_id": "contract-17/4", "ce_source": "shop/contracts"}
    )

    def to_asyncapi(self, event_class: type[EventData]) -> dict[str, Any]:
        headers = {
            "ce_specversion": "1.0",
            **self.headers,
            "ce_type": event_class.event_type(),
            "content-type": "application/json",
        }
        return {"name": self.name, "headers": headers, "payload": dict(self.payload)}


def _build_outcome_example(name: str, **fields: Any) -> Example:
    return Example(
        name,
        {
            **OUTCOME_FIELDS,
            "chunks_count": 0,
            "code": None,
            "detail": None,
            "remedy": None,
            **fields,
        },
        OUTCOME_HEADERS,
    )


EXAMPLES: Mapping[type[EventData], tuple[Example, ...]] = {
    DocumentReceived: (
        Example(
            "text",
            {
                "external_id": "note-3",
                "content": {"text": "The ferry leaves at a quarter past nine."},
            },
        ),
        Example(
            "an uploaded file",
            {
                "external_id": "contract-17",
                "tenant": "default",
                "filename": "contract-17.pdf",
                "media_type": "application/pdf",
                "content": {"storage_key": "uploads/default/contract-17.pdf"},
                "collection": "contracts",
                "tags": ["lease"],
            },
            {
                "ce_id": "contract-17/4",
                "ce_source": "shop/contracts",
                "ce_sequence": "4",
                "ce_time": "2026-03-01T09:00:00Z",
            },
        ),
    ),
    DocumentWithdrawn: (Example("withdrawn", {"external_id": "contract-17", "tenant": "default"}),),
    DocumentAmended: (
        Example(
            "another title",
            {"external_id": "contract-17", "tenant": "default", "title": "Lease of the boat house"},
        ),
    ),
    DocumentIndexed: (_build_outcome_example("searchable", chunks_count=12),),
    DocumentFailed: (
        _build_outcome_example(
            "failed",
            code="ENCRYPTED_DOCUMENT",
            detail="The PDF is encrypted and needs a password.",
            remedy="Send it without a password.",
        ),
    ),
    DocumentSuperseded: (_build_outcome_example("superseded", code="SUPERSEDED"),),
    RemovalCompleted: (_build_outcome_example("removed"),),
}


JSON_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
CLOUDEVENTS_HEADERS: dict[str, Any] = {
    "type": "object",
    "required": ["ce_specversion", "ce_id", "ce_source", "ce_type"],
    "properties": {
        "ce_specversion": {"type": "string", "const": "1.0"},
        "ce_id": {
            "type": "string",
            "minLength": 1,
            "description": "Unique within ce_source. A change needs a new id.",
        },
        "ce_source": {"type": "string", "minLength": 1},
        "ce_type": {"type": "string"},
        "ce_time": {"type": "string", "format": "date-time"},
        "ce_sequence": {
            "type": "string",
            "pattern": "^[0-9]+$",
            "description": "CloudEvents Sequence extension, for sources that number their changes.",
        },
        "content-type": {"type": "string", "const": "application/json"},
    },
}
SEALED_HEADERS: dict[str, Any] = {
    "content-type": {
        "type": "string",
        "enum": ["application/json", SEALED_CONTENT_TYPE],
        "description": f"`{SEALED_CONTENT_TYPE}` if the payload is encrypted.",
    },
    "ce_keyid": {
        "type": "string",
        "format": "uuid",
        "description": "Id of the key that encrypts the payload.",
    },
}


def build_event_schema(event_class: type[EventData]) -> dict[str, Any]:
    """Build the JSON Schema of an event's payload."""
    # Producers write `raw`, so its schema describes our input; the schemas of all others describe
    # our output.
    mode: Literal["validation", "serialization"] = (
        "validation" if event_class.topic == RAW else "serialization"
    )
    schema = {
        "$schema": JSON_SCHEMA,
        "$id": get_schema_file_name(event_class),
    } | event_class.model_json_schema(mode=mode)
    return schema | (
        {"examples": [dict(example.payload) for example in EXAMPLES[event_class]]}
        if event_class in EXAMPLES
        else {}
    )


def get_schema_file_name(event_class: type[EventData]) -> str:
    # If several topics carry an event type, the file of one of them has the plain name.
    topics = [
        candidate.topic
        for candidate in list_event_classes()
        if candidate.event_type() == event_class.event_type()
    ]
    home_topic = next((topic for topic in (RAW, OUTCOMES) if topic in topics), event_class.topic)
    return (
        f"{event_class.event_type()}.json"
        if event_class.topic == home_topic
        else f"{event_class.topic}.{event_class.event_type()}.json"
    )


def build_asyncapi_document(
    version: str, all_event_classes: Sequence[type[EventData]], topics: Iterable[Topic]
) -> dict[str, Any]:
    documented_topics = {
        topic: [event_class for event_class in all_event_classes if event_class.topic == topic]
        for topic in topics
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Anabranch",
            "version": version,
            "description": (
                "Events on Kafka: CloudEvents 1.0, binary mode; topics may carry a prefix."
            ),
        },
        "defaultContentType": "application/json",
        "channels": {
            topic: _build_channel(topic, event_classes)
            for topic, event_classes in documented_topics.items()
        },
        "operations": {
            f"{_get_action(topic)}_{topic}": {
                "action": _get_action(topic),
                "channel": {"$ref": f"#/channels/{topic}"},
                "summary": topic.description,
            }
            for topic in documented_topics
        },
        "components": {
            "messages": {
                _get_message_name(event_class): _build_message(event_class)
                for event_classes in documented_topics.values()
                for event_class in event_classes
            }
        },
    }


def _build_channel(topic: Topic, event_classes: list[type[EventData]]) -> dict[str, Any]:
    channel: dict[str, Any] = {
        "address": topic,
        "description": topic.description,
        "messages": {
            _get_message_name(event_class): {
                "$ref": f"#/components/messages/{_get_message_name(event_class)}"
            }
            for event_class in event_classes
        },
    }
    configuration: dict[str, Any] = {
        "cleanup.policy": ["delete"],
        "retention.ms": map_retention_ms([topic]).get(topic, -1),
    }
    return channel | {
        "bindings": {
            "kafka": {
                "topic": topic,
                "topicConfiguration": configuration,
                "bindingVersion": "0.5.0",
            }
        }
    }


def _get_action(topic: str) -> str:
    return "receive" if topic == RAW else "send"


def _get_message_name(event_class: type[EventData]) -> str:
    return get_schema_file_name(event_class).removesuffix(".json")


def _build_message(event_class: type[EventData]) -> dict[str, Any]:
    headers = CLOUDEVENTS_HEADERS
    if event_class.is_sealed:
        headers = headers | {"properties": headers["properties"] | SEALED_HEADERS}
    return {
        "name": event_class.event_type(),
        "title": event_class.name,
        "summary": (event_class.__doc__ or "").strip().partition("\n")[0],
        "contentType": "application/json",
        "headers": headers,
        "payload": {
            "schemaFormat": "application/schema+json;version=draft-2020-12",
            "schema": {"$ref": f"events/{get_schema_file_name(event_class)}"},
        },
        "bindings": {
            "kafka": {
                "key": {
                    "type": "string",
                    "description": (
                        f"{event_class.topic.key[0].upper()}{event_class.topic.key[1:]}."
                    ),
                },
                "bindingVersion": "0.5.0",
            }
        },
        **(
            {"examples": [example.to_asyncapi(event_class) for example in EXAMPLES[event_class]]}
            if event_class in EXAMPLES
            else {}
        ),
    }
