"""Documents embedded and extracted by remote models, and an API over them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from anabranch.composition.api import prepare_api
from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from tests.fakes.openai_server import FakeOpenAI
from tests.support.api_client import api_client
from tests.support.api_world import ApiWorld, run_system
from tests.support.eventually import eventually

DIMENSION = 48
HANDBOOK = """# Travel handbook

## Trains

Every train journey over two hours is booked in first class. \
The travel office of Norte Energia S.A. books it within three working days.

## Daily allowance

The daily allowance in Lisbon is 74 euros. In Porto the daily allowance is 61 euros.
"""
CONTRACT = """# Contrato da ponte

## Prazo

O prazo da obra da ponte é de 540 dias a contar da consignação. \
O empreiteiro entrega um relatório por mês.

## Multas

A multa por dia de atraso é de 2.500 euros.
"""
LOCK_NOTE = (
    "The lock keeper at Merrin closes the northern gate at 21:30 every evening. In winter he "
    "closes it at 19:00.\n"
)
ALLOWANCE_QUESTION = "What is the daily allowance in Lisbon?"
DEADLINE_QUESTION = "Qual é o prazo da obra da ponte?"
UNANSWERABLE_QUESTION = "Who won the chess tournament of Reykjavik?"
UNANSWERABLE_QUESTION_PT = "Quem venceu o torneio de xadrez de Reiquiavique?"
EXTRACTION = {
    "entities": [
        {"name": "Norte Energia S.A.", "type": "ORG"},
        {"name": "Lisbon", "type": "LOC"},
        {"name": "Atlantis", "type": "LOC"},
    ],
    "relations": [
        {
            "subject": "Norte Energia S.A.",
            "type": "travels to",
            "object": "Lisbon",
            "evidence": "The daily allowance in Lisbon is 74 euros.",
        }
    ],
    "claims": [{"subject": "Lisbon", "property": "daily allowance", "value": "74 euros"}],
}


def make_settings(fake: FakeOpenAI, folder: Path, *more: str) -> Settings:
    servers = [
        f"{section}.base_url={fake.url}" for section in ("chat", "embed", "rerank", "extract")
    ]
    models = [
        f"{section}.model=fake-{section}" for section in ("chat", "embed", "rerank", "extract")
    ]
    return load_settings(
        data_dir=folder,
        sets=[*servers, *models, f"embed.dimension={DIMENSION}", "logging.level=error", *more],
    )


@dataclass(frozen=True)
class IndexedCorpus:
    """Three documents, embedded and extracted by the fake server, and the server."""

    fake: FakeOpenAI
    dsn: str
    settings: Settings
    texts: dict[str, str]


async def wait_for_entities(world: ApiWorld) -> None:
    await eventually(lambda: world.fetch_json("/v1/entities"), lambda page: page["items"])


async def ingest_corpus(fake: FakeOpenAI, settings: Settings, dsn: str) -> dict[str, str]:
    async with run_system(settings, dsn, Overrides()) as world:
        fake.queue_answers(EXTRACTION)
        receipts = {
            "handbook": await world.ingest_until_searchable(HANDBOOK, external_id="handbook")
        }
        await wait_for_entities(world)
        receipts["contract"] = await world.ingest_until_searchable(
            CONTRACT, external_id="contract", language="pt"
        )
        receipts["log"] = await world.ingest_until_searchable(LOCK_NOTE, external_id="log")
        return {
            name: (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text
            for name, receipt in receipts.items()
        }


@dataclass
class ApiStack:
    """An API over the corpus with new connections to the models."""

    fake: FakeOpenAI
    http: httpx2.AsyncClient

    async def ask(self, question: str, **options: Any) -> dict[str, Any]:
        response = await self.http.post("/v1/query", json={"query": question, **options})
        assert response.status_code == 200, response.text
        return dict(response.json())

    @property
    def chat_requests(self) -> list[dict[str, Any]]:
        return self.fake.get_request_bodies("completions")


@asynccontextmanager
async def open_api_stack(
    corpus: IndexedCorpus, settings: Settings | None = None
) -> AsyncIterator[ApiStack]:
    corpus.fake.requests.clear()
    async with (
        prepare_api(settings or corpus.settings, corpus.dsn) as services,
        api_client(services) as http,
    ):
        yield ApiStack(corpus.fake, http)
    corpus.fake.clear_faults()


def assert_citations_match_corpus(answer: dict[str, Any], corpus: IndexedCorpus) -> None:
    """Assert that each sentence has a mark, each mark a citation, each quote its span."""
    assert answer["citations"]
    sentences = [part for part in answer["answer"].split("] ") if part]
    assert all("[" in sentence for sentence in sentences), answer["answer"]
    for citation in answer["citations"]:
        assert f"[{citation['n']}]" in answer["answer"]
        span = citation["spans"][0]
        assert (
            corpus.texts[citation["external_id"]][span["char_start"] : span["char_end"]]
            == citation["quote"]
        )
