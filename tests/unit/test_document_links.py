from __future__ import annotations

import pytest

from retrieval.question.document_links import (
    confirm_links,
    find_ask,
    find_name_spans,
    fold_document_name,
    link_documents,
    weigh_documents,
)
from retrieval.ranking.candidate_retrieval import list_first_chunks
from schemas.ports.search import NamedDocument
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument, MemoryIndex


def link(question: str, index: MemoryIndex, *names: str) -> list[str]:
    """Return the linked names of documents with these titles, as the question writes them."""
    documents = [
        NamedDocument(fold_document_name(name), view.document_id, view.chunk_id)
        for name in names
        for view in index.views.values()
        if view.title == name
    ]
    links = link_documents(question, list(find_name_spans(question)), documents)
    return [question[one.span.start : one.span.end] for one in confirm_links(links, index.views)]


def make_index(**texts: str) -> MemoryIndex:
    index = MemoryIndex()
    for title, text in texts.items():
        name = title.replace("_", " ")
        index.add(IndexedDocument(name, [[IndexedChild(text)]], title=name))
    return index


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("The Half-Naked Truth", "half naked truth"),
        ("Ciência da Computação", "ciencia da computacao"),
        ("O'Brien's  Café (2. ed.)", "obriens cafe 2 ed"),
        ("Sylvia Burka", "sylvia burka"),
        ("A", "a"),
    ],
)
def test_names_fold_to_keys(name: str, key: str) -> None:
    assert fold_document_name(name) == key


def test_longest_title_in_question_is_linked() -> None:
    index = make_index(Heron_Dam="Heron Dam was built.", Heron_Dam_Annex="Heron Dam Annex holds.")
    question = "Who built Heron Dam Annex and why?"
    assert link(question, index, "Heron Dam", "Heron Dam Annex") == ["Heron Dam Annex"]


def test_possessive_and_lower_case_names_are_linked() -> None:
    index = make_index(Mira_Koslov="Mira Koslov (born 1954) is a skater.")
    assert link("Where did Mira Koslov's husband die?", index, "Mira Koslov") == ["Mira Koslov"]
    assert link("where was mira koslov born?", index, "Mira Koslov") == ["mira koslov"]


def test_title_that_is_a_topic_is_not_linked() -> None:
    text = "Heat transfer matters. In heat transfer, heat transfer by air is the slowest of all."
    index = make_index(Heat_transfer=text)
    assert link("What is the heat transfer of a wall?", index, "Heat transfer") == []


def test_address_is_cut_from_question() -> None:
    question = 'SUPPLY AGREEMENT (Acme, Inc. "Seller"; Bolt (Malta) Ltd): Which law governs?'
    span = next(span for span in find_name_spans(question) if span.key == "supply agreement")
    assert find_ask(question, span) == "Which law governs?"


@pytest.mark.parametrize(
    "question",
    ["Which law governs the Supply Agreement?", "Supply Agreement: what?", "Supply Agreement law"],
)
def test_mention_is_not_cut(question: str) -> None:
    span = next(span for span in find_name_spans(question) if span.key == "supply agreement")
    assert find_ask(question, span) is None


def test_shared_name_weighs_less() -> None:
    index = MemoryIndex()
    for number in range(4):
        index.add(IndexedDocument(f"d{number}", [[IndexedChild("Heron Dam")]], title="Heron Dam"))
    documents = [
        NamedDocument("heron dam", view.document_id, view.chunk_id) for view in index.views.values()
    ]
    question = "Who built Heron Dam?"
    links = link_documents(question, list(find_name_spans(question)), documents)
    assert set(weigh_documents(links).values()) == {0.25}
    assert list_first_chunks(links, max_documents=3) == []
    assert [hit.chunk_id for hit in list_first_chunks(links, max_documents=4)] == [
        document.chunk_id for document in documents
    ]
