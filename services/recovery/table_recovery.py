"""Fill empty tables from the log. No stage reacts, no engine is called and nothing is published."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from processors import STAGES, announce, control, erase
from schemas.batching import collect_evenly
from schemas.errors import ConfigurationError, DataErased, NewerVersion, PermanentError
from schemas.events import (
    AmendmentAccepted,
    DocumentAccepted,
    DocumentRemoved,
    EventData,
    KeysDestroyed,
)
from schemas.ports.ledger import OrderingPolicy, ProjectedEvent
from schemas.topics import ACCEPTED, CONTROL, DEAD_LETTERS, OUTCOMES, StoredRecord
from services.erasure.eraser import REASON_PREFIX
from services.erasure.key_destruction import reapply_key_destruction
from services.generations.decisions import find_current_generation
from services.generations.stage_assignments import StageAssignment, assign_stages
from services.storage import Storage
from sql.catalog.revisions import restore_owners
from sql.inbox.entries import ERASED_PAYLOAD, reset_reader_cursor, restore_inbox
from sql.inbox.ledger import PgLedger
from sql.index.partitions import build_indexes
from sql.index.search import ensure_vector_index
from sql.operations.erasure import PgErasure, PgErasureReceipts
from sql.operations.keystore import PgKeystore
from streams.payload_keys import KEY_MISSING
from streams.stage import Stage

log = structlog.get_logger(__name__)
BATCH_SIZE = 256


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    events: int
    rows: int
    seconds: float
    rows_per_second: int
    engine_calls: int
    documents_without_keys: list[str]
    """Documents with events whose keys the keystore lacks. Ingress takes them in again as far as
    topic `raw` holds them."""


async def recover_tables(storage: Storage) -> RecoveryReport | None:
    """Fill empty tables from the log.

    Returns None if there are tables already, or if the log has no generation. Raises
    LogUnavailable, DatabaseUnavailable, NewerVersion. An interrupted call leaves partial tables:
    empty the database and call again.
    """
    generations = storage.generations
    if (
        await generations.list_names()
        or await find_current_generation(generations, storage.log, storage.codec) is None
    ):
        return None
    # Before anything is decoded: a keystore from a backup may still have destroyed keys.
    await reapply_key_destruction(storage.log, storage.codec, storage.pool, storage.key_file)
    await _check_keys(storage)
    started_at = time.perf_counter()
    recovery = TableRecovery(storage)
    await recovery.run()
    seconds = time.perf_counter() - started_at
    build_store = storage.builds
    rows = sum(
        [
            await build_store.count_rows(generation.name)
            for generation in await generations.fetch_undropped()
        ]
    )
    if recovery.documents_without_keys:
        log.warning("keys_missing", documents=sorted(recovery.documents_without_keys))
    return RecoveryReport(
        events=recovery.event_count,
        rows=rows,
        seconds=round(seconds, 2),
        rows_per_second=round(rows / max(seconds, 0.01)),
        engine_calls=0,
        documents_without_keys=sorted(recovery.documents_without_keys),
    )


async def _check_keys(storage: Storage) -> None:
    """Raise if no accepted event can be decrypted. Events whose keys were destroyed are ignored."""
    unreadable = 0
    async for stored in storage.log.read(ACCEPTED):
        try:
            await storage.codec.decode(stored)
        except DataErased:
            continue
        except PermanentError:
            unreadable += 1
            continue
        return
    if unreadable:
        raise ConfigurationError(
            f"None of the {unreadable} accepted documents in the log can be decrypted with the "
            "keys in this database.",
            code="KEYSTORE_MISSING",
            remedy="Restore schema `keystore` from its backup, then rebuild.",
        )


@dataclass(slots=True)
class TableRecovery:
    storage: Storage
    event_count: int = 0
    erased_documents: dict[tuple[str, str], set[UUID]] = field(default_factory=dict)
    """(tenant, receipt) to documents that an erasure withdrew and whose events are readable."""
    destroyed_keys: dict[str, UUID] = field(default_factory=dict)
    """Key to the receipt of its erasure."""
    unreadable_documents: dict[UUID, set[UUID]] = field(default_factory=dict)
    """Receipt to the documents whose keys it destroyed."""
    missing_keys: dict[UUID, str] = field(default_factory=dict)
    """Keys that the keystore lacks, with their tenants: it is older than they are."""
    documents_without_keys: set[str] = field(default_factory=set)

    async def run(self) -> None:
        control_ledger = PgLedger(self.storage.pool, None)
        # All decisions determine the generations, also those that stage `control` has not consumed.
        async for stored in self.storage.log.read(control.STAGE.topic):
            await self._claim(control.STAGE, control_ledger, [stored])
        generations = await self.storage.generations.fetch_undropped()
        assignments = assign_stages(generations, STAGES, self.storage.producer_topics)
        projected: set[tuple[str, str]] = set()
        for assignment in assignments:
            target = (assignment.generation.name, assignment.stage.name)
            if not assignment.stage.projects or assignment.stage.name == control.STAGE.name:
                continue
            # A successor is a second assignment of the same stage, with the same rows.
            if target not in projected:
                projected.add(target)
                await self._project_topic(assignment)
        # Ingress projects no rows; its claims follow from the events that it has accepted.
        await self._restore_ingress()
        await PgErasure(self.storage.pool).add_subjects(self.unreadable_documents)
        # After the projections, which have brought erased documents back where events are readable.
        await self._reapply_erasures()
        # After the rows, as in a build.
        for generation in generations:
            async for _ in build_indexes(self.storage.pool, generation.name):
                continue
            await ensure_vector_index(self.storage.pool, generation)
        # Consumers continue where the projection above ended.
        for assignment in assignments:
            await self._resume_group(assignment)
        # Without its key an event is as unreadable as an erased one, and skipped like it.
        for key, tenant in self.missing_keys.items():
            await PgKeystore(self.storage.pool).destroy(tenant, [key])

    async def _project_topic(self, assignment: StageAssignment) -> None:
        """Project up to the group's committed offset. Its consumers claim the rest, and react to
        it.
        """
        ledger = PgLedger(
            self.storage.pool,
            None if assignment.stage.serves_all_generations else assignment.generation,
        )
        ends = await self.storage.fetch_ends(assignment.topic)
        acknowledged = await self.storage.log.fetch_committed_offsets(
            assignment.group, assignment.topic
        )
        # Without any committed offset nothing tells how far the group had read: project all of it.
        barrier = (
            {partition: acknowledged.get(partition, 0) for partition in ends}
            if acknowledged
            else ends
        )
        records = self.storage.log.read(assignment.topic, end=barrier)
        async for batch in collect_evenly(records, BATCH_SIZE):
            await self._claim(assignment.stage, ledger, batch)

    async def _claim(self, stage: Stage, ledger: PgLedger, batch: Sequence[StoredRecord]) -> None:
        events = [
            event
            for stored in batch
            if (event := await self._to_projected(stage, stored)) is not None
        ]
        self.event_count += len(events)
        if events:
            # Only the first transaction: rows and claims, but no reaction.
            await ledger.claim(stage.name, stage.ordering_policy, events)

    async def _to_projected(self, stage: Stage, stored: StoredRecord) -> ProjectedEvent | None:
        """Return None for events that were dead-lettered or erased: they have no rows."""
        try:
            event = await self.storage.codec.decode(stored)
            self._record_erasure(event.data)
            return ProjectedEvent(event, tuple(stage.project(event)))
        except NewerVersion:
            raise
        except PermanentError as error:
            if error.code == KEY_MISSING:
                self.missing_keys |= parse_encryption_key(stored)
                if document := stored.record.headers.get("ce_document"):
                    self.documents_without_keys.add(document.decode())
            return None

    def _record_erasure(self, data: EventData) -> None:
        if isinstance(data, KeysDestroyed):
            self.destroyed_keys.update((str(key), data.receipt_id) for key in data.keys)
        elif (
            isinstance(data, DocumentRemoved)
            and data.reason
            and data.reason.startswith(REASON_PREFIX)
        ):
            self.erased_documents.setdefault(
                (data.tenant, data.reason.removeprefix(REASON_PREFIX)), set()
            ).add(data.document_id)

    async def _reapply_erasures(self) -> None:
        """Erase again what came back with readable events.

        Receipts that are not completed, or forged, are ignored.
        """
        receipts, tables = PgErasureReceipts(self.storage.pool), PgErasure(self.storage.pool)
        completed = {
            (tenant, str(receipt))
            for tenant in {tenant for tenant, _ in self.erased_documents}
            for receipt in await receipts.list_completed(tenant)
        }
        for tenant, receipt in sorted(completed & self.erased_documents.keys()):
            documents = sorted(self.erased_documents[tenant, receipt])
            await tables.erase_citing_records(
                UUID(receipt),
                await tables.find_citing_records(tenant, documents, all_of_tenant=False),
            )
            await tables.erase_rows(
                UUID(receipt), tenant, documents, before=await tables.fetch_time(), readable=True
            )

    async def _restore_ingress(self) -> None:
        for stored in await restore_ingress(self.storage):
            headers = stored.record.headers
            receipt = self.destroyed_keys.get(headers.get("ce_keyid", b"").decode())
            # An unfinished erasure still has to find the blobs of the document.
            if receipt is not None and (document := headers.get("ce_document")):
                self.unreadable_documents.setdefault(receipt, set()).add(UUID(document.decode()))

    async def _resume_group(self, assignment: StageAssignment) -> None:
        """Set the offsets from which the group continues.

        `receive` starts at 0: its inbox makes redelivered events a no-op.
        """
        stage, group, topic = assignment.stage, assignment.group, assignment.topic
        is_ingress = stage.ordering_policy == OrderingPolicy.ONCE_PER_ID
        if not self.storage.log.is_in_database:
            acknowledged = await self.storage.log.fetch_committed_offsets(group, topic)
            await self.storage.offset_store.store_offsets(
                group, topic, dict.fromkeys(acknowledged, 0) if is_ingress else acknowledged
            )
        elif not is_ingress:
            await reset_reader_cursor(
                self.storage.pool,
                group,
                topic,
                "" if stage.serves_all_generations else assignment.generation.name,
                stage.name,
                _list_output_topics(assignment),
                # Older outcomes have expired.
                max_age=OUTCOMES.retention if stage.name == announce.STAGE.name else None,
                missing_keys=self.missing_keys,
            )


def _list_output_topics(assignment: StageAssignment) -> list[str]:
    """List the topics to which the stage's reaction emits."""
    stage, topics = assignment.stage, assignment.generation.topics
    if stage.react is None:
        return []
    if stage.name == announce.STAGE.name:
        return [OUTCOMES, DEAD_LETTERS]
    output = (
        CONTROL
        if stage.name == erase.STAGE.name
        else stage.output_topic and topics.get(stage.output_topic, stage.output_topic)
    )
    return [output, OUTCOMES, DEAD_LETTERS] if output else []


