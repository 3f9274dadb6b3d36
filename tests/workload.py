"""What a producer sends in a test: documents with a history, as events for a bare Kafka client."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

SOURCE = "archive"
Event = tuple[str, Mapping[str, str], bytes]
"""Key, headers, value."""


def received(name: str, number: int, text: str) -> Event:
    return received_content(name, number, {"text": text})


def received_content(name: str, number: int, content: Mapping[str, str]) -> Event:
    return event(name, number, "document.received.v1", {"external_id": name, "content": content})


def withdrawn(name: str, number: int) -> Event:
    return event(name, number, "document.withdrawn.v1", {"external_id": name})


def event(name: str, number: int, kind: str, payload: dict[str, Any]) -> Event:
    headers = {"ce_specversion": "1.0", "ce_id": f"{name}/{number}", "ce_source": SOURCE, "ce_type": kind, "content-type": "application/json"}
    return name, headers, json.dumps(payload).encode()


def text(name: str, number: int, mood: random.Random) -> str:
    """Some lines that share words with those of other documents, and people and sums of money to extract."""
    people = ["Ada Lovelace", "Grace Hopper", "Carl Friedrich Gauss", "Emmy Noether"]
    lines = [f"{name} revision {number} was signed by {mood.choice(people)} and {mood.choice(people)} for EUR {mood.randrange(1, 99)},000."]
    lines += [" ".join(mood.choices(["heron", "river", "delta", "weir", "silt", "ferry", "bank", "reed"], k=12)) + "." for _ in range(mood.randrange(6))]
    return "\n\n".join(lines)


def histories(mood: random.Random, documents: int) -> dict[str, list[Event]]:
    """Document → its events in their order: one revision, several, the same again, withdrawn, sent again after that, unreadable."""
    found: dict[str, list[Event]] = {}
    for place in range(documents):
        name = f"doc-{place}"
        revisions = 1 + mood.choice([0, 0, 0, 1, 2])
        events = [received(name, number, text(name, number, mood)) for number in range(revisions)]
        match place % 10:
            case 3:
                events.append(withdrawn(name, revisions))
            case 5:
                events += [withdrawn(name, revisions), received(name, revisions + 1, text(name, revisions + 1, mood))]
            case 7:
                events.append(received(name, revisions, json.loads(events[-1][2])["content"]["text"]))
            case 9 if place % 20 == 9:
                events = [received(name, 0, "locked")]
        found[name] = events
    return found


def shuffled(documents: dict[str, list[Event]], mood: random.Random) -> list[Event]:
    """All events, each document's in their order."""
    queues = {name: list(events) for name, events in documents.items()}
    order = [name for name, events in documents.items() for _ in events]
    mood.shuffle(order)
    return [queues[name].pop(0) for name in order]
