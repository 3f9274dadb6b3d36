"""The AsyncAPI 3.0 document and the JSON Schemas of all events, generated from their classes.

Topics are channels; what anyone may send and what the system sends are operations, seen from the system: it receives `raw` and sends the rest.
"""

from __future__ import annotations

from typing import Any, Literal

from schemas.events import Event, declared
from streams.codec import CLEAR_TOPICS, SEALED
from streams.examples import EXAMPLES
from streams.topics import CONTROL, DEAD_LETTERS, OUTCOMES, RAW, RETENTION_MS, partition_counts

JSON_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
DESCRIPTIONS = {
    RAW: "What anyone may push: documents, amendments and withdrawals.",
    OUTCOMES: "What became of each event of `raw`.",
    CONTROL: "Decisions.",
    DEAD_LETTERS: "Events that a stage could not process.",
}
HEADERS: dict[str, Any] = {
    "type": "object",
    "required": ["ce_specversion", "ce_id", "ce_source", "ce_type"],
    "properties": {
        "ce_specversion": {"type": "string", "const": "1.0"},
        "ce_id": {"type": "string", "minLength": 1, "description": "unique within ce_source: a change needs a new one"},
        "ce_source": {"type": "string", "minLength": 1},
        "ce_type": {"type": "string"},
        "ce_time": {"type": "string", "format": "date-time"},
        "ce_sequence": {"type": "string", "pattern": "^[0-9]+$", "description": "CloudEvents' Sequence extension, where the source numbers its changes"},
        "content-type": {"type": "string", "const": "application/json"},
    },
}
SEALABLE: dict[str, Any] = {
    "content-type": {"type": "string", "enum": ["application/json", SEALED], "description": f"`{SEALED}` where the payload is sealed"},
    "ce_keyid": {"type": "string", "format": "uuid", "description": "what a sealed payload was sealed with"},
}


def event_schema(event: type[Event]) -> dict[str, Any]:
    """The JSON Schema of an event's payload. One that is read from others is validated as it comes, our own as they are written."""
    mode: Literal["validation", "serialization"] = "validation" if event.topic == RAW else "serialization"
    schema = {"$schema": JSON_SCHEMA, "$id": schema_file(event)} | event.model_json_schema(mode=mode)
    return schema | ({"examples": [dict(example.payload) for example in EXAMPLES[event]]} if event in EXAMPLES else {})


def schema_file(event: type[Event]) -> str:
    return f"{event.event_type()}.json" if event.topic == _home(event) else f"{event.topic}.{event.event_type()}.json"


def asyncapi_document(version: str) -> dict[str, Any]:
    topics = {topic: [event for event in declared() if event.topic == topic] for topic in partition_counts(1)}
    spoken = {topic: events for topic, events in topics.items() if events}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Anabranch", "version": version, "description": "Events on Kafka: CloudEvents 1.0, binary mode; topics may carry a prefix."},
        "defaultContentType": "application/json",
        "channels": {topic: _channel(topic, events) for topic, events in spoken.items()},
        "operations": {f"{_action(topic)}_{topic}": _operation(topic) for topic in spoken},
        "components": {"messages": {_message_name(event): _message(event) for events in spoken.values() for event in events}},
    }


def _home(event: type[Event]) -> str:
    """The topic whose file has the plain name, where two tell facts of the same one: that which others write or read, else the first."""
    topics = [other.topic for other in declared() if other.event_type() == event.event_type()]
    return next((topic for topic in (RAW, OUTCOMES) if topic in topics), topics[0])


def _channel(topic: str, events: list[type[Event]]) -> dict[str, Any]:
    channel: dict[str, Any] = {
        "address": topic,
        "description": DESCRIPTIONS.get(topic, f"Facts of the pipeline: {', '.join(event.name for event in events)}."),
        "messages": {_message_name(event): {"$ref": f"#/components/messages/{_message_name(event)}"} for event in events},
    }
    configuration: dict[str, Any] = {"cleanup.policy": ["delete"], "retention.ms": RETENTION_MS.get(topic, -1)}
    return channel | {"bindings": {"kafka": {"topic": topic, "topicConfiguration": configuration, "bindingVersion": "0.5.0"}}}


def _operation(topic: str) -> dict[str, Any]:
    return {"action": _action(topic), "channel": {"$ref": f"#/channels/{topic}"}, "summary": DESCRIPTIONS.get(topic, f"Topic {topic}.")}


def _action(topic: str) -> str:
    return "receive" if topic == RAW else "send"


def _message_name(event: type[Event]) -> str:
    return schema_file(event).removesuffix(".json")


def _message(event: type[Event]) -> dict[str, Any]:
    return {
        "name": event.event_type(),
        "title": event.name,
        "summary": (event.__doc__ or "").strip().partition("\n")[0],
        "contentType": "application/json",
        "headers": _headers(event.topic),
        "payload": {"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": {"$ref": f"events/{schema_file(event)}"}},
        "bindings": {"kafka": {"key": {"type": "string", "description": "the document id; on `raw` the producer's choice"}, "bindingVersion": "0.5.0"}},
        **({"examples": [example.whole(event) for example in EXAMPLES[event]]} if event in EXAMPLES else {}),
    }


def _headers(topic: str) -> dict[str, Any]:
    return HEADERS if topic in CLEAR_TOPICS else HEADERS | {"properties": HEADERS["properties"] | SEALABLE}
