"""Contract of the port `Extractor`, run against every extractor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from benchmarks.null_engines import NullExtractor
from engines.chat.openai import OpenAIChat
from engines.extract.openai import OpenAIExtractor
from engines.extract.rules import RuleExtractor
from engines.language import fold_name
from engines.server_settings import ServerSettings
from schemas.errors import InvalidModelOutput
from schemas.generations import EntitySchema
from schemas.ports.engines import Extractor
from tests.fakes.chunks import make_parent
from tests.fakes.openai_server import fake_openai

FIRST = (
    "Acme Logistics Lda. signed the contract AL-2024/17 with Northwind Traders Inc. "
    "on 12 March 2024."
)
SECOND = (
    "The bridge was built by Mota Engil. João Silva trabalha na Universidade de São Paulo e "
    "ganha R$ 2,5 milhões."
)
MODEL_OUTPUT: dict[str, Any] = {
    "entities": [
        {"name": "Acme Logistics Lda.", "type": "ORG"},
        {"name": "Northwind Traders Inc.", "type": "ORG"},
        {"name": "Invented Corp", "type": "ORG"},
    ],
    "relations": [
        {
            "subject": "Acme Logistics Lda.",
            "type": "signed",
            "object": "Northwind Traders Inc.",
            "evidence": FIRST,
        }
    ],
    "claims": [
        {"subject": "Acme Logistics Lda.", "property": "contract_number", "value": "AL-2024/17"}
    ],
}


@pytest.fixture(params=["rules", "null", "openai"])
async def extractor(request: pytest.FixtureRequest) -> AsyncIterator[Extractor]:
    async with AsyncExitStack() as stack:
        if request.param != "openai":
            yield RuleExtractor() if request.param == "rules" else NullExtractor()
            return
        fake = stack.enter_context(fake_openai())
        fake.queue_answers(*[MODEL_OUTPUT] * 8)
        chat = OpenAIChat(ServerSettings(base_url=fake.url, model="fake"))
        stack.push_async_callback(chat.close)
        yield OpenAIExtractor(chat, schema=EntitySchema(properties=("contract_number",)))


async def test_mention_offsets_lie_within_its_chunk(extractor: Extractor) -> None:
    text = make_parent(FIRST, SECOND)
    children = {child.id: child for child in text.children}
    for mention in (await extractor.extract([text], "en")).mentions:
        child = children[mention.chunk_id]
        assert child.char_start <= mention.char_start < mention.char_end <= child.char_end
        assert text.text[mention.char_start - 1000 : mention.char_end - 1000] == mention.name
        assert mention.key and mention.type


async def test_relations_and_claims_refer_to_extracted_mentions(extractor: Extractor) -> None:
    found = await extractor.extract([make_parent(FIRST, SECOND)], None)
    mentioned = {(mention.type, mention.key) for mention in found.mentions}
    end = 1000 + len(FIRST) + len(SECOND) + 1
    for relation in found.relations:
        assert {
            relation.subject,
            relation.object,
        } <= mentioned and relation.subject != relation.object
        assert 1000 <= relation.char_start < relation.char_end <= end and 0 < relation.weight <= 1
    for claim in found.claims:
        assert claim.subject in mentioned and 1000 <= claim.char_start < claim.char_end <= end


async def test_extraction_is_deterministic(extractor: Extractor) -> None:
    assert await extractor.extract([make_parent(FIRST)], "en") == await extractor.extract(
        [make_parent(FIRST)], "en"
    )


async def test_schema_restricts_what_is_extracted(extractor: Extractor) -> None:
    whole = await extractor.extract([make_parent(FIRST, SECOND)], "en")
    for schema in (EntitySchema(entities=("DATE",)), EntitySchema(relations=("owns",))):
        restricted = extractor.with_schema(schema)
        if isinstance(restricted, OpenAIExtractor):
            # A reply with other types is invalid.
            with pytest.raises(InvalidModelOutput, match="is not one of"):
                await restricted.extract([make_parent(FIRST, SECOND)], "en")
        else:
            found = await restricted.extract([make_parent(FIRST, SECOND)], "en")
            assert {mention.type for mention in found.mentions} <= set(schema.entities)
            assert {relation.type for relation in found.relations} <= set(schema.relations)
            assert all(mention in whole.mentions for mention in found.mentions)
        assert restricted.fingerprint != extractor.fingerprint or not whole.mentions


async def test_empty_input_extracts_nothing(extractor: Extractor) -> None:
    found = await extractor.extract([], None)
    assert not found.mentions and not found.relations and not found.claims


async def test_entities_absent_from_text_are_dropped() -> None:
    with fake_openai() as fake:
        fake.queue_answers(MODEL_OUTPUT)
        chat = OpenAIChat(ServerSettings(base_url=fake.url, model="fake"))
        found = await OpenAIExtractor(chat).extract([make_parent(FIRST)], "en")
        await chat.close()
    assert {mention.key for mention in found.mentions} == {
        fold_name("Acme Logistics"),
        fold_name("Northwind Traders"),
    }
    assert [(relation.type, relation.object[1]) for relation in found.relations] == [
        ("signed", "northwind traders")
    ]
    assert [(claim.property, claim.value) for claim in found.claims] == [
        ("contract_number", "AL-2024/17")
    ]
