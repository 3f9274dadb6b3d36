"""A producer's documents with their history, as events for a plain Kafka client."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

SOURCE = "archive"
KafkaEvent = tuple[str, Mapping[str, str], bytes]
"""Key, headers, value."""


def make_received(name: str, number: int, text: str) -> KafkaEvent:
    return make_received_content(name, number, {"text": text})


def make_received_content(name: str, number: int, content: Mapping[str, str]) -> KafkaEvent:
    return make_event(
        name, number, "document.received.v1", {"external_id": name, "content": content}
    )


def make_withdrawn(name: str, number: int) -> KafkaEvent:
    return make_event(name, number, "document.withdrawn.v1", {"external_id": name})


def make_amended(name: str, number: int, **fields: Any) -> KafkaEvent:
    return make_event(name, number, "document.amended.v1", {"external_id": name, **fields})


def make_event(name: str, number: int, kind: str, payload: dict[str, Any]) -> KafkaEvent:
    headers = {
        "ce_specversion": "1.0",
        "ce_id": f"{name}/{number}",
        "ce_source": SOURCE,
        "ce_type": kind,
        "content-type": "application/json",
    }
    return name, headers, json.dumps(payload).encode()


def generate_text(name: str, number: int, rng: random.Random) -> str:
    """Generate lines that share words with other documents and contain people and sums."""
    people = ["Ada Lovelace", "Grace Hopper", "Carl Friedrich Gauss", "Emmy Noether"]
    lines = [
        (
            f"{name} revision {number} was signed by {rng.choice(people)} "
            f"and {rng.choice(people)} for EUR {rng.randrange(1, 99)},000."
        )
    ]
    lines += [
        " ".join(
            rng.choices(["heron", "river", "delta", "weir", "silt", "ferry", "bank", "reed"], k=12)
        )
        + "."
        for _ in range(rng.randrange(6))
    ]
    return "\n\n".join(lines)


def generate_histories(rng: random.Random, documents: int) -> dict[str, list[KafkaEvent]]:
    """Generate each document's events in order.

    They include repeated, withdrawn, resubmitted and unreadable revisions.
    """
    events_by_document: dict[str, list[KafkaEvent]] = {}
    for ordinal in range(documents):
        name = f"doc-{ordinal}"
        revisions = 1 + rng.choice([0, 0, 0, 1, 2])
        events = [
            make_received(name, number, generate_text(name, number, rng))
            for number in range(revisions)
        ]
        match ordinal % 10:
            case 3:
                events.append(make_withdrawn(name, revisions))
            case 5:
                events += [
                    make_withdrawn(name, revisions),
                    make_received(name, revisions + 1, generate_text(name, revisions + 1, rng)),
                ]
            case 7:
                events.append(
                    make_received(name, revisions, json.loads(events[-1][2])["content"]["text"])
                )
            case 9 if ordinal % 20 == 9:
                events = [make_received(name, 0, "locked")]
        events_by_document[name] = events
    return events_by_document


def interleave(documents: dict[str, list[KafkaEvent]], rng: random.Random) -> list[KafkaEvent]:
    """Interleave the events of all documents, each document's in order."""
    queues = {name: list(events) for name, events in documents.items()}
    order = [name for name, events in documents.items() for _ in events]
    rng.shuffle(order)
    return [queues[name].pop(0) for name in order]
