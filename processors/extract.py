"""Extract names, relations and claims from chunks.

Projects nothing: stage `embed` projects the same topic, and stage `graph` projects the extracted
entities.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from engines.extract.relations import unify_types
from schemas.events import DocumentChunked, DocumentTranscribed, EntitiesExtracted, Event
from schemas.ports.engines import Extractor
from schemas.ports.ledger import ClaimStatus, MemoKey, OrderingPolicy
from schemas.ports.stage_ports import StagePorts
from schemas.topics import CHUNKED
from schemas.values import Claim as Property
from schemas.values import Extraction, Mention, ParentChunk, Relation
from streams.stage import Emission, PendingEvent, Stage, build_memo_key, memoize

VERSION = 2
ExtractedT = TypeVar("ExtractedT", Mention, Relation, Property)


async def react(pending_events: Sequence[PendingEvent], ports: StagePorts) -> list[Emission]:
    """Look up all passages of the group in the cache at once, then call the engine event by event.

    Results of one event are stored before the next one starts, so that they survive its failure.
    """
    events: list[Event[DocumentChunked]] = [
        pending_event.event
        for pending_event in pending_events
        # Stage `embed` reads the same topic and reports superseded revisions.
        if pending_event.status is not ClaimStatus.SUPERSEDED
    ]
    requests = []
    for event in events:
        data = event.data
        engine = choose_extractor(data, ports.extractor).fingerprint
        passages = [ExtractionInput.from_parent(parent) for parent in data.parents]
        keys = [
            passage.make_memo_key(data.tenant, data.document_id, data.language, engine)
            for passage in passages
        ]
        requests.append((event, passages, keys))
    cached_results = dict(
        await ports.memo.fetch(list({key for _, _, keys in requests for key in keys}))
    )
    return [
        await _extract_entities(event, passages, keys, cached_results, ports)
        for event, passages, keys in requests
    ]


@dataclass(frozen=True, slots=True)
class ExtractionInput:
    """A parent as the extractor sees it, independent of its position in the document.

    Offsets count from the start of the parent, and chunks are numbered, so that results can be
    cached by text.
    """

    parent: ParentChunk
    start: int
    chunks: tuple[UUID, ...]

    @classmethod
    def from_parent(cls, parent: ParentChunk) -> ExtractionInput:
        start = parent.char_start
        children = [
            # Remove what depends on the place in the document, so that equal texts have equal keys.
            child.model_copy(
                update={
                    "id": UUID(int=number),
                    "ordinal": number,
                    "prefix": "",
                    "char_start": child.char_start - start,
                    "char_end": child.char_end - start,
                    "spans": [
                        span.shift(-start) for span in child.spans if span.raw_cells is not None
                    ],
                }
            )
            for number, child in enumerate(parent.children)
        ]
        relative_parent = parent.model_copy(
            update={
                "id": UUID(int=0),
                "ordinal": 0,
                "char_start": 0,
                "char_end": parent.char_end - start,
                "pages": [],
                "children": children,
            }
        )
        return cls(relative_parent, start, tuple(child.id for child in parent.children))

    def make_memo_key(
        self, tenant: str, document_id: UUID, language: str | None, engine: str
    ) -> MemoKey:
        return build_memo_key(
            tenant,
            document_id,
            engine,
            f"{language or ''}\n{self.parent.model_dump_json()}".encode(),
        )

    def to_document_offsets(self, extraction: Extraction) -> Extraction:
        """Convert an extraction to offsets and chunk ids of the document."""
        return Extraction(
            mentions=[self._shift_to_document(mention) for mention in extraction.mentions],
            relations=[self._shift_to_document(relation) for relation in extraction.relations],
            claims=[self._shift_to_document(claim) for claim in extraction.claims],
        )

    def _shift_to_document(self, extracted_item: ExtractedT) -> ExtractedT:
        update = {
            # The input's chunk ids are ordinals, see `from_parent`.
            "chunk_id": self.chunks[extracted_item.chunk_id.int],
            "char_start": extracted_item.char_start + self.start,
            "char_end": extracted_item.char_end + self.start,
        }
        return extracted_item.model_copy(update=update)


def choose_extractor(data: DocumentChunked | DocumentTranscribed, default: Extractor) -> Extractor:
    """Return the extractor with the schema of the document's collection, if it has one."""
    return default.with_schema(data.extract) if data.extract else default


def list_memo_keys(
    tenant: str,
    document_id: UUID,
    language: str | None,
    parents: Sequence[ParentChunk],
    engine: str,
) -> list[MemoKey]:
    """Return the cache keys of these passages for the extractor with this fingerprint."""
    return [
        ExtractionInput.from_parent(parent).make_memo_key(tenant, document_id, language, engine)
        for parent in parents
    ]


async def _extract_entities(
    event: Event[DocumentChunked],
    inputs: Sequence[ExtractionInput],
    keys: Sequence[MemoKey],
    cached_results: dict[MemoKey, bytes],
    ports: StagePorts,
) -> Emission:
    """Extract the entities of one part, and add new results to `cached_results`."""
    data, semaphore = event.data, asyncio.Semaphore(ports.parallel_extractions)
    extractor = choose_extractor(data, ports.extractor)

    async def extract_all(positions: list[int]) -> list[bytes]:
        return await asyncio.gather(*(extract(inputs[position].parent) for position in positions))

    async def extract(parent: ParentChunk) -> bytes:
        async with semaphore:
            return (await extractor.extract([parent], data.language)).model_dump_json().encode()

    results = await memoize(ports.memo, keys, extract_all, cached_results)
    # Later parts of the document may contain the same passage.
    cached_results |= zip(keys, results, strict=True)
    extractions = [Extraction.model_validate_json(result) for result in results]
    entities = unify_types(
        [
            extraction_input.to_document_offsets(result)
            for extraction_input, result in zip(inputs, extractions, strict=True)
        ]
    )
    entities_data = EntitiesExtracted(
        tenant=data.tenant,
        document_id=data.document_id,
        order=data.order,
        origin=data.origin,
        part=data.part,
        parts=data.parts,
        mentions=entities.mentions,
        relations=entities.relations,
        claims=entities.claims,
    )
    return Emission(event, entities_data, ordinal=1)


STAGE = Stage(
    "extract",
    CHUNKED,
    VERSION,
    ordering_policy=OrderingPolicy.VISIBLE,
    react=react,
    batch_size=8,
    fails_document=False,
    emits=(EntitiesExtracted,),
)
