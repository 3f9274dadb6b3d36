"""Fair queue: round robin among documents, so that a thousand parts of one do not delay another."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from streams.runner import WorkItem


class FairQueue:
    """First in, first out within a document; round robin among documents.

    At most `max_in_flight` items of a document are taken and not yet released, so that a long
    document leaves slots for later ones. `key` groups items by something other than their document.
    """

    def __init__(self, max_in_flight: int, key: Callable[[WorkItem], object] | None = None) -> None:
        self.max_in_flight, self.key = max_in_flight, key or get_document_key
        self.ready_queues: dict[object, deque[WorkItem]] = {}
        self.blocked_queues: dict[object, deque[WorkItem]] = {}
        """Queues of documents with `max_in_flight` items taken."""
        self.in_flight: Counter[object] = Counter()
        self.count = 0

    @property
    def has_ready_items(self) -> bool:
        return bool(self.ready_queues)

    def add(self, item: WorkItem) -> None:
        queue_key = self.key(item)
        self._select_queues(queue_key).setdefault(queue_key, deque()).append(item)
        self.count += 1

    def take(self, max_items: int, max_bytes: int) -> list[WorkItem]:
        """Take at least one and up to `max_items` items within `max_bytes`, one per document in
        turn.
        """
        batch: list[WorkItem] = []
        total_bytes = 0
        while self.ready_queues and len(batch) < max_items:
            queue_key, queue = next(iter(self.ready_queues.items()))
            size = queue[0].stored_record.size_bytes
            if batch and total_bytes + size > max_bytes:
                break
            batch.append(queue.popleft())
            total_bytes += size
            self.in_flight[queue_key] += 1
            del self.ready_queues[queue_key]
            if queue:  # appended at the end: the other documents come first
                self._select_queues(queue_key)[queue_key] = queue
        self.count -= len(batch)
        return batch

    def release(self, items: Sequence[WorkItem]) -> None:
        """Free the slots of items whose reaction has ended."""
        for queue_key, ended_count in Counter(map(self.key, items)).items():
            self.in_flight -= Counter({queue_key: ended_count})
            if queue_key in self.blocked_queues:
                self.ready_queues[queue_key] = self.blocked_queues.pop(queue_key)

    def _select_queues(self, queue_key: object) -> dict[object, deque[WorkItem]]:
        return (
            self.blocked_queues
            if self.in_flight[queue_key] >= self.max_in_flight
            else self.ready_queues
        )


def get_document_key(item: WorkItem) -> object:
    event = item.pending_event.event if item.pending_event else None
    return (event.document_id or event.id) if event else None
