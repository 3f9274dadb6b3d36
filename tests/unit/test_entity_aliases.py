"""Questions that name an entity by an alias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest

from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.ranking.entity_aliases import (
    apply_aliases,
    choose_aliases,
    is_misspelled,
    list_correctable_names,
)
from schemas.channels import GraphProfile
from schemas.errors import DatabaseUnavailable
from schemas.ids import make_document_id
from schemas.ports.search import EntityAlias
from schemas.profiles import Profile
from tests.unit.retrieval_fakes import GuessedLanguageDetector
from tests.unit.retrieval_harness import RetrievalHarness, make_harness

HARBOUR = EntityAlias("hal", "HAL", "harbour estates", "ORG", "Harbour Estates", False)


def plan(question: str) -> QueryPlan:
    return plan_query(question, "en", GuessedLanguageDetector())


def rewrite(question: str, *aliases: EntityAlias) -> QueryPlan:
    planned = plan(question)
    return apply_aliases(planned, choose_aliases(planned, aliases))


def alias(text: str, name: str, *, is_written: bool = False) -> EntityAlias:
    return EntityAlias(text.lower(), text, name.lower(), "ORG", name, is_written)


@pytest.mark.parametrize(
    ("question", "aliases", "expected"),
    [
        ("What does HAL's lease cost?", [HARBOUR], "What does Harbour Estates's lease cost?"),
        (
            "Did HAL pay the Buyer?",
            [HARBOUR, alias("Buyer", "Norte Energia", is_written=True)],
            "Did Harbour Estates pay the Buyer?",
        ),
        # Part of another word; a longer alias; several entities; named as well.
        ("What does HALO cost?", [HARBOUR], None),
        ("Who runs HAL Iberia?", [HARBOUR, alias("HAL Iberia", "Norte")], "Who runs Norte?"),
        ("Who runs HAL?", [HARBOUR, alias("HAL", "Halogen")], None),
        ("Is HAL part of Harbour Estates?", [HARBOUR], None),
    ],
)
def test_name_replaces_an_alias_that_no_document_holds(
    question: str, aliases: Sequence[EntityAlias], expected: str | None
) -> None:
    rewritten = rewrite(question, *aliases)
    assert rewritten.question == (expected or question)


def test_entity_behind_a_written_alias_is_searched_in_the_graph() -> None:
    planned = rewrite("Did the Buyer pay?", alias("Buyer", "Norte Energia", is_written=True))
    assert planned.question == "Did the Buyer pay?" and planned.names["norte energia"] == 1.0


async def ask(
    built: RetrievalHarness, question: str = "What does HAL hold?", **request: object
) -> tuple[str | None, list[str]]:
    response = await built.query(question, **request)
    return response.citations[0].external_id if response.citations else None, response.assumptions


def make_alias_harness() -> RetrievalHarness:
    built = make_harness()
    built.add("granary", "Norte Energia holds the old granary.", names=("norte energia",))
    built.index.aliases = [alias("HAL", "Norte Energia")]
    return built


async def test_question_by_alias_finds_the_entity_and_says_so() -> None:
    built = make_alias_harness()
    cited, assumptions = await ask(built)
    assert cited == "granary"
    assert any(text.startswith("“HAL” is taken as an alias of Norte") for text in assumptions)
    cited, assumptions = await ask(built, overrides={"graph": {"aliases": False}})
    assert (cited, assumptions) == (None, [])
    built.profiles = [Profile(name="plain", graph=GraphProfile(aliases=False))]
    _, assumptions = await ask(built, profile="plain")
    assert assumptions == []


async def test_alias_that_is_named_twice_is_reported_once() -> None:
    cited, assumptions = await ask(make_alias_harness(), "What does HAL hold, and why HAL?")
    assert cited == "granary" and len(assumptions) == 1


async def test_failed_alias_lookup_costs_only_the_aliases() -> None:
    built = make_alias_harness()
    built.index.channel_errors["aliases"] = DatabaseUnavailable("gone")
    response = await built.query("What does HAL hold?")
    assert response.assumptions == []
    assert "names not compared with those of entities: gone" in response.trace.notes


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("norte enrgia", "norte energia", True),
        ("norte enregia", "norte energia", True),
        ("norte energia", "norte energia", True),
        # Codes, years, short words, the end of a word, other beginnings, other words.
        ("unit hx9", "unit hx8", False),
        ("report 2014", "report 2015", False),
        ("anna berg", "anne berg", False),
        ("maria silva", "mario silva", False),
        ("daniel", "daniela", False),
        ("borte energia", "norte energia", False),
        ("norte energias", "norte energia sa", False),
    ],
)
def test_only_long_words_that_begin_and_end_alike_are_misspelled(
    name: str, key: str, expected: bool
) -> None:
    assert is_misspelled(name, key, edits=1) is expected
    assert is_misspelled(name, key, edits=0) is (name == key)


def list_names(question: str) -> list[str]:
    return list(list_correctable_names(plan(question), []))


def test_lower_case_words_codes_and_short_names_are_not_corrected() -> None:
    assert list_names("who pays norte enrgia for HX-9, ACME 2014 and Rome?") == []
    assert list_names("Who pays Norte Enrgia?") == ["norte enrgia"]


async def test_misspelled_name_is_read_as_the_entity_and_says_so() -> None:
    built = make_harness()
    built.add("granary", "Norte Energia holds the old granary.", names=("norte energia",))
    question = "What does Norte Enrgia hold?"
    cited, assumptions = await ask(built, question)
    assert cited == "granary"
    assert [text.split(" (")[0] for text in assumptions] == [
        "“Norte Enrgia” is read as the similar name Norte Energia"
    ]
    assert await ask(built, question, overrides={"graph": {"fuzzy": 0}}) == (None, [])


@pytest.mark.parametrize(
    "other",
    [
        # The name is written so in a document; another entity is as similar.
        ("Norte Enrgia closed.", ()),
        ("Norte Ennrgia closed.", ("norte ennrgia",)),
    ],
)
async def test_name_that_may_be_meant_as_written_is_kept(other: tuple[str, tuple[str]]) -> None:
    built = make_harness()
    built.add("granary", "Norte Energia holds the old granary.", names=("norte energia",))
    built.add("other", other[0], names=other[1])
    _, assumptions = await ask(built, "What does Norte Enrgia hold?")
    assert assumptions == []


def make_contracts() -> RetrievalHarness:
    """Two contracts in which the Licensor is another company."""
    built = make_harness()
    for name, party in (("north", "Norte Energia"), ("south", "Sul Gás")):
        built.add(
            name,
            f"{party} is the licensor of {name}. The fee is {len(name)} euros.",
            names=(party.lower(),),
            title=f"{name.title()} Contract",
            collection=f"{name} contracts",
        )
        built.index.stated_aliases.append(
            (
                make_document_id("default", "", name),
                replace(alias("Licensor", party, is_written=True), kind="defined_term"),
            )
        )
    return built


async def list_alias_assumptions(question: str, **request: object) -> list[str]:
    _, assumptions = await ask(make_contracts(), question, **request)
    return [text.split(" (")[0] for text in assumptions if "alias" in text]


async def test_defined_term_links_in_the_document_that_the_question_names() -> None:
    assert await list_alias_assumptions("What does the Licensor of the South Contract get?") == [
        "“Licensor” is taken as an alias of Sul Gás"
    ]


@pytest.mark.parametrize(
    ("question", "alias_text", "kind", "is_linked"),
    [
        ("What did ACT pay?", "ACT", "abbreviation", True),
        ("Which act governs this?", "ACT", "abbreviation", False),
        ("Which Act governs this?", "ACT", "abbreviation", False),
        ("Did ACT Norte pay?", "ACT", "abbreviation", False),
        ("When did Norte ACT pay?", "ACT", "abbreviation", False),
        ("Did ACT, the buyer, pay?", "ACT", "abbreviation", True),
        ("What must the Company pay?", "COMPANY", "defined_term", True),
        ("What must the company pay?", "Company", "defined_term", True),
        ("O que paga o locador?", "LOCADOR", "defined_term", True),
        ("Which company pays?", "Company", "defined_term", False),
    ],
)
def test_stated_alias_links_only_where_it_is_written_as_a_name(
    question: str, alias_text: str, kind: Literal["abbreviation", "defined_term"], is_linked: bool
) -> None:
    stated = replace(alias(alias_text, "Norte Energia", is_written=True), kind=kind)
    assert bool(choose_aliases(plan(question), [stated])) is is_linked


async def test_defined_term_links_in_the_collection_of_the_request() -> None:
    filters = {"collections": ["north contracts"]}
    assert await list_alias_assumptions("What does the Licensor get?", filters=filters) == [
        "“Licensor” is taken as an alias of Norte Energia"
    ]


@pytest.mark.parametrize(
    ("question", "request_fields"),
    [
        # No document, a filter that names none, two documents that disagree, and the title alone.
        ("What does the Licensor get?", {}),
        ("What does the Licensor get?", {"filters": {"languages": ["en"]}}),
        (
            "What does the Licensor get?",
            {"filters": {"collections": ["north contracts", "south contracts"]}},
        ),
        ("What do the North Contract and the South Contract pay the Licensor?", {}),
        ("What is the South Contract?", {}),
        (
            "What does the Licensor of the South Contract get?",
            {"overrides": {"graph": {"aliases": False}}},
        ),
    ],
)
async def test_defined_term_without_one_party_links_to_none(
    question: str, request_fields: dict[str, object]
) -> None:
    assert await list_alias_assumptions(question, **request_fields) == []
