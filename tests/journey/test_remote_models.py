"""Every model on a server: the real system, asked and fed through one that speaks OpenAI's interface and fails when told to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from anabranch.composition.api import prepare_api
from anabranch.composition.overrides import Overrides
from anabranch.composition.worker import prepare_worker
from anabranch.settings import ExtractSettings, ModelSettings, Settings
from anabranch.settings_loading import load_settings
from api.app import create_app
from retrieval.answer.drafts import without_marks
from sql.embedded import EmbeddedPostgres
from streams.observe import Silent
from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.journey.conftest import running
from tests.postgres_fixture import cloned, elsewhere

DIMENSION = 48
HANDBOOK = """# Travel handbook

## Trains

Every train journey over two hours is booked in first class. The travel office of Norte Energia S.A. books it within three working days.

## Daily allowance

The daily allowance in Lisbon is 74 euros. In Porto the daily allowance is 61 euros.
"""
CONTRACT = """# Contrato da ponte

## Prazo

O prazo da obra da ponte é de 540 dias a contar da consignação. O empreiteiro entrega um relatório por mês.

## Multas

A multa por dia de atraso é de 2.500 euros.
"""
LOG = "The lock keeper at Merrin closes the northern gate at 21:30 every evening. In winter he closes it at 19:00.\n"
ALLOWANCE = "What is the daily allowance in Lisbon?"
DEADLINE = "Qual é o prazo da obra da ponte?"
FOREIGN = "Who won the chess tournament of Reykjavik?"
FOREIGN_PT = "Quem venceu o torneio de xadrez de Reiquiavique?"
FOUND = {
    "entities": [{"name": "Norte Energia S.A.", "type": "ORG"}, {"name": "Lisbon", "type": "LOC"}, {"name": "Atlantis", "type": "LOC"}],
    "relations": [{"subject": "Norte Energia S.A.", "type": "travels to", "object": "Lisbon", "evidence": "The daily allowance in Lisbon is 74 euros."}],
    "claims": [{"subject": "Lisbon", "property": "daily allowance", "value": "74 euros"}],
}


def settings_for(fake: FakeOpenAI, folder: Path, *more: str) -> Settings:
    servers = [f"{section}.base_url={fake.url}" for section in ("chat", "embed", "rerank", "extract")]
    models = [f"{section}.model=fake-{section}" for section in ("chat", "embed", "rerank", "extract")]
    return load_settings(data_dir=folder, sets=[*servers, *models, f"embed.dimension={DIMENSION}", "logging.level=error", *more])


@dataclass(frozen=True)
class Library:
    """Three documents in a database, embedded and extracted by the server, and the server."""

    fake: FakeOpenAI
    dsn: str
    settings: Settings
    texts: dict[str, str]


@pytest.fixture(scope="module")
def library(postgres_server: EmbeddedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with fake_openai(api_key="") as fake, contextmanager(cloned)(postgres_server.dsn, template_database) as dsn:
        settings = settings_for(fake, tmp_path_factory.mktemp("data"))
        profile = settings.data_dir / "profiles" / "quick.yaml"
        profile.parent.mkdir(parents=True)
        profile.write_text("answer: {timeout_s: 0.3}\nrerank: {timeout_s: 0.3}\nsemantic: {timeout_s: 0.3}\n")
        (profile.parent / "bold.yaml").write_text("answer: {refuse: false}\n")
        yield Library(fake, dsn, settings, elsewhere(lambda: _filled(fake, settings, dsn)))


async def _filled(fake: FakeOpenAI, settings: Settings, dsn: str) -> dict[str, str]:
    async with running(settings, dsn, Overrides()) as world:
        fake.say(FOUND)
        receipts = {"handbook": await world.searchable(HANDBOOK, external_id="handbook")}
        async with asyncio.timeout(20):
            while not (await world.http.get("/v1/entities")).json()["items"]:
                await asyncio.sleep(0.02)
        receipts["contract"] = await world.searchable(CONTRACT, external_id="contract", language="pt")
        receipts["log"] = await world.searchable(LOG, external_id="log")
        return {name: (await world.http.get(f"/v1/documents/{receipt['document_id']}/markdown")).text for name, receipt in receipts.items()}


@dataclass
class Desk:
    """An API of its own over the library, with fresh connections to the models."""

    fake: FakeOpenAI
    http: httpx2.AsyncClient

    async def ask(self, question: str, **options: Any) -> dict[str, Any]:
        response = await self.http.post("/v1/query", json={"query": question, **options})
        assert response.status_code == 200, response.text
        return dict(response.json())

    def written(self, *sentences: tuple[str, list[int]]) -> None:
        """What the model says to the next question."""
        parts = [{"text": text, "citations": numbers} for text, numbers in sentences]
        self.fake.say({"sufficient": True, "sentences": parts, "assumptions": [], "limitations": []})

    @property
    def chats(self) -> list[dict[str, Any]]:
        return self.fake.asked("completions")


@asynccontextmanager
async def desk_of(library: Library, settings: Settings | None = None) -> AsyncIterator[Desk]:
    library.fake.requests.clear()
    async with prepare_api(settings or library.settings, library.dsn) as services:
        transport = httpx2.ASGITransport(create_app(services), raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://api", timeout=60) as http:
            yield Desk(library.fake, http)
    library.fake.mend()


@pytest.fixture
async def desk(library: Library) -> AsyncIterator[Desk]:
    async with desk_of(library) as found:
        yield found


def assert_quoted(answer: dict[str, Any], library: Library) -> None:
    """Every sentence has a mark, every mark a citation, every quote stands where its span says."""
    assert answer["citations"]
    sentences = [part for part in answer["answer"].split("] ") if part]
    assert all("[" in sentence for sentence in sentences), answer["answer"]
    for citation in answer["citations"]:
        assert f"[{citation['n']}]" in answer["answer"]
        span = citation["spans"][0]
        assert library.texts[citation["external_id"]][span["char_start"] : span["char_end"]] == citation["quote"]


@pytest.mark.parametrize(("question", "document", "value"), [(ALLOWANCE, "handbook", "74 euros"), (DEADLINE, "contract", "540 dias")])
async def test_an_answer_is_written_from_the_passages_and_every_sentence_cites_them(
    desk: Desk, library: Library, question: str, document: str, value: str
) -> None:
    answer = await desk.ask(question)
    assert not answer["refused"] and value in answer["answer"], answer
    assert {citation["external_id"] for citation in answer["citations"]} == {document}
    assert_quoted(answer, library)
    assert answer["judge"]["decision"] == "PASS"


async def test_the_trace_tells_models_calls_tokens_reranker_and_the_time_of_each_step(desk: Desk) -> None:
    trace = (await desk.ask(ALLOWANCE))["trace"]
    assert trace["models"] == {"embed": "fake-embed", "answer": "fake-chat"}
    asked = desk.chats[0]
    words = sum(len(message["content"].split()) for message in asked["messages"])
    assert trace["model_calls"] == len(desk.chats) == 1 and trace["tokens"] > words
    assert (trace["reranker"], trace["threshold"], trace["max_rerank_score"]) == ("fake-rerank", 0.6, 1.0)
    assert {"plan", "channels", "chunks", "fuse", "rerank", "read", "answer", "judge", "total"} == set(trace["timings_ms"])
    assert trace["timings_ms"]["total"] >= max(value for step, value in trace["timings_ms"].items() if step != "total") > 0
    assert trace["channels_failed"] == {} and set(trace["channels_used"]) == {"lexical", "semantic", "graph"}
    assert [len(desk.fake.asked(path)) for path in ("embeddings", "rerank", "completions")] == [1, 1, 1]


@pytest.mark.parametrize(("question", "language"), [(FOREIGN, "en"), (FOREIGN_PT, "pt")])
async def test_below_the_rerankers_threshold_no_chat_model_is_asked(desk: Desk, question: str, language: str) -> None:
    answer = await desk.ask(question)
    assert (answer["refused"], answer["answer"], answer["code"], answer["language"]) == (True, None, "NO_SUITABLE_CONTEXT", language)
    assert answer["message"].startswith({"en": "The documents", "pt": "Os documentos"}[language])
    assert desk.chats == [] and answer["trace"]["model_calls"] == 0
    assert answer["trace"]["max_rerank_score"] < answer["trace"]["threshold"]


@pytest.mark.parametrize(("question", "language"), [(FOREIGN, "en"), (FOREIGN_PT, "pt")])
async def test_a_model_that_finds_the_context_insufficient_refuses_in_the_questions_language(desk: Desk, question: str, language: str) -> None:
    answer = await desk.ask(question, profile="bold")
    assert (answer["refused"], answer["code"], answer["language"]) == (True, "INSUFFICIENT_CONTEXT", language)
    assert answer["message"].startswith({"en": "The passages", "pt": "Os trechos"}[language])
    assert len(desk.chats) == answer["trace"]["model_calls"] == 1 and answer["trace"]["tokens"] > 0
    assert f"({language})" in desk.chats[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    "bad",
    [
        ("The daily allowance in Lisbon is 74 euros.", []),
        ("Lisbon lies by the sea.", [1]),
        ("The daily allowance in Lisbon is 99 euros.", [1]),
        ("Trains are fast.", [77]),
    ],
)
async def test_a_sentence_that_no_passage_proves_is_taken_out(desk: Desk, library: Library, bad: tuple[str, list[int]]) -> None:
    desk.written(("In Lisbon the daily allowance is 74 euros.", [1]), bad)
    answer = await desk.ask(ALLOWANCE)
    assert answer["answer"].startswith("In Lisbon the daily allowance is 74 euros. [1]") and bad[0] not in answer["answer"]
    assert any("left out" in line for line in answer["limitations"])
    assert_quoted(answer, library)


async def test_an_answer_without_any_proof_is_no_answer(desk: Desk) -> None:
    desk.written(("Lisbon lies by the sea.", [1]))
    answer = await desk.ask(ALLOWANCE)
    assert (answer["refused"], answer["code"], answer["answer"], answer["citations"]) == (True, "INSUFFICIENT_CONTEXT", None, [])


async def test_a_model_that_answers_in_another_shape_once_is_asked_again_and_both_calls_are_counted(desk: Desk) -> None:
    desk.fake.say("Seventy-four.")
    answer = await desk.ask(ALLOWANCE)
    assert "74 euros" in answer["answer"] and answer["trace"]["models"]["answer"] == "fake-chat"
    assert answer["trace"]["model_calls"] == len(desk.chats) == 2


async def test_a_model_that_never_keeps_to_the_schema_leaves_quotes_and_its_calls_are_counted(desk: Desk, library: Library) -> None:
    desk.fake.say("Seventy-four.", "Seventy-four euros.")
    answer = await desk.ask(ALLOWANCE)
    assert answer["trace"]["models"]["answer"] == "extractive" and "schema" in answer["limitations"][0]
    assert answer["trace"]["model_calls"] == len(desk.chats) == 2 and answer["trace"]["tokens"] > 0
    assert_quoted(answer, library)


@pytest.mark.parametrize(
    ("fault", "profile", "told"),
    [
        ({"status": 500}, "default", "answered 500"),
        ({"status": 429, "retry_after": 3600}, "default", "answered 429"),
        ({"status": 401}, "default", "answered 401"),
        ({"status": 400}, "default", "answered 400"),
        ({"malformed": True}, "default", "no JSON object"),
        ({"hang": True}, "quick", "no answer within 0.3 s"),
    ],
)
async def test_a_chat_server_that_fails_leaves_a_quoted_answer_that_says_so(
    desk: Desk, library: Library, fault: dict[str, Any], profile: str, told: str
) -> None:
    desk.fake.fail(on="completions", times=9, **fault)
    answer = await desk.ask(ALLOWANCE, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"].replace("**", "")
    assert told in answer["limitations"][0] and "quoted" in answer["limitations"][0]
    assert answer["trace"]["models"]["answer"] == "extractive" and answer["trace"]["model_calls"] == 1
    assert_quoted(answer, library)


async def test_no_chat_server_at_all_leaves_a_quoted_answer_that_says_so(library: Library) -> None:
    gone = settings_for(library.fake, library.settings.data_dir, "chat.base_url=http://127.0.0.1:1/v1")
    async with desk_of(library, gone) as desk:
        answer = await desk.ask(DEADLINE)
    assert "540 dias" in answer["answer"].replace("**", "") and "127.0.0.1:1" in answer["limitations"][0]


async def test_a_server_that_asks_for_a_short_rest_is_asked_again(desk: Desk) -> None:
    desk.fake.fail(on="completions", times=2, status=429, retry_after=0.05)
    answer = await desk.ask(ALLOWANCE)
    assert answer["trace"]["models"]["answer"] == "fake-chat" and len(desk.chats) == 3


async def test_the_rerankers_order_replaces_the_fused_one(desk: Desk) -> None:
    found = (await desk.http.post("/v1/search", json={"query": "daily allowance", "explain": True})).json()
    scores = [result["explanation"]["rerank_score"] for result in found["results"]]
    assert scores == sorted(scores, reverse=True) == [result["score"] for result in found["results"]]
    assert scores[0] == 1.0 and found["trace"]["reranker"] == "fake-rerank"


@pytest.mark.parametrize(
    ("fault", "profile"), [({"status": 503}, "default"), ({"nan": True}, "default"), ({"drop": True}, "default"), ({"hang": True}, "quick")]
)
async def test_without_its_rerank_server_the_fused_order_stands_and_the_trace_says_so(
    desk: Desk, library: Library, fault: dict[str, Any], profile: str
) -> None:
    desk.fake.fail(on="rerank", times=9, **fault)
    answer = await desk.ask(ALLOWANCE, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"]
    trace = answer["trace"]
    assert (trace["reranker"], trace["max_rerank_score"], trace["channels_failed"]) == (None, None, {})
    assert [note for note in trace["notes"] if note.startswith("not reranked: ")]
    scores = [context["score"] for context in answer["contexts"]]
    assert scores == sorted(scores, reverse=True)
    assert_quoted(answer, library)


@pytest.mark.parametrize(
    ("fault", "profile"),
    [({"status": 500}, "default"), ({"nan": True}, "default"), ({"wrong_dimension": True}, "default"), ({"hang": True}, "quick")],
)
async def test_without_the_embedding_server_the_other_channels_answer_and_semantic_is_named(
    desk: Desk, library: Library, fault: dict[str, Any], profile: str
) -> None:
    desk.fake.fail(on="embeddings", times=9, **fault)
    answer = await desk.ask(ALLOWANCE, profile=profile)
    assert not answer["refused"] and "74 euros" in answer["answer"]
    assert list(answer["trace"]["channels_failed"]) == ["semantic"] and answer["trace"]["channels_used"] == ["lexical", "graph"]
    assert answer["confidence"]["level"] == "low" and "embed" not in answer["trace"]["models"]
    assert any("semantic" in line for line in answer["limitations"])
    assert_quoted(answer, library)


async def test_when_every_server_is_away_words_still_answer(desk: Desk, library: Library) -> None:
    desk.fake.fail(times=99, status=503)
    answer = await desk.ask(ALLOWANCE)
    assert "74 euros" in answer["answer"].replace("**", "") and answer["trace"]["models"] == {"answer": "extractive"}
    assert_quoted(answer, library)


async def test_what_the_model_extracts_is_in_the_graph_if_it_stands_in_the_text(desk: Desk) -> None:
    entities = (await desk.http.get("/v1/entities")).json()["items"]
    assert {entity["name"] for entity in entities} == {"Norte Energia S.A.", "Lisbon"}
    lisbon = next(entity for entity in entities if entity["name"] == "Lisbon")
    told = (await desk.http.get(f"/v1/entities/{lisbon['id']}")).json()
    assert [(claim["property"], claim["value"]) for claim in told["claims"]] == [("daily allowance", "74 euros")]
    answer = await desk.ask("What is the daily allowance of Norte Energia S.A. in Lisbon?")
    assert answer["trace"]["channels"]["graph"]["returned"] > 0


@asynccontextmanager
async def served(library: Library) -> AsyncIterator[str]:
    """The API behind a socket, where an answer can be read while it is made."""
    async with prepare_api(library.settings, library.dsn) as services:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(services), log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving
            library.fake.mend()


@asynccontextmanager
async def streaming(library: Library, question: str, **options: Any) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
    """Events of one question, as they come."""
    body = {"query": question, "stream": True, **options}
    async with served(library) as url, httpx2.AsyncClient(base_url=url, timeout=30) as http, http.stream("POST", "/v1/query", json=body) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        yield _events(response)


async def _events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_a_streamed_answer_tells_its_steps_then_its_words_then_what_is_proven(library: Library) -> None:
    async with streaming(library, ALLOWANCE) as events:
        told = [event async for event in events]
    names = [name for name, _ in told]
    assert (names[0], names[-1], set(names[1:-1])) == ("started", "answer", {"step", "delta"})
    ended = [data["name"] for name, data in told if name == "step" and data["ms"] is not None]
    assert ended == ["plan", "channels", "chunks", "fuse", "rerank", "read", "answer", "judge"]
    deltas = [data for name, data in told if name == "delta"]
    answer = told[-1][1]
    assert len(deltas) > 3 and {delta["draft"] for delta in deltas} == {1}
    assert "".join(delta["text"] for delta in deltas) == without_marks(answer["answer"])
    assert answer["trace"]["tokens"] > 0 and answer["trace"]["model_calls"] == 1
    assert_quoted(answer, library)


async def test_a_stream_of_the_model_that_breaks_off_is_begun_anew_under_another_number(library: Library) -> None:
    library.fake.fail(on="completions", broken=True)
    async with streaming(library, ALLOWANCE) as events:
        told = [event async for event in events]
    second = "".join(data["text"] for name, data in told if name == "delta" and data["draft"] == 2)
    assert {data["draft"] for name, data in told if name == "delta"} == {1, 2} and second == without_marks(told[-1][1]["answer"])


async def test_a_streamed_refusal_has_no_words_and_a_quoted_answer_neither(library: Library) -> None:
    for question, fault, refused in ((FOREIGN, {}, True), (ALLOWANCE, {"status": 400}, False)):
        if fault:
            library.fake.fail(on="completions", **fault)
        async with streaming(library, question) as events:
            told = [event async for event in events]
        assert "delta" not in {name for name, _ in told}
        assert told[-1][0] == "answer" and told[-1][1]["refused"] is refused


async def test_a_question_that_is_wrong_is_refused_before_the_stream_or_told_in_it(library: Library) -> None:
    async with streaming(library, ALLOWANCE, generation="g99") as events:
        told = [event async for event in events]
    assert told[-1][0] == "error" and (told[-1][1]["status"], told[-1][1]["code"]) == (404, "NO_SUCH_GENERATION") and told[-1][1]["remedy"]
    async with served(library) as url, httpx2.AsyncClient(base_url=url) as http:
        assert (await http.post("/v1/query", json={"query": "", "stream": True})).status_code == 422
        assert (await http.post("/v1/search", json={"query": "x", "stream": True})).status_code == 422


async def test_words_come_before_the_model_has_ended_and_closing_the_stream_ends_its_work(library: Library) -> None:
    before = library.fake.hung_up
    library.fake.fail(on="completions", stall=True)
    async with streaming(library, ALLOWANCE) as events:
        assert "delta" in [name async for name, _ in _until(events, "delta")]
        assert library.fake.hung_up == before
    async with asyncio.timeout(10):
        while library.fake.hung_up == before:
            await asyncio.sleep(0.01)


async def _until(events: AsyncIterator[tuple[str, dict[str, Any]]], last: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async for event in events:
        yield event
        if event[0] == last:
            return


async def test_a_model_that_takes_its_time_keeps_nobody_else_from_asking(desk: Desk, library: Library) -> None:
    """Four at once are more than there are connections for."""
    library.fake.fail(on="completions", times=4, hang=True)
    waiting = [asyncio.create_task(desk.ask(ALLOWANCE)) for _ in range(4)]
    async with asyncio.timeout(10):
        while len(desk.chats) < 4:
            await asyncio.sleep(0.01)
    assert (await desk.ask(DEADLINE))["trace"]["models"]["answer"] == "fake-chat"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with fake_openai() as server:
        yield server


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429, "retry_after": 0.05}, {"drop": True}, {"nan": True}])
async def test_a_stage_waits_for_its_embedding_server_buries_nothing_and_goes_on(
    fake: FakeOpenAI, database: str, tmp_path: Path, fault: dict[str, Any]
) -> None:
    fake.fail(on="embeddings", times=4 if "status" in fault else 2, **fault)
    async with running(settings_for(fake, tmp_path), database, Overrides()) as world:
        receipt = await world.ingest(HANDBOOK, external_id="handbook")
        await world.searchable(LOG, external_id="log")
        assert (await world.ended(receipt))["state"] == "searchable"
        assert (await world.http.get("/v1/dead-letters")).json()["items"] == []
        assert (await world.search("daily allowance in Lisbon"))[0]["external_id"] == "handbook"
    assert len(fake.asked("embeddings")) > 2


async def test_a_chat_model_that_is_set_later_answers_and_leaves_extraction_as_the_index_was_made(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    plain = settings_for(fake, tmp_path).model_copy(update={"chat": ModelSettings(), "extract": ExtractSettings()})
    async with running(plain, database, Overrides()) as world:
        await world.searchable(HANDBOOK, external_id="handbook")
    later = settings_for(fake, tmp_path).model_copy(update={"extract": ExtractSettings()})
    async with running(later, database, Overrides()) as world:
        await world.searchable(CONTRACT, external_id="contract")
        assert (await world.ask(ALLOWANCE))["trace"]["models"]["answer"] == "fake-chat"
    assert [body["response_format"]["json_schema"]["name"] for body in fake.asked("completions")] == ["answer"]


async def test_a_new_index_beside_a_chat_model_is_extracted_by_it(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    settings = settings_for(fake, tmp_path).model_copy(update={"extract": ExtractSettings()})
    async with running(settings, database, Overrides()) as world:
        fake.say(FOUND)
        await world.searchable(HANDBOOK, external_id="handbook")
        async with asyncio.timeout(20):
            while not (await world.http.get("/v1/entities")).json()["items"]:
                await asyncio.sleep(0.02)
    assert [body["model"] for body in fake.asked("completions")] == ["fake-chat"]
    assert world.worker.generation.config.extract.model == "fake-chat"


async def test_letters_that_no_column_can_hold_leave_an_answer_that_is_sent_and_kept(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    settings = settings_for(fake, tmp_path, "extract.engine=rules")
    async with running(settings, database, Overrides()) as world:
        await world.searchable(HANDBOOK, external_id="handbook")
        for letter in ("\x00", "\ud83d"):
            sentences = [{"text": f"In Lisbon the daily allowance is 74 euros{letter}.", "citations": [1]}]
            fake.say(json.dumps({"sufficient": True, "sentences": sentences, "assumptions": [letter], "limitations": [letter]}))
            answer = await world.ask(ALLOWANCE)
            assert answer["answer"].startswith("In Lisbon the daily allowance is 74 euros. [1]")
            async with asyncio.timeout(20):
                while not ((run := await world.http.get(f"/v1/runs/{answer['run_id']}")).is_success and run.json()["response"]):
                    await asyncio.sleep(0.02)


async def test_an_extraction_that_never_keeps_to_its_schema_costs_a_document_its_graph_only(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    fake.say(*["no"] * 2)
    async with running(settings_for(fake, tmp_path), database, Overrides()) as world:
        receipt = await world.searchable(HANDBOOK, external_id="handbook")
        async with asyncio.timeout(20):
            while not (letters := (await world.http.get("/v1/dead-letters")).json()["items"]):
                await asyncio.sleep(0.02)
        assert [(letter["stage"], letter["code"]) for letter in letters] == [("extract", "MODEL_OUTPUT")]
        assert (await world.ended(receipt))["state"] == "searchable"
        assert "74 euros" in (await world.ask(ALLOWANCE))["answer"]


async def test_an_embedding_server_of_another_dimension_than_the_settings_say_is_waited_for_and_named(fake: FakeOpenAI, database: str, tmp_path: Path) -> None:
    """The model gives 64 numbers and refuses to give more; nothing is buried, since no document is at fault."""
    observer = Waiting()
    settings = settings_for(fake, tmp_path, "embed.dimension=100")
    async with prepare_worker(settings, database, observer=observer) as worker, prepare_api(settings, database) as services:
        working = asyncio.create_task(worker.run())
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(services)), base_url="http://api") as http:
            receipt = (await http.post("/v1/ingest", json={"text": LOG})).json()
            async with asyncio.timeout(20):
                await observer.retrying.wait()
            assert observer.reason == "ENGINE_WRONG_DIMENSION"
            assert (await http.get(f"/v1/ingest/status/{receipt['ingestion_job_id']}")).json()["state"] == "running"
            assert (await http.get("/v1/dead-letters")).json()["items"] == []
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


class Waiting(Silent):
    """Remembers the first try of a reaction that was repeated."""

    def __init__(self) -> None:
        self.retrying, self.reason = asyncio.Event(), ""

    def retried(self, stage: str, reason: str) -> None:
        if stage == "embed":
            self.reason = reason
            self.retrying.set()
