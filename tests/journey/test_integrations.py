"""Retrievers of frameworks against `anabranch up`. The frameworks are imported in the tests, since
every test process collects them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.client import Client
from tests.support.server_process import make_environment, run_up

ROOT = Path(__file__).parents[2]
QUESTION = "How many days of notice must Merrin Ferries give?"
TEXTS = (
    "Merrin Ferries must give ninety days of notice. " + "The pier is swept each Monday. " * 20,
    "Kestrel Lines must give thirty days of notice.",
    "The notice of Merrin Ferries is sent by mail.",
    "Merrin Ferries pays a deposit of 5,000 euros.",
    "A notice is valid for ninety days.",
)
Passages = list[tuple[str, dict[str, Any]]]
Retrieve = Callable[..., Awaitable[Passages]]
"""Returns texts and metadata of the passages for a question, with these settings."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with run_up(tmp_path_factory.mktemp("frameworks") / "data") as (_, found):
        with Client(found["url"], found["token"]) as client:
            jobs = [client.ingest(text=text, title="Note", collection="harbor") for text in TEXTS]
            assert {client.wait(job).state for job in jobs} == {"searchable"}
        yield found


async def retrieve_with_langchain(*, k: int, **settings: Any) -> Passages:
    from anabranch_integrations.langchain import AnabranchRetriever

    retriever = AnabranchRetriever(k=k, **settings)
    documents = retriever.invoke(QUESTION)
    assert await retriever.ainvoke(QUESTION) == documents
    return [(document.page_content, document.metadata) for document in documents]


async def retrieve_with_llamaindex(**settings: Any) -> Passages:
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    from anabranch_integrations.llamaindex import AnabranchRetriever

    retriever = AnabranchRetriever(**settings)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    # This model repeats its prompt.
    answer = engine.query(QUESTION)
    assert "title: Note\n\n" in str(answer) and "document_id" not in str(answer)
    assert (await engine.aquery(QUESTION)).source_nodes == answer.source_nodes
    return [(node.text, node.metadata) for node in answer.source_nodes]


async def retrieve_with_haystack(*, k: int, **settings: Any) -> Passages:
    from haystack import Pipeline

    from anabranch_integrations.haystack import AnabranchRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", AnabranchRetriever(top_k=k, **settings))
    inputs = {"retriever": {"query": QUESTION}}
    documents = pipeline.run(inputs)["retriever"]["documents"]
    with pytest.raises(Exception, match="k: give at least 1"):
        pipeline.run({"retriever": {"query": QUESTION, "top_k": 0}})
    # A saved pipeline names the variable of the token, and never contains it.
    saved = pipeline.dumps()
    assert os.environ["ANABRANCH_TOKEN"] not in saved
    loaded = Pipeline.loads(saved, allowed_modules=[AnabranchRetriever.__module__])
    assert (await loaded.run_async(inputs))["retriever"]["documents"] == documents
    return [(document.content, document.meta) for document in documents]


RETRIEVERS = (retrieve_with_langchain, retrieve_with_llamaindex, retrieve_with_haystack)


@pytest.fixture(autouse=True)
def keep_frameworks_offline(server: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_TOKEN", server["token"])
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


@pytest.mark.parametrize("retrieve", RETRIEVERS)
async def test_retriever_returns_whole_passages_with_their_position(
    server: dict[str, Any], retrieve: Retrieve
) -> None:
    passages = await retrieve(url=server["url"], k=3, filters={"collections": ["harbor"]})
    assert len(passages) == 3
    text, metadata = passages[0]
    assert text.strip() == TEXTS[0].strip() and metadata["title"] == "Note"
    place = f"/v1/documents/{metadata['document_id']}/markdown#char=0,"
    assert metadata["link"].startswith(server["url"] + place)
    assert metadata["spans"][0]["char_start"] == 0 and "page" not in metadata["spans"][0]
    assert metadata["rank"] == 1 and metadata["channels"]["lexical"]["rank"] == 1


@pytest.mark.parametrize("retrieve", RETRIEVERS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "http://127.0.0.1:9"}, "does not answer.*Start it with `anabranch up`"),
        ({"token": "wrong"}, r"Send.*Authorization.*\[UNAUTHENTICATED\]"),
        ({"filters": {"collections": ["none"]}}, r"no collection 'none'.*/v1/collections"),
        ({"filters": {"colour": "red"}}, r"colour.*\[INVALID_REQUEST\]"),
        ({"k": 0}, r"k: give at least 1.*\[INVALID_REQUEST\]"),
    ],
)
async def test_retriever_says_what_to_do(
    server: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    retrieve: Retrieve,
    settings: dict[str, Any],
    message: str,
) -> None:
    settings = dict(settings)
    monkeypatch.setenv("ANABRANCH_TOKEN", settings.pop("token", server["token"]))
    # Haystack wraps it in an error that names the component.
    with pytest.raises(Exception, match=message):
        await retrieve(**{"url": server["url"], "k": 3, **settings})


def test_langchain_retriever_passes_the_standard_tests(server: dict[str, Any]) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", os.devnull, "--noconftest", "-q"),
            *("-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"),
            ROOT / "tests/support/langchain_suite.py",
        ],
        cwd=ROOT,
        env=make_environment(
            SERVER=server["url"],
            ANABRANCH_TOKEN=server["token"],
            PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        ),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "5 passed" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
