"""The lexical channel against an independent BM25 over stems of another implementation."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from math import log
from uuid import UUID

import pytest
import snowballstemmer

from schemas.ports.search import LexicalHits
from schemas.questions import Filters
from sql.compaction import compact_lexical
from sql.languages import text_config
from tests.rows import Doc, add, flip
from tests.searching import Stand, stand

ALL = Filters()
ENGLISH = [f"{head}{tail}" for head in ("bark", "drum", "grip", "lamp", "mast", "plank", "quilt", "stork", "tramp", "wharf") for tail in ("ing", "ed", "s", "")]
PORTUGUESE = ["barragem", "colheita", "descarga", "enchente", "farinha", "granito", "hortelã", "inversões", "jangada", "lavoura", "árvores", "açaí"]


def words_of(rng: random.Random, vocabulary: Sequence[str], count: int) -> str:
    """Few words often and many seldom, as in real text."""
    return " ".join(vocabulary[min(int(rng.paretovariate(0.7)) - 1, len(vocabulary) - 1)] for _ in range(count))


def corpus() -> list[Doc]:
    rng = random.Random(7)
    english = [Doc(f"en-{n}", [words_of(rng, ENGLISH, rng.randint(5, 120)) for _ in range(2)], "en") for n in range(120)]
    portuguese = [Doc(f"pt-{n}", [words_of(rng, PORTUGUESE, rng.randint(5, 60))], "pt", prefix="jangada") for n in range(60)]
    return english + portuguese


class PlainBm25:
    """Robertson's formula, term by term; k1 1.2, b 0.75, average length 100, one index a language."""

    def __init__(self, documents: Sequence[Doc]) -> None:
        self.stem = {language: snowballstemmer.stemmer(name) for language, name in (("en", "english"), ("pt", "portuguese"))}
        self.chunks: dict[str, dict[UUID, Counter[str]]] = {"en": {}, "pt": {}}
        for document in documents:
            for place, text in enumerate(document.texts):
                self.chunks[document.language or ""][document.chunk_id(place)] = Counter(self.terms(f"{document.prefix} {text}", document.language or ""))

    def terms(self, text: str, language: str) -> list[str]:
        return [self.stem[language].stemWord(word) for word in re.findall(r"\w+", text.lower())]

    def ranking(self, question: str) -> list[tuple[UUID, float]]:
        scores = [item for language in self.chunks for item in self._scores(set(self.terms(question, language)), self.chunks[language])]
        return sorted(((chunk, score) for chunk, score in scores if score > 0), key=lambda item: (-item[1], item[0]))

    def _scores(self, question: set[str], chunks: dict[UUID, Counter[str]]) -> list[tuple[UUID, float]]:
        df = Counter(term for chunk in chunks.values() for term in chunk)
        idf = {term: log(1 + (len(chunks) - df[term] + 0.5) / (df[term] + 0.5)) for term in question}

        def score(chunk: Counter[str]) -> float:
            norm = 1.2 * (1 - 0.75 + 0.75 * chunk.total() / 100)
            return sum(idf[term] * chunk[term] * 2.2 / (chunk[term] + norm) for term in question)

        return [(identity, score(chunk)) for identity, chunk in chunks.items()]


async def ask(
    desk: Stand, text: str, *, language: str | None = "en", filters: Filters = ALL, k: int = 20, budget: int = 5000, tenant: str = "default"
) -> LexicalHits:
    async with desk.search.snapshot() as snapshot:
        return await snapshot.lexical(tenant, text, language=language, filters=filters, k=k, budget=budget)


def agree(hits: LexicalHits, ranking: list[tuple[UUID, float]], k: int) -> None:
    """The same scores place by place; where neighbours have (nearly) the same score their order may differ."""
    assert len(hits.hits) == min(k, len(ranking))
    expected = dict(ranking)
    for hit, (_, score) in zip(hits.hits, ranking, strict=False):
        assert hit.score == pytest.approx(score, rel=2e-3)
        assert hit.score == pytest.approx(expected[hit.chunk_id], rel=2e-3)


