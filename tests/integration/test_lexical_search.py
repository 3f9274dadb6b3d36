"""Compare the lexical channel with an independent BM25 over other stems."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from math import log
from uuid import UUID

import pytest
import snowballstemmer

from schemas.generations import LexicalConfig
from schemas.ports.search import LexicalHits
from schemas.questions import Filters
from sql.index.lexical import SPARE_HITS, compact_lexical, resolve_text_search_config
from tests.support.document_rows import SampleDocument, activate_revision, insert_documents
from tests.support.search_stack import SearchStack, open_search_stack

NO_FILTERS = Filters()
ENGLISH = [
    f"{head}{tail}"
    for head in (
        "bark",
        "drum",
        "grip",
        "lamp",
        "mast",
        "plank",
        "quilt",
        "stork",
        "tramp",
        "wharf",
    )
    for tail in ("ing", "ed", "s", "")
]
PORTUGUESE = [
    "barragem",
    "colheita",
    "descarga",
    "enchente",
    "farinha",
    "granito",
    "hortelã",
    "inversões",
    "jangada",
    "lavoura",
    "árvores",
    "açaí",
]


def generate_words(rng: random.Random, vocabulary: Sequence[str], count: int) -> str:
    """Generate a few frequent and many rare words, as in real text."""
    return " ".join(
        vocabulary[min(int(rng.paretovariate(0.7)) - 1, len(vocabulary) - 1)] for _ in range(count)
    )


def generate_corpus() -> list[SampleDocument]:
    rng = random.Random(7)
    english = [
        SampleDocument(
            f"en-{n}", [generate_words(rng, ENGLISH, rng.randint(5, 120)) for _ in range(2)], "en"
        )
        for n in range(120)
    ]
    portuguese = [
        SampleDocument(
            f"pt-{n}", [generate_words(rng, PORTUGUESE, rng.randint(5, 60))], "pt", prefix="jangada"
        )
        for n in range(60)
    ]
    return english + portuguese


class ReferenceBm25:
    """Robertson's formula, term by term, with one index per language."""

    def __init__(
        self,
        documents: Sequence[SampleDocument],
        k1: float = 1.2,
        b: float = 0.75,
        avgdl: int = 100,
    ) -> None:
        self.k1, self.b, self.avgdl = k1, b, avgdl
        self.stem = {
            language: snowballstemmer.stemmer(name)
            for language, name in (("en", "english"), ("pt", "portuguese"))
        }
        self.chunks: dict[str, dict[UUID, Counter[str]]] = {"en": {}, "pt": {}}
        for document in documents:
            for place, text in enumerate(document.texts):
                self.chunks[document.language or ""][document.chunk_id(place)] = Counter(
                    self.stem_terms(f"{document.prefix} {text}", document.language or "")
                )

    def stem_terms(self, text: str, language: str) -> list[str]:
        return [self.stem[language].stemWord(word) for word in re.findall(r"\w+", text.lower())]

    def rank(self, question: str) -> list[tuple[UUID, float]]:
        scores = [
            item
            for language in self.chunks
            for item in self._score_chunks(
                set(self.stem_terms(question, language)), self.chunks[language]
            )
        ]
        return sorted(
            ((chunk, score) for chunk, score in scores if score > 0),
            key=lambda item: (-item[1], item[0]),
        )

    def _score_chunks(
        self, question: set[str], chunks: dict[UUID, Counter[str]]
    ) -> list[tuple[UUID, float]]:
        df = Counter(term for chunk in chunks.values() for term in chunk)
        idf = {
            term: log(1 + (len(chunks) - df[term] + 0.5) / (df[term] + 0.5)) for term in question
        }

        def score(chunk: Counter[str]) -> float:
            norm = self.k1 * (1 - self.b + self.b * chunk.total() / self.avgdl)
            return sum(
                idf[term] * chunk[term] * (self.k1 + 1) / (chunk[term] + norm) for term in question
            )

        return [(identity, score(chunk)) for identity, chunk in chunks.items()]


async def search_lexical(
    stack: SearchStack,
    text: str,
    *,
    language: str | None = "en",
    filters: Filters = NO_FILTERS,
    k: int = 20,
    budget: int = 5000,
    tenant: str = "default",
    generation: str | None = None,
) -> LexicalHits:
    async with stack.search.open_snapshot(generation) as snapshot:
        return await snapshot.search_lexical(
            tenant, text, language=language, filters=filters, k=k, budget=budget
        )


