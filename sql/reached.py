"""Up to where consumer groups have come: see `schemas.ports.reached`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from schemas.errors import FatalError
from sql.errors import database_errors
from sql.pool import Pool
from sql.statements import statement

Places = Mapping[tuple[str, str], Mapping[int, int]]
"""(Group, topic) → partition → the offset after the last that the tables know of."""


class PgReached:
    """A `Reached` that remembers what these tables knew already: another database in their place is noticed at the next call."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._expected: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)

    async def known(self, group: str, topic: str) -> dict[int, int]:
        expected = dict(self._expected[group, topic])
        with database_errors():
            rows = await self._pool.fetch("select partition, next_offset from groups_reached where reader = $1 and topic = $2", group, topic)
        places = {row["partition"]: row["next_offset"] for row in rows}
        _compare(group, topic, expected, places)
        self._expect(group, topic, places)
        return places

    async def note(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        expected = self._expected[group, topic]
        given = list(offsets), list(offsets.values()), [expected.get(partition, 0) for partition in offsets]
        with database_errors():
            missed = await self._pool.fetch(statement("note_reached"), group, topic, *given)
        for row in missed:
            raise _restored(group, topic, row["partition"], row["expected"], row["known"])
        self._expect(group, topic, offsets)

    async def take_over(self, places: Places) -> None:
        """All of them or none, as long as nothing else is known of them: who dies in the middle would leave places that look missed."""
        query = "insert into groups_reached (reader, topic, partition, next_offset) values ($1, $2, $3, $4) on conflict do nothing"
        rows = [(*reading, partition, offset) for reading, offsets in places.items() for partition, offset in offsets.items()]
        with database_errors():
            await self._pool.executemany(query, rows)

    async def all(self) -> Places:
        with database_errors():
            rows = await self._pool.fetch("select reader, topic, partition, next_offset from groups_reached")
        places: dict[tuple[str, str], dict[int, int]] = {}
        for row in rows:
            places.setdefault((row["reader"], row["topic"]), {})[row["partition"]] = row["next_offset"]
        return places

    async def check(self) -> None:
        """Whether they are still the tables that they were, also where nothing comes that would be noted. Raises as `Reached` says. What is noted while this looks
        is not asked for: it may have come after the look."""
        expected = {reading: dict(offsets) for reading, offsets in self._expected.items()}
        places = await self.all() if expected else {}
        for (group, topic), offsets in expected.items():
            _compare(group, topic, offsets, places.get((group, topic), {}))

    def _expect(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        expected = self._expected[group, topic]
        expected.update({partition: max(offset, expected.get(partition, 0)) for partition, offset in offsets.items()})


def _compare(group: str, topic: str, expected: Mapping[int, int], places: Mapping[int, int]) -> None:
    for partition, offset in expected.items():
        if places.get(partition, 0) < offset:
            raise _restored(group, topic, partition, offset, places.get(partition, 0))


def _restored(group: str, topic: str, partition: int, expected: int, known: int) -> FatalError:
    return FatalError(
        f"the tables know of {known} events of topic {topic}, partition {partition}, for {group}, and knew of {expected}: "
        "they were restored from a backup, or a standby took over that was behind",
        code="TABLES_RESTORED",
        remedy="Nothing under `up` or where workers are started again by themselves; else start the workers again: they read again what the tables miss.",
    )