async def test_scores_are_those_of_an_independent_bm25_in_both_languages(database: str) -> None:
    documents = corpus()
    plain, rng = PlainBm25(documents), random.Random(11)
    async with stand(database) as desk:
        await add(desk.connection, *documents)
        for _ in range(25):
            question = f"{words_of(rng, ENGLISH, 3)} {words_of(rng, PORTUGUESE, 2)}"
            hits = await ask(desk, question)
            assert hits.exactness == "exact"
            agree(hits, plain.ranking(question), 20)


async def test_a_portuguese_document_is_found_by_another_form_of_its_word(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, Doc("a", ["As INVERSÕES térmicas da cidade"], "pt"), Doc("b", ["Nothing about it"], "en"))
        assert [hit.document_id for hit in (await ask(desk, "TÉRMICA", language="pt")).hits] == [Doc("a", []).id]


async def test_words_that_the_questions_language_drops_find_nothing_in_other_languages(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, Doc("quote", ["o lema dizia the end of the road"], "pt"), Doc("fish", ["the sardine"], "en"))
        assert not [hit for hit in (await ask(desk, "what is the sardine of", language="en")).hits if hit.document_id == Doc("quote", []).id]
        assert (await ask(desk, "the", language="en")).hits


async def test_an_unknown_language_is_matched_word_for_word(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, Doc("x", ["zorblax running quickly"], None))
        assert (await ask(desk, "zorblax", language=None)).hits
        assert not (await ask(desk, "run", language=None)).hits
        assert text_config(None) == "simple" and text_config("pt-BR") == "portuguese"


@pytest.mark.parametrize(
    "text", ["it's w5x | & ! 'quoted", "", "   ", "\\", "'", "a\\'b", ":* <-> !", "🙂 \u200b", "((((", "x" * 3000, "drop table documents; --", "%s {passes}"]
)
async def test_hostile_questions_are_answered_like_others(database: str, text: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, Doc("a", ["it's a quoted w5x, a\\'b and documents; drop"], "en"))
        hits = await ask(desk, text)
        assert hits.exactness == "exact"


async def test_a_quote_or_backslash_in_a_word_still_finds_it(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, Doc("path", [r"/usr/o'brien/x\y"], None), Doc("other", ["nothing"], None))
        hits = await ask(desk, r"/usr/o'brien/x\y", language=None)
        assert [hit.document_id for hit in hits.hits] == [Doc("path", []).id]


async def test_a_small_budget_is_widened_until_no_unseen_chunk_can_win(database: str) -> None:
    """One rare word in long chunks, two frequent words together in a short one that must come first."""
    rng = random.Random(3)
    long = [Doc(f"long-{n}", ["rarity " + words_of(rng, ENGLISH, 110)], "en") for n in range(3)]
    short = Doc("short", ["wolf tiger " * 8], "en")
    filler = [Doc(f"f-{n}", ["wolf" if n % 2 else "tiger"], "en") for n in range(60)]
    async with stand(database) as desk:
        await add(desk.connection, *long, short, *filler)
        hits = await ask(desk, "rarity wolf tiger", k=3, budget=4)
        assert hits.exactness == "exact" and hits.hits[0].document_id == short.id
        agree(hits, PlainBm25([*long, short, *filler]).ranking("rarity wolf tiger"), 3)


async def test_it_says_bounded_when_an_unseen_chunk_may_be_better(database: str) -> None:
    documents = [Doc(f"d-{n}", ["wolf tiger " * (1 + n % 5)], "en") for n in range(80)]
    async with stand(database) as desk:
        await add(desk.connection, *documents, Doc("rare", ["zebra"], "en"))
        bounded = await ask(desk, "zebra wolf tiger", k=20, budget=2)
        exact = await ask(desk, "zebra wolf tiger", k=20, budget=200)
        assert (bounded.exactness, exact.exactness) == ("bounded", "exact")
        assert bounded.hits[0].document_id == Doc("rare", []).id


