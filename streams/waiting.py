"""Work that waits for its reaction, fairly: documents take turns, so that a thousand parts of one do not hold up the one part of another."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from streams.runner import Work


class WaitingRoom:
    """First come, first served within a document; round robin among documents. None has more than `at_once` works taken and not yet given back,
    so that a long one leaves room for those that come later. With another `key` works take turns by that in place of their document."""

    def __init__(self, at_once: int, key: Callable[[Work], object] | None = None) -> None:
        self.at_once, self.key = at_once, key or document_of
        self.queues: dict[object, deque[Work]] = {}
        self.held: dict[object, deque[Work]] = {}
        """Of documents that have their share."""
        self.taken: Counter[object] = Counter()
        self.count = 0

    @property
    def ready(self) -> bool:
        return bool(self.queues)

    def add(self, work: Work) -> None:
        document = self.key(work)
        self._place(document).setdefault(document, deque()).append(work)
        self.count += 1

    def take(self, most: int, weight: int) -> list[Work]:
        """Up to `most` works of together about `weight` bytes (one at least), one from each document in turn."""
        taken: list[Work] = []
        total = 0
        while self.queues and len(taken) < most:
            document, queue = next(iter(self.queues.items()))
            size = queue[0].stored.size
            if taken and total + size > weight:
                break
            taken.append(queue.popleft())
            total += size
            self.taken[document] += 1
            del self.queues[document]
            if queue:
                self._place(document)[document] = queue
        self.count -= len(taken)
        return taken

    def give_back(self, works: Sequence[Work]) -> None:
        """The reaction of these has ended."""
        for document, ended in Counter(map(self.key, works)).items():
            self.taken -= Counter({document: ended})
            if document in self.held:
                self.queues[document] = self.held.pop(document)

    def _place(self, document: object) -> dict[object, deque[Work]]:
        return self.held if self.taken[document] >= self.at_once else self.queues


def document_of(work: Work) -> object:
    fact = work.counted.fact if work.counted else None
    return (fact.document_id or fact.id) if fact else None
