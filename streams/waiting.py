"""Work that waits for its reaction, fairly: documents take turns, so that a thousand parts of one do not hold up the one part of another."""

from __future__ import annotations

from collections import deque

from streams.runner import Work


class WaitingRoom:
    """First come, first served within a document; round robin among documents."""

    def __init__(self) -> None:
        self.queues: dict[object, deque[Work]] = {}
        self.count = 0

    def add(self, work: Work) -> None:
        self.queues.setdefault(_document(work), deque()).append(work)
        self.count += 1

    def take(self, most: int, weight: int) -> list[Work]:
        """Up to `most` works of together about `weight` bytes (one at least), one from each document in turn."""
        taken: list[Work] = []
        total = 0
        while self.count and len(taken) < most:
            document, queue = next(iter(self.queues.items()))
            size = queue[0].stored.size
            if taken and total + size > weight:
                break
            taken.append(queue.popleft())
            total += size
            self.count -= 1
            del self.queues[document]
            if queue:
                self.queues[document] = queue
        return taken


def _document(work: Work) -> object:
    fact = work.counted.fact if work.counted else None
    return (fact.document_id or fact.id) if fact else None
