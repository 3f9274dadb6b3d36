"""Check at start-up whether the tables are older than the committed offsets, that is, restored from
a backup.

Consumers are rewound to what the tables contain. If reading again cannot repair the tables,
start-up is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

import structlog

from processors import STAGES, control, receive, transcribe
from schemas.errors import ConfigurationError, LogUnavailable
from schemas.topics import ACCEPTED, DEAD_LETTERS, RAW, StoredRecord, get_base_topic
from services.generations.decisions import FIRST_GENERATION
from services.generations.stage_assignments import assign_stages
from services.recovery.table_recovery import parse_encryption_key, restore_ingress
from services.storage import Storage
from sql.log.offset_store import ConsumerOffsets
from sql.operations.erasure import PgErasureReceipts
from sql.operations.keystore import PgKeystore
from streams.stage_consumer import format_group_name

log = structlog.get_logger(__name__)
GroupTopic = tuple[str, str]
"""Consumer group and topic."""
MissedRanges = Mapping[GroupTopic, Mapping[int, tuple[int, int]]]
"""By partition: start and end of the offsets that the group has committed and the tables lack."""
CONTROL_GROUP: GroupTopic = (format_group_name(control.STAGE.name, None), control.STAGE.topic)
INGRESS_GROUP: GroupTopic = (format_group_name(receive.STAGE.name, None), receive.STAGE.topic)
TRANSCRIBE_GROUP: GroupTopic = (
    format_group_name(transcribe.STAGE.name, FIRST_GENERATION),
    transcribe.STAGE.topic,
)
UNREPEATABLE_TYPES = ("generation.", "erasure.", "key.")
"""Type prefixes of decisions that were carried out already, but not in these tables."""
REMEDY = (
    "Make an empty database, restore only schema `keystore` into it, and run `anabranch rebuild` "
    "with no server running."
)
RETRY_S = 1.0
MAX_NAMED = 20
"""Documents that an error names."""


async def check_tables_current(storage: Storage, erasures: Mapping[UUID, int]) -> None:
    """Rewind consumers to the offsets of the tables. Raises ConfigurationError with code
    TABLES_RESTORED if that is not enough. `erasures` maps receipts with destroyed keys to the
    offset of their first `key.destroyed`. Decisions are checked first, because they determine the
    consumer groups.
    """
    await _check_erasures(storage, erasures)
    # The Postgres log is restored together with the tables.
    if not storage.log.is_in_database:
        decisions = await compare_offsets(storage, {CONTROL_GROUP})
        generations = await storage.generations.fetch_undropped()
        await decisions.check_decisions(empty=not generations)
        assignments = assign_stages(generations, STAGES, storage.producer_topics)
        offsets = await compare_offsets(
            storage, {(assignment.group, assignment.topic) for assignment in assignments}
        )
        await offsets.rewind_missed()


async def _check_erasures(storage: Storage, erasures: Mapping[UUID, int]) -> None:
    """Raise if stage `control` has committed an erasure that these tables do not have."""
    if not erasures:
        return
    # Topic `control` has one partition.
    acknowledged = (await _fetch_acknowledged(storage, CONTROL_GROUP)).get(0, 0)
    missing_count = await PgErasureReceipts(storage.pool).count_unknown(
        [receipt for receipt, offset in erasures.items() if offset < acknowledged]
    )
    if missing_count:
        raise _build_restored_error(
            f"The tables were restored from an old backup: they lack {missing_count} erasures."
        )


async def compare_offsets(
    storage: Storage, group_topics: Collection[GroupTopic]
) -> OffsetComparison:
    # Committed offsets before stored ones: other workers continue meanwhile, so the tables only get
    # ahead.
    acknowledged = {
        group_topic: await _fetch_acknowledged(storage, group_topic) for group_topic in group_topics
    }
    return OffsetComparison(storage, acknowledged, await storage.offset_store.fetch_all())


@dataclass(frozen=True, slots=True)
class OffsetComparison:
    """Committed offsets of Kafka consumer groups, and those stored with the tables."""

    storage: Storage
    acknowledged: Mapping[GroupTopic, Mapping[int, int]]
    stored: ConsumerOffsets

    async def check_decisions(self, *, empty: bool) -> None:
        """Raise if the tables lack decisions. `empty` means that there is no generation."""
        if empty and self.acknowledged[CONTROL_GROUP].get(0):
            raise _build_restored_error(
                "The tables are empty, but consumer groups have committed offsets."
            )
        if empty or not (missed := self._find_missed(CONTROL_GROUP)):
            return
        start, end = (
            {partition: bounds[side] for partition, bounds in missed.items()} for side in (0, 1)
        )
        async for stored in self.storage.log.read(control.STAGE.topic, start, end):
            # A forged record must not stop the start.
            if not self.storage.codec.is_own_record(stored):
                continue
            event_type = stored.record.headers.get("ce_type", b"").decode()
            if event_type.startswith(UNREPEATABLE_TYPES):
                raise _build_restored_error(
                    f"The tables were restored from an old backup: they lack {event_type} at "
                    f"offset {stored.position.offset} of topic control."
                )

    async def rewind_missed(self) -> None:
        """Rewind groups whose committed offsets are ahead of the tables."""
        missed_ranges = {
            group_topic: missed
            for group_topic in self.acknowledged
            if (missed := self._find_missed(group_topic))
        }
        if not missed_ranges:
            return
        await self._check_retained(missed_ranges)
        await self._check_keys(missed_ranges)
        await self._rewind(missed_ranges)

    def _find_missed(self, group_topic: GroupTopic) -> dict[int, tuple[int, int]]:
        stored = self.stored.get(group_topic, {})
        return {
            partition: (stored.get(partition, 0), end)
            for partition, end in self.acknowledged[group_topic].items()
            if stored.get(partition, 0) < end
        }

    async def _check_retained(self, missed_ranges: MissedRanges) -> None:
        """Raise if the log no longer holds the missed offsets.

        The progress of `receive` follows from `accepted`, so `raw` need not be retained.
        """
        for group_topic in missed_ranges:
            _, topic = group_topic
            if get_base_topic(topic) == RAW:
                continue
            log_ends = await self.storage.log.fetch_offset_bounds(topic)
            for partition, (start, _) in missed_ranges[group_topic].items():
                if start < (first := log_ends[partition][0]):
                    detail = (
                        f"The tables were restored from an old backup, and topic {topic}, "
                        f"partition {partition}, no longer holds offsets {start} to {first - 1}."
                    )
                    raise _build_restored_error(detail, remedy="Restore a newer backup.")

    async def _read_missed(self, missed_ranges: MissedRanges) -> AsyncIterator[StoredRecord]:
        """Read the missed records, and everything accepted since.

        A slow document delays the commit of its stage, while later stages have already consumed
        others.
        """
        for (_, topic), missed in missed_ranges.items():
            start, end = (
                {partition: bounds[side] for partition, bounds in missed.items()} for side in (0, 1)
            )
            async for stored in self.storage.log.read(
                topic,
                start,
                # Partitions that missed nothing end at 0, so none of their records is read.
                {**dict.fromkeys(await self.storage.log.fetch_offset_bounds(topic), 0), **end},
            ):
                yield stored
        stored_offsets = self.stored.get(TRANSCRIBE_GROUP, {})
        resume_offsets = {
            partition: min(stored_offsets.get(partition, 0), end)
            for partition, end in self.acknowledged[TRANSCRIBE_GROUP].items()
        }
        async for stored in self.storage.log.read(ACCEPTED, resume_offsets):
            yield stored

    async def _check_keys(self, missed_ranges: MissedRanges) -> None:
        """Raise if the keystore lacks keys of documents: their events cannot be applied."""
        documents: dict[UUID, str] = {}
        tenants: dict[UUID, str] = {}
        async for stored in self._read_missed(missed_ranges):
            # A forged record must not stop the start.
            if self.storage.codec.is_own_record(stored):
                tenants |= (key_tenants := parse_encryption_key(stored))
                if document := stored.record.headers.get("ce_document"):
                    documents |= dict.fromkeys(key_tenants, document.decode())
        keystore = PgKeystore(self.storage.pool)
        missing_keys = tenants.keys() - (await keystore.fetch(list(tenants))).keys()
        if missing := sorted(
            {f"{tenants[key]}/{documents[key]}" for key in missing_keys & documents.keys()}
        ):
            suffix = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
            raise _build_restored_error(
                "The tables were restored from a backup, and the keystore has no keys for newer "
                f"events of {len(missing)} documents: {', '.join(missing[:MAX_NAMED])}{suffix}.",
                remedy="Restore the newest backup of schema `keystore`, and start again. If no "
                f"backup has the keys: {REMEDY}",
            )
        # The other keys encrypt questions: their runs become unreadable, which stops nothing.
        if missing_keys:
            log.warning("question_keys_missing", count=len(missing_keys))
        # Marked as destroyed, so that their records are skipped like erased ones.
        for key in missing_keys:
            await keystore.destroy(tenants[key], [key])

    async def _rewind(self, missed_ranges: MissedRanges) -> None:
        """Store the lower offsets, to which consumers return.

        The inbox of `receive` is restored first, so that it fetches nothing twice.
        """
        for (group, topic), missed in missed_ranges.items():
            log.warning("consumer_rewound", group=group, topic=topic, missed=missed)
        if any(get_base_topic(topic) == RAW for _, topic in missed_ranges):
            topics = (ACCEPTED, DEAD_LETTERS)
            await restore_ingress(
                self.storage, {topic: self._find_lowest_stored(topic) for topic in topics}
            )
        # Last: if the steps above are interrupted, the next start finds the same gap.
        for group_topic, missed in missed_ranges.items():
            await self.storage.offset_store.store_offsets(
                *group_topic, {partition: start for partition, (start, _) in missed.items()}
            )

    def _find_lowest_stored(self, topic: str) -> Mapping[int, int]:
        """Find the lowest stored offsets of any group."""
        lowest: dict[int, int] = {}
        for (_, stored_topic), offsets in self.stored.items():
            if stored_topic == topic:
                lowest |= {
                    partition: min(offset, lowest.get(partition, offset))
                    for partition, offset in offsets.items()
                }
        return lowest


async def _fetch_acknowledged(storage: Storage, group_topic: GroupTopic) -> dict[int, int]:
    """Fetch committed offsets, and wait for a broker that is starting."""
    while True:
        try:
            return await storage.log.fetch_committed_offsets(*group_topic)
        except LogUnavailable as error:
            log.warning(
                "committed_offsets_unavailable",
                group=group_topic[0],
                code=error.code,
                detail=error.detail,
            )
            await asyncio.sleep(RETRY_S)


def _build_restored_error(detail: str, remedy: str = REMEDY) -> ConfigurationError:
    return ConfigurationError(detail, code="TABLES_RESTORED", remedy=remedy)
