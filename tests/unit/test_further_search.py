"""The chat model asks for another search, in its own words, when the passages do not suffice."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval.answering.generative_answer import build_answer_schema
from schemas.answer_profiles import AnswerProfile
from schemas.profiles import Profile, RedactionProfile
from schemas.questions import QueryResponse
from tests.unit.retrieval_fakes import ScriptedChat, write_reply
from tests.unit.retrieval_harness import COST_QUESTION, RetrievalHarness, make_harness
from tests.unit.run_rows import rerun_query

ANSWER = write_reply(("The replacement of the bearing costs 18,740 euros.", [1]), search="")


def ask_for(words: str) -> dict[str, Any]:
    return write_reply(search=words)


async def ask(
    *replies: dict[str, Any], question: str = COST_QUESTION, **answer: Any
) -> tuple[RetrievalHarness, ScriptedChat, QueryResponse]:
    built, chat = make_harness(), ScriptedChat(list(replies))
    built.chat = chat
    redaction = RedactionProfile(kinds=["email"])
    built.profiles = [Profile(name="further", answer=AnswerProfile(**answer), redaction=redaction)]
    built.add("cellar", "Vintage bottles are kept in the cellar beside the granite stairs.")
    response = await built.query(question, profile="further", k=3, debug=True)
    return built, chat, response


async def test_model_gets_the_passages_of_its_own_search() -> None:
    built, chat, response = await ask(ask_for("vintage bottles cellar granite"), ANSWER)
    (_, first), (_, second) = chat.prompts
    assert "Vintage bottles" not in first and "Vintage bottles" in second
    # The question stays that of the user.
    assert f'"question": "{COST_QUESTION}"' in second
    assert response.trace.model_calls == 2 and response.trace.tokens == 240
    assert "scripted asked to search for 'vintage bottles cellar granite'" in (
        response.trace.route.reason
    )
    rerun = await rerun_query(built)
    assert {*rerun.differences} <= {"debug"}


async def test_search_is_limited_by_the_profile() -> None:
    _, chat, response = await ask(ask_for("cellar"), ask_for("granite"))
    assert len(chat.prompts) == 2 and response.code == "INSUFFICIENT_CONTEXT"
    assert response.trace.model_calls == 2
    _, chat, response = await ask(ask_for("cellar"), further_searches=0)
    assert len(chat.prompts) == 1 and response.code == "INSUFFICIENT_CONTEXT"
    _, chat, _ = await ask(ask_for("cellar"), ask_for("stairs"), ANSWER, further_searches=3)
    assert len(chat.prompts) == 3
    assert all(f'"question": "{COST_QUESTION}"' in user for _, user in chat.prompts)


async def test_model_is_told_of_another_search_only_where_it_may_ask() -> None:
    _, chat, _ = await ask(ask_for("cellar"), ask_for("granite"))
    (first, _), (second, _) = chat.prompts
    assert "`search`" in first and "`search`" not in second
    assert "search" in build_answer_schema(may_search=True)["required"]
    assert "search" not in build_answer_schema()["properties"]


@pytest.mark.parametrize("reply", [ask_for(""), ANSWER | {"search": "cellar"}])
async def test_sufficient_or_empty_reply_searches_no_more(reply: dict[str, Any]) -> None:
    _, chat, _ = await ask(reply)
    assert len(chat.prompts) == 1


async def test_masked_identifier_is_not_searched_for() -> None:
    _, chat, response = await ask(ask_for("███████████████ address"))
    assert len(chat.prompts) == 1 and response.code == "INSUFFICIENT_CONTEXT"
