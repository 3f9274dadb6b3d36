"""A small corpus with a retriever over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from retrieval.profiles import ProfileCatalog
from retrieval.ranking.query_context import QueryEmbeddingCache, RetrievalResources
from retrieval.ranking.reranking import TokenStateReader
from retrieval.retriever import Retriever
from retrieval.runs.answer_cache import AnswerCache
from schemas.budgets import NO_PRICES, PriceTable
from schemas.events import EventData
from schemas.ports.engines import ChatModel
from schemas.ports.graph import GraphServer
from schemas.profiles import Profile
from schemas.questions import QueryRequest, QueryResponse, SearchRequest, SearchResponse
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import (
    GuessedLanguageDetector,
    MemoryBlobs,
    ScriptedChat,
    SteppingClock,
    WordEmbedder,
    WordReranker,
    embed_text,
    pack_states,
    unpack_states,
)
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex

RUN_ID = UUID(int=7)
COST_QUESTION = "How much does the replacement of the bearing cost?"
PUMP = (
    "The bearing of the coolant pump is replaced every two years. The replacement costs 18,740 "
    "euros. Two technicians need one day for it."
)
LEASE = (
    "The lease of the warehouse ends on 31 March 2027. The landlord is Harbour Estates. The "
    "rent is paid each quarter."
)
STAFF = (
    "New staff receive safety training in their first week. The training officer keeps the "
    "records for five years."
)
VACATION_PT = (
    "Os trabalhadores têm direito a vinte e dois dias de férias. O pedido de férias é "
    "feito até ao fim de março."
)
PRICE_TABLE = (
    "| Part | Price | Supplier |\n|---|---|---|\n"
    "| Bearing seal | 45 EUR | Acme |\n| Impeller | 310 EUR | Borealis |"
)
FILLER_PARAGRAPHS = [
    (
        f"Paragraph {n} of the annual report describes topic {n} with figures about region {n * 7} "
        f"and product line {n * 3}."
    )
    for n in range(30)
]


@dataclass
class RetrievalHarness:
    """All parts of a retriever, open to the test."""

    index: MemoryIndex = field(default_factory=MemoryIndex)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    embedder: WordEmbedder = field(default_factory=WordEmbedder)
    reranker: WordReranker | None = field(default_factory=WordReranker)
    chat: ScriptedChat | None = None
    planner: ChatModel | None = None
    router: ChatModel | None = None
    judge: ChatModel | None = None
    graph: GraphServer | None = None
    prices: PriceTable = NO_PRICES
    profiles: list[Profile] = field(default_factory=list)
    published_events: list[EventData] = field(default_factory=list)

    def add(
        self,
        external_id: str,
        *texts: str,
        title: str | None = None,
        language: str = "en",
        kind: str = "paragraph",
        names: tuple[str, ...] = (),
        collection: str | None = None,
        one_parent: bool = False,
        separator: str = "\n\n",
        spans: Sequence[Mapping[str, object]] = (),
        warning_codes: Sequence[str] = (),
    ) -> None:
        children = [
            replace(self._make_child(external_id, text, kind), spans=spans) for text in texts
        ]
        self.index.add(
            IndexedDocument(
                external_id,
                [children] if one_parent else [[child] for child in children],
                title,
                language,
                names,
                collection=collection,
                separator=separator,
                warning_codes=warning_codes,
            )
        )

    def _make_child(self, external_id: str, text: str, kind: str) -> IndexedChild:
        data = pack_states(text)
        key = f"states/{external_id}"
        offset = len(self.blobs.data.get(key, b""))
        self.blobs.data[key] = self.blobs.data.get(key, b"") + data
        return IndexedChild(
            text, kind=kind, vector=embed_text(text), states=(key, offset, len(data))
        )  # type: ignore[arg-type]

    def make_retriever(
        self, *, answers: AnswerCache | None = None, questions: QueryEmbeddingCache | None = None
    ) -> Retriever:
        resources = RetrievalResources(
            self.index,
            self.embedder,
            self.reranker,
            self.chat,
            TokenStateReader(self.blobs, unpack_states),
            SteppingClock(),
            questions,
            self.planner,
            self.router,
            self.judge,
            graph=self.graph,
        )
        return Retriever(
            resources,
            GuessedLanguageDetector(),
            ProfileCatalog(
                {
                    "workflow": {
                        profile.name: profile.model_dump(mode="json", exclude={"name"})
                        for profile in self.profiles
                    }
                }
            ),
            self.published_events.append,
            answer_cache=answers,
            prices=self.prices,
        )

    async def query(self, question: str = COST_QUESTION, **fields: Any) -> QueryResponse:
        request = QueryRequest(query=question, **fields)
        return await self.make_retriever().query(LOCAL_CALLER, request, RUN_ID)

    async def search(self, question: str = COST_QUESTION, **fields: Any) -> SearchResponse:
        request = SearchRequest(query=question, **fields)
        return await self.make_retriever().search(LOCAL_CALLER, request, RUN_ID)


def make_harness() -> RetrievalHarness:
    built = RetrievalHarness()
    built.add("pump", PUMP, title="Maintenance plan", names=("coolant pump",))
    built.add("lease", LEASE, title="Lease", names=("Harbour Estates",))
    built.add("staff", STAFF, title="Handbook")
    built.add("ferias", VACATION_PT, title="Regulamento", language="pt")
    built.add("prices", PRICE_TABLE, title="Price list", kind="table")
    for number, text in enumerate(FILLER_PARAGRAPHS):
        built.add(f"report-{number}", text, title="Annual report")
    return built