async def restore_ingress(
    storage: Storage, start_offsets: Mapping[str, Mapping[int, int]] | None = None
) -> list[StoredRecord]:
    """Restore inbox and owners of stage `receive` from the accepted events, from the given offsets
    by topic and partition. Return the accepted records whose keys are destroyed.

    Events whose keys are missing are left out: stage `receive` admits them again if `raw` still
    holds them.
    """
    starts = start_offsets or {}
    payload_hashes: dict[UUID, str] = {}
    owners: dict[UUID, tuple[str, str]] = {}
    erased_records: list[StoredRecord] = []
    # An erased event may have been dead-lettered instead of accepted; its claim is marked too.
    async for stored in storage.log.read(DEAD_LETTERS, starts.get(DEAD_LETTERS)):
        try:
            await storage.codec.decode(stored)
        except DataErased:
            payload_hashes |= _mark_cause_erased(stored)
        except PermanentError:
            continue
    async for stored in storage.log.read(ACCEPTED, starts.get(ACCEPTED)):
        try:
            event = await storage.codec.decode(stored)
        except DataErased:
            payload_hashes |= _mark_cause_erased(stored)
            erased_records.append(stored)
            continue
        except PermanentError:
            continue
        data = event.data
        if (
            isinstance(data, DocumentAccepted | AmendmentAccepted | DocumentRemoved)
            and event.causation_id is not None
        ):
            payload_hashes[event.causation_id] = data.payload_sha256
            if isinstance(data, DocumentAccepted):
                owners[data.document_id] = (data.tenant, data.origin.source)
    await restore_inbox(storage.pool, list(payload_hashes.items()))
    await restore_owners(storage.pool, owners)
    return erased_records


def parse_encryption_key(stored: StoredRecord) -> dict[UUID, str]:
    """Map the key that encrypted the record to its tenant; empty for a readable record."""
    key, tenant = (
        stored.record.headers.get(name, b"").decode() for name in ("ce_keyid", "ce_tenant")
    )
    return {UUID(key): tenant} if key else {}


def _mark_cause_erased(stored: StoredRecord) -> dict[UUID, str]:
    cause = stored.record.headers.get("ce_causationid")
    return {UUID(cause.decode()): ERASED_PAYLOAD} if cause else {}