def assert_same_ranking(hits: LexicalHits, ranking: list[tuple[UUID, float]], k: int) -> None:
    """Assert equal scores in order; neighbors of nearly equal score may swap."""
    assert len(hits.hits) == min(k, len(ranking))
    expected = dict(ranking)
    for hit, (_, score) in zip(hits.hits, ranking, strict=False):
        assert hit.score == pytest.approx(score, rel=2e-3)
        assert hit.score == pytest.approx(expected[hit.chunk_id], rel=2e-3)


@pytest.mark.parametrize(
    ("k1", "b", "avgdl"),
    [
        (1.2, 0.75, 100),
        (0.4, 1.0, 30),
        pytest.param(2.0, 0.75, 100, marks=pytest.mark.long),
        pytest.param(1.2, 0.0, 100, marks=pytest.mark.long),
    ],
)
async def test_scores_match_reference_bm25_with_settings_of_generation(
    database: str, k1: float, b: float, avgdl: int
) -> None:
    documents = generate_corpus()
    plain, rng = ReferenceBm25(documents, k1, b, avgdl), random.Random(11)
    lexical = LexicalConfig(k1=k1, b=b, avgdl=avgdl)
    async with open_search_stack(database, lexical=lexical) as desk:
        await insert_documents(desk.connection, *documents)
        for _ in range(25):
            question = f"{generate_words(rng, ENGLISH, 3)} {generate_words(rng, PORTUGUESE, 2)}"
            hits = await search_lexical(desk, question)
            assert hits.exactness == "exact"
            assert_same_ranking(hits, plain.rank(question), 20)


async def test_query_stopwords_match_nothing_in_other_languages(stack: SearchStack) -> None:
    await insert_documents(
        stack.connection,
        SampleDocument("quote", ["o lema dizia the end of the road"], "pt"),
        SampleDocument("fish", ["the sardine"], "en"),
    )
    assert not [
        hit
        for hit in (await search_lexical(stack, "what is the sardine of", language="en")).hits
        if hit.document_id == SampleDocument("quote", []).id
    ]
    assert (await search_lexical(stack, "the", language="en")).hits


async def test_unknown_language_is_matched_without_stemming(stack: SearchStack) -> None:
    await insert_documents(stack.connection, SampleDocument("x", ["zorblax running quickly"], None))
    assert (await search_lexical(stack, "zorblax", language=None)).hits
    assert not (await search_lexical(stack, "run", language=None)).hits
    assert (
        resolve_text_search_config(None) == "simple"
        and resolve_text_search_config("pt-BR") == "portuguese"
    )


HOSTILE_QUERIES = [
    "it's w5x | & ! 'quoted",
    "",
    "   ",
    "\\",
    "'",
    "a\\'b",
    ":* <-> !",
    "🙂 \u200b",
    "((((",
    "x" * 3000,
    "drop table documents; --",
    "%s {passes}",
]


async def test_hostile_queries_are_answered(stack: SearchStack) -> None:
    await insert_documents(
        stack.connection,
        SampleDocument("a", ["it's a quoted w5x, a\\'b and documents; drop"], "en"),
    )
    for text in HOSTILE_QUERIES:
        assert (await search_lexical(stack, text)).exactness == "exact", text


async def test_quote_or_backslash_in_word_is_searchable(stack: SearchStack) -> None:
    await insert_documents(
        stack.connection,
        SampleDocument("path", [r"/usr/o'brien/x\y"], None),
        SampleDocument("other", ["nothing"], None),
    )
    hits = await search_lexical(stack, r"/usr/o'brien/x\y", language=None)
    assert [hit.document_id for hit in hits.hits] == [SampleDocument("path", []).id]


async def test_budget_grows_until_no_unseen_chunk_can_win(stack: SearchStack) -> None:
    """One rare word in long chunks, two frequent words together in a short one that must come
    first.
    """
    rng = random.Random(3)
    long = [
        SampleDocument(f"long-{n}", ["rarity " + generate_words(rng, ENGLISH, 110)], "en")
        for n in range(3)
    ]
    short = SampleDocument("short", ["wolf tiger " * 8], "en")
    filler = [SampleDocument(f"f-{n}", ["wolf" if n % 2 else "tiger"], "en") for n in range(60)]
    await insert_documents(stack.connection, *long, short, *filler)
    hits = await search_lexical(stack, "rarity wolf tiger", k=3, budget=4)
    assert hits.exactness == "exact" and hits.hits[0].document_id == short.id
    assert_same_ranking(hits, ReferenceBm25([*long, short, *filler]).rank("rarity wolf tiger"), 3)


