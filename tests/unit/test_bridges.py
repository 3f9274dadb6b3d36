from __future__ import annotations

import pytest

from retrieval.ranking.bridges import find_mentions
from schemas.questions import QueryRequest, SearchRequest
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_harness import RUN_ID, RetrievalHarness
from tests.unit.retrieval_memory_index import IndexedChild, IndexedDocument

FILM = (
    "Silent Harbor is a film directed by Mira Koslov. It was shot within six weeks on the northern "
    "coast, where storms delayed the crew twice and one boat was lost. Its music is by Ada Brandt."
)
DIRECTOR = "Mira Koslov was a skater before all that. She grew up in Varna."
COMPOSER = "Ada Brandt played the organ in Lund for many years."
OTHERS = [f"Note {number} about harbors, films and music of a director." for number in range(30)]


def make_harness() -> RetrievalHarness:
    built = RetrievalHarness()
    for name, text in (
        ("Silent Harbor", FILM),
        ("Mira Koslov", DIRECTOR),
        ("Ada Brandt", COMPOSER),
    ):
        built.index.add(IndexedDocument(name, [[IndexedChild(text)]], title=name))
    for number, text in enumerate(OTHERS):
        built.index.add(IndexedDocument(f"note-{number}", [[IndexedChild(text)]]))
    return built


async def search(question: str, **fields: object) -> list[str | None]:
    response = (
        await make_harness()
        .make_retriever()
        .search(LOCAL_CALLER, SearchRequest.model_validate({"query": question, **fields}), RUN_ID)
    )
    return [result.external_id for result in response.results]


async def test_document_behind_named_one_is_found() -> None:
    found = await search("Where did the film director of Silent Harbor grow up?")
    assert found[:2] == ["Silent Harbor", "Mira Koslov"]


async def test_bridge_follows_the_relation_that_the_question_asks_for() -> None:
    found = await search("Who made the music of Silent Harbor?")
    assert found[:2] == ["Silent Harbor", "Ada Brandt"]


async def test_bridges_belong_to_the_graph_channel() -> None:
    found = await search(
        "Where did the film director of Silent Harbor grow up?", channels=["lexical"]
    )
    assert found[1] != "Mira Koslov"


async def test_addressed_document_is_not_left_by_bridges() -> None:
    response = await make_harness().search("Silent Harbor: who directed the film?", explain=True)
    assert response.results[0].external_id == "Silent Harbor"
    assert all("bridged" not in (result.explanation or {}) for result in response.results)


async def test_answer_names_preferred_document_and_request_can_ignore_it() -> None:
    retriever = make_harness().make_retriever()
    request = QueryRequest(query="Which film is Silent Harbor?")
    response = await retriever.query(LOCAL_CALLER, request, RUN_ID)
    assert any("Silent Harbor" in assumption for assumption in response.assumptions)
    ignoring = request.model_copy(update={"prefer_named": False})
    response = await retriever.query(LOCAL_CALLER, ignoring, RUN_ID)
    assert response.assumptions == []


async def test_named_and_bridged_scores_are_explained() -> None:
    response = await make_harness().search(
        "Where did the film director of Silent Harbor grow up?", explain=True
    )
    first, second = (result.explanation or {} for result in response.results[:2])
    assert first["named"] == 1.0
    assert second["bridged"] == pytest.approx(1.0)


def test_mentions_begin_and_end_like_names() -> None:
    keys = {key for _, _, key in find_mentions("It was made by the Mira Koslov Trio in 1987.")}
    assert "mira koslov trio" in keys and "mira koslov" in keys
    assert not keys & {"made by", "1987", "trio in"}


HOP_QUESTION = "Where did the film director of Silent Harbor grow up?"


async def test_answer_tells_the_path_with_a_verbatim_quote() -> None:
    built = make_harness()
    response = await built.query(HOP_QUESTION)
    [hop] = response.path
    assert hop.target.external_id == "Mira Koslov"
    assert hop.target.document_id in {context.document_id for context in response.contexts}
    assert (hop.external_id, hop.name) == ("Silent Harbor", "Mira Koslov")
    assert hop.quote == "Silent Harbor is a film directed by Mira Koslov."
    [span] = hop.spans
    text = next(view.text for view in built.index.views.values() if view.chunk_id == hop.chunk_id)
    assert text[span.char_start : span.char_end] == hop.quote


async def test_document_that_the_question_names_needs_no_path() -> None:
    response = await make_harness().query("Where did Mira Koslov grow up?")
    assert response.citations and response.path == []