async def test_idfs_are_told_for_unknown_words_too(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, Doc("a", ["wolf"], "en"), Doc("b", ["tiger"], "en"))
        idf = (await ask(desk, "wolves unheard")).idf
        assert idf["english"]["wolv"] == pytest.approx(log(1 + 2.5 / 0.5)) and idf["english"]["unheard"] == pytest.approx(log(1 + 2.5 / 0.5))


async def test_only_the_visible_revision_of_the_tenants_own_documents_is_found(database: str) -> None:
    first, second = Doc("a", ["heron stork"], "en"), Doc("a", ["stork crane"], "en", order=(1, 2), revision=2)
    async with stand(database) as desk:
        await add(desk.connection, first, Doc("a", ["heron"], "en", tenant="other"))
        await add(desk.connection, second, visible=False)
        assert [hit.chunk_id for hit in (await ask(desk, "heron crane")).hits] == [first.chunk_id(0)]
        await flip(desk.connection, second)
        assert [hit.chunk_id for hit in (await ask(desk, "heron crane")).hits] == [second.chunk_id(0)]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (Filters(collections=["law"]), {"a", "c"}),
        (Filters(tags=["red", "old"]), {"a"}),
        (Filters(external_ids=["b", "c"]), {"b", "c"}),
        (Filters(document_ids=[Doc("b", []).id]), {"b"}),
        (Filters(languages=["pt"]), {"c"}),
        (Filters(date_from=date(2025, 6, 1)), {"b", "c"}),
        (Filters(date_from=date(2025, 1, 1), date_to=date(2025, 12, 31)), {"b"}),
        (Filters(metadata={"pages": 3}), {"b"}),
        (Filters(collections=["law"], languages=["en"]), {"a"}),
        (Filters(collections=["nowhere"]), set()),
    ],
)
@pytest.mark.parametrize("few", [2_000, 0])
async def test_all_filters_given_must_hold_whether_few_or_many_documents_pass(
    database: str, monkeypatch: pytest.MonkeyPatch, filters: Filters, found: set[str], few: int
) -> None:
    monkeypatch.setattr("sql.scope.FEW_DOCUMENTS", few)
    a = Doc("a", ["lobster"], "en", collection="law", tags=("red", "old"), document_date=date(2024, 5, 1))
    b = Doc("b", ["lobster"], "en", collection="art", tags=("red",), document_date=date(2025, 6, 1), metadata={"pages": 3, "x": [1]})
    c = Doc("c", ["lobster"], "pt", collection="law")
    async with stand(database) as desk:
        await add(desk.connection, a, b, c)
        hits = await ask(desk, "lobster", filters=filters)
        assert {hit.document_id for hit in hits.hits} == {Doc(name, []).id for name in found}


async def test_folding_the_deltas_changes_no_score(database: str) -> None:
    documents = corpus()[:40]
    async with stand(database) as desk:
        await add(desk.connection, *documents)
        again = Doc("en-0", ["replaced"], "en", order=(1, 2), revision=2)
        await add(desk.connection, again)
        before = await ask(desk, "barking drums gripped")
        while await compact_lexical(desk.pool, "g1", words=7):
            pass
        rows = await desk.connection.fetchrow(
            "select count(*) as rows, count(distinct (tenant, cfg, lexeme)) as words, min(delta) as least from lexical_deltas"
        )
        assert rows["rows"] == rows["words"] and rows["least"] > 0
        assert await ask(desk, "barking drums gripped") == before


async def test_folding_at_the_same_time_twice_counts_nothing_twice(database: str) -> None:
    async with stand(database) as desk:
        await add(desk.connection, *corpus()[:20])
        before = await desk.connection.fetchval("select sum(delta) from lexical_deltas")
        await asyncio.gather(*(compact_lexical(desk.pool, "g1") for _ in range(3)))
        assert await desk.connection.fetchval("select sum(delta) from lexical_deltas") == before
