"""A small corpus with a retriever over it."""

from __future__ import annotations

from dataclasses import dataclass, field

from retrieval.pipeline import Retriever
from retrieval.profiles import Profiles
from retrieval.remembered import RememberedAnswers, RememberedQuestions
from schemas.events import Event
from schemas.profiles import Profile
from tests.unit.retrieval_fakes import (
    Folded,
    FullStops,
    GuessedLanguages,
    MemoryBlobs,
    ScriptedChat,
    SteppingClock,
    WordEmbedder,
    WordMaxSim,
    packed,
    unpack,
    vector_of,
)
from tests.unit.retrieval_index import Child, Document, MemoryIndex

PUMP = "The bearing of the coolant pump is replaced every two years. The replacement costs 18,740 euros. Two technicians need one day for it."
LEASE = "The lease of the warehouse ends on 31 March 2027. The landlord is Harbour Estates. The rent is paid each quarter."
STAFF = "New staff receive safety training in their first week. The training officer keeps the records for five years."
FERIAS = "Os trabalhadores têm direito a vinte e dois dias de férias. O pedido de férias é feito até ao fim de março."
TABLE = "| Part | Price | Supplier |\n|---|---|---|\n| Bearing seal | 45 EUR | Acme |\n| Impeller | 310 EUR | Borealis |"
FILLER = [f"Paragraph {n} of the annual report describes topic {n} with figures about region {n * 7} and product line {n * 3}." for n in range(30)]


@dataclass
class House:
    """Everything a retriever needs, each part open to the test."""

    index: MemoryIndex = field(default_factory=MemoryIndex)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    embedder: WordEmbedder = field(default_factory=WordEmbedder)
    reranker: WordMaxSim | None = field(default_factory=WordMaxSim)
    chat: ScriptedChat | None = None
    profiles: list[Profile] = field(default_factory=list)
    published: list[Event] = field(default_factory=list)

    def add(self, external_id: str, *texts: str, title: str | None = None, language: str = "en", kind: str = "paragraph", names: tuple[str, ...] = ()) -> None:
        children = [[self._child(external_id, text, kind)] for text in texts]
        self.index.add(Document(external_id, children, title, language, names))

    def _child(self, external_id: str, text: str, kind: str) -> Child:
        data = packed(text)
        key = f"states/{external_id}"
        offset = len(self.blobs.data.get(key, b""))
        self.blobs.data[key] = self.blobs.data.get(key, b"") + data
        return Child(text, kind=kind, vector=vector_of(text), states=(key, offset, len(data)))  # type: ignore[arg-type]

    def retriever(self, *, answers: RememberedAnswers | None = None, questions: RememberedQuestions | None = None) -> Retriever:
        return Retriever(
            self.index,
            self.embedder,
            self.reranker,
            self.chat,
            self.blobs,
            GuessedLanguages(),
            FullStops(),
            Folded(),
            unpack,
            Profiles({profile.name: profile for profile in self.profiles}),
            SteppingClock(),
            self.published.append,
            answers=answers,
            questions=questions,
        )


def house() -> House:
    built = House()
    built.add("pump", PUMP, title="Maintenance plan", names=("coolant pump",))
    built.add("lease", LEASE, title="Lease", names=("Harbour Estates",))
    built.add("staff", STAFF, title="Handbook")
    built.add("ferias", FERIAS, title="Regulamento", language="pt")
    built.add("prices", TABLE, title="Price list", kind="table")
    for number, text in enumerate(FILLER):
        built.add(f"report-{number}", text, title="Annual report")
    return built
