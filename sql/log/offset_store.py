"""Store the offsets of consumer groups in the same database as the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from schemas.errors import FatalError
from sql.database import Pool, fetch_rows

ConsumerOffsets = Mapping[tuple[str, str], Mapping[int, int]]
"""(group, topic) → partition → next offset to read."""


class PgOffsetStore:
    """Implements `schemas.ports.consumers.OffsetStore`.

    Remembers the offsets it has seen, so that the next call detects that the tables were restored
    from a backup.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._expected: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)

    async def fetch_offsets(self, group: str, topic: str) -> dict[int, int]:
        # Copied before the query: an offset stored meanwhile may be newer than its result.
        expected = dict(self._expected[group, topic])
        rows = await fetch_rows(self._pool, "consumer_offsets", group, topic)
        stored_offsets = {row["partition"]: row["next_offset"] for row in rows}
        _check_not_behind(group, topic, expected, stored_offsets)
        self._raise_expected(group, topic, stored_offsets)
        return stored_offsets

    async def store_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        expected = self._expected[group, topic]
        columns = (
            list(offsets),
            list(offsets.values()),
            [expected.get(partition, 0) for partition in offsets],
        )
        behind_rows = await fetch_rows(
            self._pool, "advance_consumer_offsets", group, topic, *columns
        )
        # The statement stored nothing then: it checks and advances as one.
        for row in behind_rows:
            raise _tables_restored_error(
                group, topic, row["partition"], row["expected"], row["stored"]
            )
        self._raise_expected(group, topic, offsets)

    async def fetch_all(self) -> ConsumerOffsets:
        rows = await fetch_rows(self._pool, "all_consumer_offsets")
        consumer_offsets: dict[tuple[str, str], dict[int, int]] = {}
        for row in rows:
            consumer_offsets.setdefault((row["reader"], row["topic"]), {})[row["partition"]] = row[
                "next_offset"
            ]
        return consumer_offsets

    async def check_not_restored(self) -> None:
        """Check that the tables were not restored, even while no offset is stored. Raises like
        `OffsetStore`.

        Offsets stored during the check are not compared: they may be newer than its snapshot.
        """
        expected = {group_topic: dict(offsets) for group_topic, offsets in self._expected.items()}
        stored_offsets = await self.fetch_all() if expected else {}
        for (group, topic), offsets in expected.items():
            _check_not_behind(group, topic, offsets, stored_offsets.get((group, topic), {}))

    def _raise_expected(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        expected = self._expected[group, topic]
        expected.update(
            {
                # Never lowered: a late answer would hide a restore.
                partition: max(offset, expected.get(partition, 0))
                for partition, offset in offsets.items()
            }
        )


def _check_not_behind(
    group: str, topic: str, expected: Mapping[int, int], stored_offsets: Mapping[int, int]
) -> None:
    for partition, offset in expected.items():
        if stored_offsets.get(partition, 0) < offset:
            raise _tables_restored_error(
                group, topic, partition, offset, stored_offsets.get(partition, 0)
            )


def _tables_restored_error(
    group: str, topic: str, partition: int, expected: int, stored: int
) -> FatalError:
    return FatalError(
        f"The tables are at offset {stored} of topic {topic}, partition {partition}, for group "
        f"{group}, and were at {expected} before: "
        "they were restored from a backup, or a standby that lagged was promoted.",
        code="TABLES_RESTORED",
        remedy=(
            "Restart the workers, unless `up` or a supervisor does so: they read the missing "
            "records again."
        ),
    )