async def test_bounded_is_reported_when_unseen_chunks_may_win(stack: SearchStack) -> None:
    documents = [SampleDocument(f"d-{n}", ["wolf tiger " * (1 + n % 5)], "en") for n in range(80)]
    await insert_documents(stack.connection, *documents, SampleDocument("rare", ["zebra"], "en"))
    bounded = await search_lexical(stack, "zebra wolf tiger", k=20, budget=2)
    exact = await search_lexical(stack, "zebra wolf tiger", k=20, budget=200)
    assert (bounded.exactness, exact.exactness) == ("bounded", "exact")
    assert bounded.hits[0].document_id == SampleDocument("rare", []).id


async def test_hidden_chunks_that_score_higher_displace_no_visible_one(stack: SearchStack) -> None:
    hidden = [SampleDocument(f"h-{n}", ["heron"], "en") for n in range(2 * SPARE_HITS)]
    visible = [SampleDocument(f"v-{n}", ["heron wades in water"], "en") for n in range(5)]
    await insert_documents(stack.connection, *visible)
    await insert_documents(stack.connection, *hidden, visible=False)
    found = await search_lexical(stack, "heron", k=5)
    assert {hit.document_id for hit in found.hits} == {document.id for document in visible}


async def test_only_visible_revisions_of_the_tenant_match(stack: SearchStack) -> None:
    first, second = (
        SampleDocument("a", ["heron stork"], "en"),
        SampleDocument("a", ["stork crane"], "en", order=(1, 2), revision=2),
    )
    await insert_documents(
        stack.connection, first, SampleDocument("a", ["heron"], "en", tenant="other")
    )
    await insert_documents(stack.connection, second, visible=False)
    assert [hit.chunk_id for hit in (await search_lexical(stack, "heron crane")).hits] == [
        first.chunk_id(0)
    ]
    await activate_revision(stack.connection, second)
    assert [hit.chunk_id for hit in (await search_lexical(stack, "heron crane")).hits] == [
        second.chunk_id(0)
    ]


async def test_compacting_deltas_changes_no_score(stack: SearchStack) -> None:
    documents = generate_corpus()[:40]
    await insert_documents(stack.connection, *documents)
    again = SampleDocument("en-0", ["replaced"], "en", order=(1, 2), revision=2)
    await insert_documents(stack.connection, again)
    before = await search_lexical(stack, "barking drums gripped")
    while await compact_lexical(stack.pool, "g1", max_words=7):
        pass
    rows = await stack.connection.fetchrow(
        "select count(*) as rows, count(distinct (tenant, cfg, lexeme)) as words, min(delta) "
        "as least from lexical_deltas"
    )
    assert rows["rows"] == rows["words"] and rows["least"] > 0
    assert await search_lexical(stack, "barking drums gripped") == before


async def test_concurrent_compaction_counts_nothing_twice(stack: SearchStack) -> None:
    await insert_documents(stack.connection, *generate_corpus()[:20])
    before = await stack.connection.fetchval("select sum(delta) from lexical_deltas")
    await asyncio.gather(*(compact_lexical(stack.pool, "g1") for _ in range(3)))
    assert await stack.connection.fetchval("select sum(delta) from lexical_deltas") == before


async def test_erasure_waits_for_another_compaction(stack: SearchStack) -> None:
    """The other one may not see the last rows, which hold the words to erase."""
    await insert_documents(stack.connection, *generate_corpus()[:20])
    transaction = stack.connection.transaction()
    await transaction.start()
    await stack.connection.execute(
        "select pg_advisory_xact_lock(hashtext('compact_lexical ' || $1))", "g1"
    )
    assert await compact_lexical(stack.pool, "g1") == 0
    waiting = asyncio.create_task(compact_lexical(stack.pool, "g1", waits=True))
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]
    await transaction.rollback()
    assert await waiting > 0
