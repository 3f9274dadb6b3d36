from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from retrieval.answering.answer_drafts import build_citation
from retrieval.ranking.fusion import FusionInput, fuse_candidates
from retrieval.ranking.passages import ContextPassage, expand_to_parents, fold_duplicates
from retrieval.ranking.quote_candidates import extract_quote_candidates, split_cells
from retrieval.ranking.retrieval_result import clip_spans
from schemas.ports.search import Hit
from schemas.profiles import FusionProfile
from schemas.values import Span
from tests.support.repetitions import draw_examples
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex

SCORES = st.lists(st.floats(-50, 50, allow_nan=False), min_size=1, max_size=40)
TEXTS = st.text(alphabet=st.sampled_from("ab .!?\n|-#*é1\\"), max_size=200)
WORDS = st.sampled_from(
    [
        "the pump is replaced every two years by the two technicians of the plant in march",
        "the pump is replaced",
        "rent",
        "rent and lease",
    ]
)


def make_index(texts: list[str]) -> MemoryIndex:
    index = MemoryIndex()
    for n, text in enumerate(texts):
        index.add(IndexedDocument(f"d{n}", [[IndexedChild(text)]]))
    return index


def make_hits(index: MemoryIndex, scores: list[float]) -> list[Hit]:
    return [
        Hit(view.chunk_id, view.document_id, score)
        for view, score in zip(index.views.values(), scores, strict=False)
    ]


@given(SCORES, SCORES, st.integers(0, 1000), st.sampled_from(["zscore", "rrf"]))
def test_fusion_does_not_depend_on_hit_order(
    lexical: list[float], semantic: list[float], seed: int, method: str
) -> None:
    index = make_index(["text"] * 40)
    profile = FusionProfile(method=method)  # type: ignore[arg-type]
    words, meaning = make_hits(index, lexical), make_hits(index, semantic)
    straight = fuse_candidates(
        FusionInput({"lexical": words, "semantic": meaning}), index.views, profile
    )
    mixed_words, mixed_meaning = words[:], meaning[:]
    random.Random(seed).shuffle(mixed_words)
    random.Random(seed + 1).shuffle(mixed_meaning)
    mixed = fuse_candidates(
        FusionInput({"semantic": mixed_meaning, "lexical": mixed_words}), index.views, profile
    )
    assert [item.chunk.chunk_id for item in straight.candidates] == [
        item.chunk.chunk_id for item in mixed.candidates
    ]
    assert all(
        abs(a.score - b.score) < 1e-9
        for a, b in zip(straight.candidates, mixed.candidates, strict=True)
    )


@given(SCORES, SCORES)
def test_every_hit_is_exactly_one_candidate(lexical: list[float], semantic: list[float]) -> None:
    index = make_index(["text"] * 40)
    words, meaning = make_hits(index, lexical), make_hits(index, semantic)
    fused = fuse_candidates(
        FusionInput({"lexical": words, "semantic": meaning}), index.views, FusionProfile()
    ).candidates
    assert sorted(item.chunk.chunk_id for item in fused) == sorted(
        {hit.chunk_id for hit in [*words, *meaning]}
    )


@given(st.lists(WORDS, min_size=1, max_size=20), st.integers(0, 20), st.integers(0, 5))
def test_deduplication_keeps_every_document_and_order(
    texts: list[str], read: int, wanted: int
) -> None:
    index = make_index(texts)
    parents = expand_to_parents(
        fuse_candidates(
            FusionInput({"lexical": make_hits(index, [float(-n) for n in range(len(texts))])}),
            index.views,
            FusionProfile(),
        ).candidates,
        "max",
    )
    folded = fold_duplicates(parents, read, wanted, 0.9)
    returned_ids = [item.document_id for parent in folded for item in (parent, *parent.duplicates)]
    assert sorted(returned_ids) == sorted(parent.document_id for parent in parents)
    assert [parent.parent_id for parent in folded] == [
        p.parent_id for p in parents if p.parent_id in {parent.parent_id for parent in folded}
    ]


@draw_examples(300)
@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_every_quote_is_verbatim_at_its_span(texts: list[str]) -> None:
    index = MemoryIndex()
    document = index.add(IndexedDocument("d", [[IndexedChild(text) for text in texts]]))
    views = list(index.views.values())
    candidates = fuse_candidates(
        FusionInput({"lexical": make_hits(index, [1.0] * len(texts))}), index.views, FusionProfile()
    ).candidates
    parent = expand_to_parents(candidates, "max")[0]
    for item in extract_quote_candidates(
        [ContextPassage(1, parent, index.parent_views[parent.parent_id], tuple(views))]
    ):
        citation = build_citation(1, item)
        assert citation is not None
        assert (
            citation.quote
            and index.markdown[document][citation.spans[0].char_start : citation.spans[-1].char_end]
            == citation.quote
        )


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=6),
    st.integers(0, 60),
    st.integers(1, 20),
)
def test_quote_spans_stay_inside_quote(
    places: list[tuple[int, int]], start: int, length: int
) -> None:
    spans = [Span(char_start=left, char_end=left + size, page=1) for left, size in places]
    for span in clip_spans(spans, start, start + length):
        assert start <= span.char_start < span.char_end <= start + length


@given(
    st.lists(st.text(alphabet="ab |\\1", max_size=8).map(str.strip), min_size=1, max_size=5).filter(
        lambda row: not any("\\" in cell for cell in row)
    )
)
def test_table_row_cells_round_trip(row: list[str]) -> None:
    line = "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    assert split_cells(line) == row
