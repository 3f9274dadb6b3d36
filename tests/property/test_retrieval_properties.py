from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.answer.citations import cite, spans_between
from retrieval.answer.quotables import cells, quotables
from retrieval.duplicates import fold
from retrieval.expand import expand
from retrieval.fuse import Lists, fuse
from retrieval.pack import Context
from schemas.ports.search import Hit
from schemas.profiles import FusionProfile
from schemas.values import Span
from tests.unit.retrieval_fakes import FullStops
from tests.unit.retrieval_index import Child, Document, MemoryIndex

SCORES = st.lists(st.floats(-50, 50, allow_nan=False), min_size=1, max_size=40)
TEXTS = st.text(alphabet=st.sampled_from("ab .!?\n|-#*é1\\"), max_size=200)
WORDS = st.sampled_from(["the pump is replaced every two years by the two technicians of the plant in march", "the pump is replaced", "rent", "rent and lease"])


def corpus(texts: list[str]) -> MemoryIndex:
    index = MemoryIndex()
    for n, text in enumerate(texts):
        index.add(Document(f"d{n}", [[Child(text)]]))
    return index


def hits(index: MemoryIndex, scores: list[float]) -> list[Hit]:
    return [Hit(view.chunk_id, view.document_id, score) for view, score in zip(index.views.values(), scores, strict=False)]


@given(SCORES, SCORES, st.integers(0, 1000), st.sampled_from(["zscore", "rrf"]))
def test_fusion_does_not_depend_on_the_order_of_the_hits(lexical: list[float], semantic: list[float], seed: int, method: str) -> None:
    index = corpus(["text"] * 40)
    profile = FusionProfile(method=method)  # type: ignore[arg-type]
    words, meaning = hits(index, lexical), hits(index, semantic)
    straight = fuse(Lists({"lexical": words, "semantic": meaning}), index.views, profile)
    mixed_words, mixed_meaning = words[:], meaning[:]
    random.Random(seed).shuffle(mixed_words)
    random.Random(seed + 1).shuffle(mixed_meaning)
    mixed = fuse(Lists({"semantic": mixed_meaning, "lexical": mixed_words}), index.views, profile)
    assert [item.chunk.chunk_id for item in straight.candidates] == [item.chunk.chunk_id for item in mixed.candidates]
    assert all(abs(a.score - b.score) < 1e-9 for a, b in zip(straight.candidates, mixed.candidates, strict=True))


@given(SCORES, SCORES)
def test_every_hit_is_a_candidate_once(lexical: list[float], semantic: list[float]) -> None:
    index = corpus(["text"] * 40)
    words, meaning = hits(index, lexical), hits(index, semantic)
    fused = fuse(Lists({"lexical": words, "semantic": meaning}), index.views, FusionProfile()).candidates
    assert sorted(item.chunk.chunk_id for item in fused) == sorted({hit.chunk_id for hit in [*words, *meaning]})


@given(st.lists(WORDS, min_size=1, max_size=20), st.integers(0, 20), st.integers(0, 5))
def test_folding_loses_no_document_and_keeps_the_order_of_what_stays(texts: list[str], read: int, wanted: int) -> None:
    index = corpus(texts)
    parents = expand(fuse(Lists({"lexical": hits(index, [float(-n) for n in range(len(texts))])}), index.views, FusionProfile()).candidates, "max")
    folded = fold(parents, read, wanted)
    kept = [item.document_id for parent in folded for item in (parent, *parent.duplicates)]
    assert sorted(kept) == sorted(parent.document_id for parent in parents)
    assert [parent.parent_id for parent in folded] == [p.parent_id for p in parents if p.parent_id in {parent.parent_id for parent in folded}]


@settings(max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_every_quote_is_verbatim_at_its_place(texts: list[str]) -> None:
    index = MemoryIndex()
    document = index.add(Document("d", [[Child(text) for text in texts]]))
    views = list(index.views.values())
    candidates = fuse(Lists({"lexical": hits(index, [1.0] * len(texts))}), index.views, FusionProfile()).candidates
    parent = expand(candidates, "max")[0]
    for item in quotables([Context(1, parent, index.parent_views[parent.parent_id], tuple(views))], FullStops()):
        citation = cite(1, item)
        assert citation is not None
        assert citation.quote and index.markdown[document][citation.spans[0].char_start : citation.spans[-1].char_end] == citation.quote


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=6), st.integers(0, 60), st.integers(1, 20))
def test_spans_of_a_quote_stay_inside_it(places: list[tuple[int, int]], start: int, length: int) -> None:
    spans = [Span(char_start=left, char_end=left + size, page=1) for left, size in places]
    for span in spans_between(spans, start, start + length):
        assert start <= span.char_start < span.char_end <= start + length


@given(st.lists(st.text(alphabet="ab |\\1", max_size=8).map(str.strip), min_size=1, max_size=5).filter(lambda row: not any("\\" in cell for cell in row)))
def test_the_cells_of_a_row_come_back(row: list[str]) -> None:
    line = "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    assert cells(line) == row
