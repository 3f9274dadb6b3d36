"""Whether the tables are as far as what was read of the log. A backup of them that is older has missed what came since: readers go back to where it ends, and what
cannot be made good by reading again is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

import structlog

from anabranch.background.let_in import let_in
from anabranch.composition.genesis import FIRST
from anabranch.composition.lost_keys import LostKeys, gone_for_good, lost_keys
from anabranch.composition.readers import Reader, readers
from anabranch.composition.storage import Storage
from processors import STAGES, control, receive, transcribe
from schemas.errors import ConfigurationError, LogUnavailable
from schemas.records import StoredRecord
from sql.generations import PgGenerations
from sql.keystore import PgKeystore
from sql.log import PgLog
from sql.owners import restore_owners
from sql.reached import Places
from sql.receipts import PgReceipts
from sql.recovery import claim_at_door
from streams.codec import base_topic
from streams.hosting import group_name
from streams.topics import ACCEPTED, DEAD_LETTERS, RAW

log = structlog.get_logger(__name__)
Reading = tuple[str, str]
"""A consumer group and its topic."""
Behind = Mapping[Reading, Mapping[int, tuple[int, int]]]
"""By partition, from where to where the tables have not seen what their group acknowledged."""
CONTROL: Reading = (group_name(control.STAGE.name, None), control.STAGE.topic)
DOOR: Reading = (group_name(receive.STAGE.name, None), receive.STAGE.topic)
TAKEN_IN: Reading = (group_name(transcribe.STAGE.name, FIRST), transcribe.STAGE.topic)
NOT_READ_AGAIN = ("generation.", "erasure.", "key.")
"""Decisions by what their types begin with: what followed from them is done already, and not to these tables."""
REMEDY = "Make an empty database, restore only schema `keystore` into it, and run `anabranch rebuild` with no server running."
AGAIN_AFTER_S = 1.0


async def check_current(storage: Storage, erasures: Mapping[UUID, int]) -> None:
    """`erasures` are the receipts for which keys were destroyed, each with the offset at which that was said first. Raises ConfigurationError with code TABLES_RESTORED
    where reading again from where the tables end would not do. Decisions first: they tell which groups there are."""
    await _check_erasures(storage, erasures)
    if not isinstance(storage.log, PgLog):
        decided = await compared(storage, {CONTROL})
        generations = await PgGenerations(storage.pool).undropped()
        await decided.check_decisions(empty=not generations)
        await (await compared(storage, _readings(readers(generations, STAGES, storage.producer_topics)))).make_good()


async def _check_erasures(storage: Storage, erasures: Mapping[UUID, int]) -> None:
    """Raises where stage control has acknowledged some of them, and these tables know nothing of it."""
    if not erasures:
        return
    read = (await _acknowledged(storage, CONTROL)).get(0, 0)
    missed = await PgReceipts(storage.pool).unknown([receipt for receipt, offset in erasures.items() if offset < read])
    if missed:
        raise _restored(f"these tables are older than what was read of the log: {missed} erasures are not in them")


async def compared(storage: Storage, readings: Collection[Reading]) -> Comparison:
    """The log is asked first: other workers go on meanwhile, and their tables then know of at least as much."""
    read = {reading: await _acknowledged(storage, reading) for reading in readings}
    return Comparison(storage, read, await storage.reached.all())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of places of groups of Kafka: those that the groups have acknowledged, and those that the tables know."""

    storage: Storage
    read: Mapping[Reading, Mapping[int, int]]
    known: Places

    async def check_decisions(self, *, empty: bool) -> None:
        """`empty` are tables without any generation."""
        if not empty and self.known:
            await self._check_decisions(self._missed(CONTROL))
        elif empty and self.read[CONTROL].get(0):
            raise _restored("these tables are empty, and of the log much was read already")

    async def make_good(self) -> None:
        """Tables of a version that knew no places are taken for those that the groups have read for."""
        if not self.known:
            await self.storage.reached.take_over(self.read)
            return
        behind = {reading: missed for reading in self.read if (missed := self._missed(reading))}
        if not behind:
            return
        await self._check_retained(behind)
        lost = await lost_keys(self.storage, self._unseen(behind))
        await self._check_come_again(lost)
        await self._go_back(behind)
        await PgKeystore(self.storage.pool).lose(lost.tenants)

    def _missed(self, reading: Reading) -> dict[int, tuple[int, int]]:
        known = self.known.get(reading, {})
        return {partition: (known.get(partition, 0), end) for partition, end in self.read[reading].items() if known.get(partition, 0) < end}

    async def _check_decisions(self, missed: Mapping[int, tuple[int, int]]) -> None:
        if not missed:
            return
        start, end = ({partition: place[side] for partition, place in missed.items()} for side in (0, 1))
        async for stored in self.storage.log.read(control.STAGE.topic, start, end):
            if not self.storage.codec.is_ours(stored):
                continue
            kind = stored.record.headers.get("ce_type", b"").decode()
            if kind.startswith(NOT_READ_AGAIN):
                raise _restored(f"these tables are older than what was read of the log: {kind} at {stored.position.offset} of topic control is not in them")

    async def _check_retained(self, behind: Behind) -> None:
        """What the door has read is told by what it let in."""
        for reading in behind:
            _, topic = reading
            if base_topic(topic) == RAW:
                continue
            there = await self.storage.log.ends(topic)
            for partition, (start, _) in behind[reading].items():
                if start < (first := there[partition][0]):
                    detail = f"these tables are older than what was read of the log: topic {topic}, partition {partition}, does not hold {start} to {first - 1} any more"
                    raise _restored(detail, remedy="Restore a backup that is newer.")

    async def _unseen(self, behind: Behind) -> AsyncIterator[StoredRecord]:
        """And what was accepted since: a slow document keeps its stage from acknowledging others, of which stages after it have read."""
        for (_, topic), missed in behind.items():
            start, end = ({partition: place[side] for partition, place in missed.items()} for side in (0, 1))
            async for stored in self.storage.log.read(topic, start, {**dict.fromkeys(await self.storage.log.ends(topic), 0), **end}):
                yield stored
        async for stored in self.storage.log.read(ACCEPTED, self._goes_on(TAKEN_IN)):
            yield stored

    def _goes_on(self, reading: Reading) -> dict[int, int]:
        known = self.known.get(reading, {})
        return {partition: min(known.get(partition, 0), end) for partition, end in self.read[reading].items()}

    async def _check_come_again(self, lost: LostKeys) -> None:
        """The keystore lies in the same database, and may have been restored with the tables, or from a backup that is older than theirs."""
        if gone := await gone_for_good(self.storage, lost, self._goes_on(DOOR)):
            raise ConfigurationError(
                f"the keystore lacks {len(gone)} keys that were made since its backup, and the documents that they sealed do not come in once more: "
                "topic raw does not hold them any more, or these tables are newer than that backup",
                code="TABLES_RESTORED",
                remedy=f"Restore the newest backup of schema `keystore`, and start again. Where there is none that has them: {REMEDY}",
            )

    async def _go_back(self, behind: Behind) -> None:
        """Readers go back by themselves to what the tables know; if that is nothing, to the beginning. What the door let in it would fetch once more: it is told."""
        for (group, topic), missed in behind.items():
            log.warning("tables from a backup: what they miss is read again", group=group, topic=topic, missed=missed)
        if any(base_topic(topic) == RAW for _, topic in behind):
            found = await let_in(self.storage, {topic: self._known_of(topic) for topic in (ACCEPTED, DEAD_LETTERS)})
            await claim_at_door(self.storage.pool, list(found.known.items()))
            await restore_owners(self.storage.pool, found.owners)
        for reading, missed in behind.items():
            await self.storage.reached.note(*reading, {partition: start for partition, (start, _) in missed.items()})

    def _known_of(self, topic: str) -> Mapping[int, int]:
        """The lowest that any group has come to."""
        found: dict[int, int] = {}
        for (_, read), places in self.known.items():
            if read == topic:
                found |= {partition: min(place, found.get(partition, place)) for partition, place in places.items()}
        return found


def _readings(found: list[Reader]) -> set[Reading]:
    return {(reader.group, reader.topic) for reader in found}


async def _acknowledged(storage: Storage, reading: Reading) -> dict[int, int]:
    """A broker that only just came back says so later."""
    while True:
        try:
            return await storage.log.acknowledged(*reading)
        except LogUnavailable as error:
            log.warning("waiting", group=reading[0], code=error.code, detail=error.detail)
            await asyncio.sleep(AGAIN_AFTER_S)


def _restored(detail: str, remedy: str = REMEDY) -> ConfigurationError:
    return ConfigurationError(detail, code="TABLES_RESTORED", remedy=remedy)
