"""Empty tables filled from the log, in place: no generation answers, so nothing is disturbed. No stage reacts, no engine is asked, nothing is published."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from anabranch.background.erasing import REASON
from anabranch.background.let_in import let_in, sealed_with
from anabranch.composition.genesis import current_generation
from anabranch.composition.readers import Reader, readers
from anabranch.composition.sealing import destroy_again
from anabranch.composition.storage import Storage, prepare_storage
from anabranch.settings import Settings
from processors import STAGES, announce, control, erase
from schemas.errors import ConfigurationError, Erased, NewerVersion, PermanentError
from schemas.events import DocumentRemoved, Event, KeysDestroyed
from schemas.ports.ledger import Projected
from schemas.records import StoredRecord
from sql.builds import PgBuilds
from sql.erasure import PgErasure
from sql.generations import PgGenerations
from sql.keystore import PgKeystore
from sql.ledger import PgLedger
from sql.log import PgLog
from sql.owners import restore_owners
from sql.receipts import PgReceipts
from sql.recovery import claim_at_door, place_reader
from sql.secondary_indexes import build_indexes
from sql.vector_index import ensure_vector_index
from streams.keys import KEY_MISSING
from streams.stage import Stage, nothing
from streams.topics import ACCEPTED, CONTROL, DEAD_LETTERS, OUTCOMES, RETENTION_MS

BATCH = 256
CONNECTIONS = 4


async def recover(settings: Settings, dsn: str) -> dict[str, Any] | None:
    """`{events, rows, seconds, rows_per_second, engine_calls}`; None where there are tables already, or a log that no generation was ever made on.

    Raises LogUnavailable, DatabaseUnavailable, NewerVersion. A call that was cut off leaves tables that are begun: empty the database and call again.
    """
    async with prepare_storage(settings, dsn, pool_size=CONNECTIONS, name="anabranch rebuild", relaxed=True) as storage:
        generations = PgGenerations(storage.pool)
        if await generations.names() or await current_generation(generations, storage.log, storage.codec) is None:
            return None
        await destroy_again(storage.log, storage.codec, storage.pool, storage.key_file)
        await _check_keys(storage)
        began = time.perf_counter()
        recovery = Recovery(storage)
        await recovery.run()
        seconds = time.perf_counter() - began
        books = PgBuilds(storage.pool)
        rows = sum([await books.rows(generation.name) for generation in await generations.undropped()])
        return {
            "events": recovery.events,
            "rows": rows,
            "seconds": round(seconds, 2),
            "rows_per_second": round(rows / max(seconds, 0.01)),
            "engine_calls": 0,
        }


async def _check_keys(storage: Storage) -> None:
    """Events whose keys were destroyed are passed over; where none of the others can be read, it is the keys that are missing."""
    unreadable = 0
    async for stored in storage.log.read(ACCEPTED):
        try:
            await storage.codec.decode(stored)
        except Erased:
            continue
        except PermanentError:
            unreadable += 1
            continue
        return
    if unreadable:
        raise ConfigurationError(
            f"none of {unreadable} accepted documents in the log can be read with the keys in this database",
            code="KEYSTORE_MISSING",
            remedy="Restore schema `keystore` from its backup, then rebuild.",
        )


@dataclass(slots=True)
class Recovery:
    storage: Storage
    events: int = 0
    erased: dict[tuple[str, str], set[UUID]] = field(default_factory=dict)
    """(tenant, receipt) → documents that an erasure withdrew, and whose events are readable all the same."""
    destroyed: dict[str, UUID] = field(default_factory=dict)
    """Key → receipt of the erasure that destroyed it."""
    unreadable: dict[UUID, set[UUID]] = field(default_factory=dict)
    """Receipt → documents of which it destroyed a key."""
    lost: dict[UUID, str] = field(default_factory=dict)
    """Keys that the keystore does not have, each with its tenant: it comes from a backup from before them."""

    async def run(self) -> None:
        await self._decisions()
        generations = await PgGenerations(self.storage.pool).undropped()
        found = readers(generations, STAGES, self.storage.producer_topics)
        for reader in _projecting(found):
            await self._fold(reader)
        await self._claim_at_door()
        await PgErasure(self.storage.pool).take_up(self.unreadable)
        await self._erase_again()
        for generation in generations:
            async for _ in build_indexes(self.storage.pool, generation.name):
                continue
            await ensure_vector_index(self.storage.pool, generation)
        await PgKeystore(self.storage.pool).lose(self.lost)
        for reader in found:
            await (self._place(reader) if isinstance(self.storage.log, PgLog) else self._reach(reader))

    async def _decisions(self) -> None:
        """All of them, also those that stage control had not come to: they tell which generations there are."""
        ledger = PgLedger(self.storage.pool, None)
        async for stored in self.storage.log.read(control.STAGE.topic):
            await self._claim(control.STAGE, ledger, [stored])

    async def _fold(self, reader: Reader) -> None:
        """Up to where the readers' group had come: what it has not acknowledged, its readers will claim, and react to."""
        ledger = PgLedger(self.storage.pool, None if reader.stage.shared else reader.generation)
        batch: list[StoredRecord] = []
        async for stored in self.storage.log.read(reader.topic, end=await self._barrier(reader)):
            batch.append(stored)
            if len(batch) >= BATCH:
                await self._claim(reader.stage, ledger, batch)
                batch = []
        if batch:
            await self._claim(reader.stage, ledger, batch)

    async def _barrier(self, reader: Reader) -> Mapping[int, int]:
        ends = await self.storage.ends(reader.topic)
        read = await self.storage.log.acknowledged(reader.group, reader.topic)
        return {partition: read.get(partition, 0) for partition in ends} if read else ends

    async def _claim(self, stage: Stage, ledger: PgLedger, batch: Sequence[StoredRecord]) -> None:
        events = [event for stored in batch if (event := await self._projected(stage, stored)) is not None]
        self.events += len(events)
        if events:
            await ledger.claim(stage.name, stage.counts, events)

    async def _projected(self, stage: Stage, stored: StoredRecord) -> Projected | None:
        """None for what was buried when it came first, and for what was erased: there is nothing to project."""
        try:
            fact = await self.storage.codec.decode(stored)
            self._note_erasure(fact.data)
            self._note_destruction(fact.data)
            return Projected(fact, tuple(stage.project(fact)))
        except NewerVersion:
            raise
        except PermanentError as error:
            if error.code == KEY_MISSING:
                self.lost |= sealed_with(stored)
            return None

    def _note_erasure(self, data: Event) -> None:
        if isinstance(data, DocumentRemoved) and data.reason and data.reason.startswith(REASON):
            self.erased.setdefault((data.tenant, data.reason.removeprefix(REASON)), set()).add(data.document_id)

    def _note_destruction(self, data: Event) -> None:
        if isinstance(data, KeysDestroyed):
            self.destroyed.update((str(key), data.receipt_id) for key in data.keys)

    def _note_unreadable(self, stored: StoredRecord) -> None:
        """Its row does not come back, and an erasure that is not done has its blobs still to find."""
        headers = stored.record.headers
        receipt, document = self.destroyed.get(headers.get("ce_keyid", b"").decode()), headers.get("ce_document")
        if receipt is not None and document:
            self.unreadable.setdefault(receipt, set()).add(UUID(document.decode()))

    async def _erase_again(self) -> None:
        """What was erased of a tenant whose events stay readable has come back with them. Whoever names a receipt that there is not erases nothing."""
        receipts, tables = PgReceipts(self.storage.pool), PgErasure(self.storage.pool)
        known = {(tenant, str(receipt)) for tenant in {tenant for tenant, _ in self.erased} for receipt in await receipts.done(tenant)}
        for tenant, receipt in sorted(known & self.erased.keys()):
            documents = sorted(self.erased[tenant, receipt])
            await tables.forget(UUID(receipt), await tables.traces(tenant, documents, all_of_tenant=False))
            await tables.sweep(UUID(receipt), tenant, documents, before=await tables.now(), readable=True)

    async def _claim_at_door(self) -> None:
        found = await let_in(self.storage)
        for stored in found.unreadable:
            self._note_unreadable(stored)
        await claim_at_door(self.storage.pool, list(found.known.items()))
        await restore_owners(self.storage.pool, found.owners)

    async def _reach(self, reader: Reader) -> None:
        """What its group has acknowledged is in the tables now. The door begins at the start again: it knows what it has let in."""
        read = await self.storage.log.acknowledged(reader.group, reader.topic)
        await self.storage.reached.note(reader.group, reader.topic, dict.fromkeys(read, 0) if reader.stage.counts == "door" else read)

    async def _place(self, reader: Reader) -> None:
        """The door begins at the start again: it knows what it has let in."""
        stage, generation = reader.stage, reader.generation
        if stage.counts == "door":
            return
        claimed_as = "" if stage.shared else generation.name
        await place_reader(self.storage.pool, reader.group, reader.topic, claimed_as, stage.name, _shows_in(reader), over=_over_after(stage))


def _shows_in(reader: Reader) -> list[str]:
    """Topics in which one would find what a reaction stated; none where it states nothing."""
    stage, topics = reader.stage, reader.generation.topics
    if stage.react is None:
        return []
    if stage.name == announce.STAGE.name:
        return [OUTCOMES, DEAD_LETTERS]
    output = CONTROL if stage.name == erase.STAGE.name else stage.output and topics.get(stage.output, stage.output)
    return [output, OUTCOMES, DEAD_LETTERS] if output else []


def _over_after(stage: Stage) -> timedelta | None:
    """Of what only outcomes tell nothing can be found once they are forgotten; nobody waits for it any more."""
    return timedelta(milliseconds=RETENTION_MS[OUTCOMES]) if stage.name == announce.STAGE.name else None


def _projecting(found: Sequence[Reader]) -> list[Reader]:
    """One for each generation and stage that writes rows."""
    first: dict[tuple[str, str], Reader] = {}
    for reader in found:
        if reader.stage.project is not nothing and reader.stage.name != control.STAGE.name:
            first.setdefault((reader.generation.name, reader.stage.name), reader)
    return list(first.values())
