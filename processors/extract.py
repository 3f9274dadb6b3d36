"""Chunks to names, relations and claims. Projects nothing: its topic is projected by `embed`, its facts by `graph`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from engines.extract.agreement import agreed
from schemas.events import DocumentChunked, EntitiesExtracted, Fact
from schemas.ports.bundle import Ports
from schemas.ports.ledger import Claim, MemoKey
from schemas.values import Claim as Property
from schemas.values import Extraction, Mention, ParentChunk, Relation
from streams.memo import memo_key, remembered
from streams.stage import Counted, Stage, Statement
from streams.topics import CHUNKED, ENTITIES

VERSION = 2
PARALLEL = 4
"""Passages of one part that are asked about at once."""
Found = TypeVar("Found", Mention, Relation, Property)


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    """The memo is asked for all passages of the group at once; the engine for each fact's, so that its answers are kept if another one fails."""
    facts: list[Fact[DocumentChunked]] = [item.fact for item in counted if item.claim is not Claim.SUPERSEDED]
    asked = [(fact, *_asked(fact.data, ports.extractor.fingerprint)) for fact in facts]
    known = dict(await ports.memo.recall(list({key for _, _, keys in asked for key in keys})))
    return [await _extracted(fact, passages, keys, known, ports) for fact, passages, keys in asked]


def _asked(data: DocumentChunked, engine: str) -> tuple[list[Passage], list[MemoKey]]:
    passages = [Passage.of(parent) for parent in data.parents]
    return passages, [passage.key(data.tenant, data.document_id, data.language, engine) for passage in passages]


@dataclass(frozen=True, slots=True)
class Passage:
    """A parent as an extractor sees it: by its words alone, wherever it stands. Its places count from its own start, its chunks are numbered."""

    parent: ParentChunk
    start: int
    chunks: tuple[UUID, ...]

    @classmethod
    def of(cls, parent: ParentChunk) -> Passage:
        start, text = parent.char_start, {"ordinal": 0, "char_start": 0, "char_end": parent.char_end - parent.char_start, "pages": [], "id": UUID(int=0)}
        children = [
            child.model_copy(
                update={"id": UUID(int=n), "ordinal": n, "prefix": "", "char_start": child.char_start - start, "char_end": child.char_end - start, "spans": []}
            )
            for n, child in enumerate(parent.children)
        ]
        return cls(parent.model_copy(update={**text, "children": children}), start, tuple(child.id for child in parent.children))

    def key(self, tenant: str, document: UUID, language: str | None, engine: str) -> MemoKey:
        return memo_key(tenant, document, engine, f"{language or ''}\n{self.parent.model_dump_json()}".encode())

    def placed(self, answer: Extraction) -> Extraction:
        """In the document."""
        return Extraction(
            mentions=[self._placed(mention) for mention in answer.mentions],
            relations=[self._placed(relation) for relation in answer.relations],
            claims=[self._placed(claim) for claim in answer.claims],
        )

    def _placed(self, found: Found) -> Found:
        place = {"chunk_id": self.chunks[found.chunk_id.int], "char_start": found.char_start + self.start, "char_end": found.char_end + self.start}
        return found.model_copy(update=place)


def question_keys(tenant: str, document: UUID, language: str | None, parents: Sequence[ParentChunk], engine: str) -> list[MemoKey]:
    """What an extractor of this fingerprint is asked about some passages of a document."""
    return [Passage.of(parent).key(tenant, document, language, engine) for parent in parents]


async def _extracted(fact: Fact[DocumentChunked], passages: Sequence[Passage], keys: Sequence[MemoKey], known: dict[MemoKey, bytes], ports: Ports) -> Statement:
    """Adds to what is known."""
    data, gate = fact.data, asyncio.Semaphore(PARALLEL)

    async def ask(places: list[int]) -> list[bytes]:
        return await asyncio.gather(*(one(passages[place].parent) for place in places))

    async def one(parent: ParentChunk) -> bytes:
        async with gate:
            return (await ports.extractor.extract([parent], data.language)).model_dump_json().encode()

    said = await remembered(ports.memo, keys, ask, known)
    known |= zip(keys, said, strict=True)
    answers = [Extraction.model_validate_json(answer) for answer in said]
    found = agreed([passage.placed(answer) for passage, answer in zip(passages, answers, strict=True)])
    event = EntitiesExtracted(
        tenant=data.tenant,
        document_id=data.document_id,
        order=data.order,
        origin=data.origin,
        part=data.part,
        parts=data.parts,
        mentions=found.mentions,
        relations=found.relations,
        claims=found.claims,
    )
    return Statement(fact, event, ordinal=1)


STAGE = Stage("extract", CHUNKED, VERSION, counts="visible", react=react, batch=8, essential=False, output=ENTITIES)
