"""The interface over gRPC, called by the official client over a socket."""

from __future__ import annotations

import asyncio
import math
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from anabranch.config.settings import ApiSettings
from anabranch.process.api_process import prepare_grpc
from anabranch.process.tcp_ports import find_free_port
from api.app import create_app
from api.grpc import anabranch_pb2 as pb
from api.grpc import server
from api.grpc.anabranch_pb2_grpc import AnabranchStub
from schemas import citations, facts, ingest, questions, responses
from schemas.errors import ConfigurationError
from schemas.questions import OnProgress, QueryRequest, QueryResponse, StepProgress
from schemas.values import Notice, Span
from tests.support.api_client import TOKEN, add_local_token
from tests.support.eventually import eventually
from tests.support.limited_callers import FINAL_STATES, LimitedCallers
from tests.support.server_process import run_up
from tests.unit.api_fakes import make_services

ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"
QUESTION = "How many days of notice must Merrin Ferries give?"
TEXT = "# Ferry contract\n\nMerrin Ferries must give ninety days of notice.\n"
MODELS: dict[str, type[BaseModel]] = {
    model.__name__: model
    for module in (citations, facts, ingest, questions, responses)
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, BaseModel)
} | {"Notice": Notice, "Span": Span}


@asynccontextmanager
async def open_stub(app: FastAPI) -> AsyncIterator[AnabranchStub]:
    async with (
        server.serve_grpc(app, "http://localhost", LOOPBACK, 0) as port,
        grpc.aio.insecure_channel(f"{LOOPBACK}:{port}") as channel,
    ):
        yield AnabranchStub(channel)


def as_user(name: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {name}"), *metadata.items())}


async def ask(stub: AnabranchStub, user: str, **fields: Any) -> list[pb.QueryEvent]:
    request = pb.QueryRequest(query=QUESTION, **fields)
    return [event async for event in stub.Query(request, **as_user(user))]


async def ingest_and_wait(stub: AnabranchStub, request: pb.IngestRequest) -> pb.IngestReceipt:
    receipt = await stub.Ingest(request, **as_user("admin"))
    job = pb.IngestStatusRequest(ingestion_job_id=receipt.ingestion_job_id)

    async def fetch_status() -> pb.JobStatus:
        return await stub.IngestStatus(job, **as_user("admin"))

    status = await eventually(fetch_status, lambda status: status.state in FINAL_STATES)
    assert status.state == "searchable" and status.external_id == request.external_id
    assert {stage.state for stage in status.stages} <= {"done", "skipped"}
    return receipt


async def test_ingested_documents_are_found_and_cited_for_their_readers(
    callers: LimitedCallers,
) -> None:
    async with open_stub(callers.app) as stub:
        request = pb.IngestRequest(
            data=TEXT.encode(),
            external_id="contracts/7",
            filename="contract.md",
            readers=["user:ana"],
            tags=["ferry"],
            metadata={"year": 2024},
        )
        receipt = await ingest_and_wait(stub, request)
        await ingest_and_wait(stub, pb.IngestRequest(text="Merrin is a port.", external_id="b"))
        (*steps, last) = await ask(stub, "ana", return_context=False)
        assert {event.WhichOneof("event") for event in steps} == {"step"}
        assert {"plan", "answer"} <= {event.step.name for event in steps}
        answer = last.answer
        assert not answer.refused and "[1]" in answer.answer and answer.run_id
        (citation,) = answer.citations
        assert (citation.n, citation.document_id) == (1, receipt.document_id)
        assert (citation.external_id, "ninety days" in citation.quote) == ("contracts/7", True)
        assert TEXT[citation.spans[0].char_start :].startswith(citation.quote)
        assert answer.confidence.level and not answer.contexts and answer.trace.timings_ms
        filters = pb.Filters(tags=["ferry"], metadata={"year": 2024})
        search = pb.SearchRequest(query="notice", k=3, filters=filters, return_text=True)
        (result,) = (await stub.Search(search, **as_user("ana"))).results
        assert result.document_id == receipt.document_id and "ninety" in result.text
        assert not (await stub.Search(search, **as_user("bob"))).results
        (*_, last) = await ask(stub, "bob")
        assert last.answer.refused and not last.answer.citations and last.answer.code
        key = as_user("admin", **{"idempotency-key": "one"})
        first = await stub.Ingest(pb.IngestRequest(text="Once."), **key)
        again = await stub.Ingest(pb.IngestRequest(text="Once."), **key)
        assert first.ingestion_job_id == again.ingestion_job_id


REFUSALS = {
    "wrong token": ("Search", pb.SearchRequest(query="x"), "eve", "UNAUTHENTICATED"),
    "foreign job": (
        "IngestStatus",
        pb.IngestStatusRequest(ingestion_job_id="0" * 32),
        "bob",
        "NOT_FOUND",
    ),
    "path in place of a job": (
        "IngestStatus",
        pb.IngestStatusRequest(ingestion_job_id="../../keys"),
        "admin",
        "INVALID_REQUEST",
    ),
    "unknown profile": (
        "Search",
        pb.SearchRequest(query="x", profile="fäst"),
        "ana",
        "UNKNOWN_PROFILE",
    ),
    "unknown profile of a stream": (
        "Query",
        pb.QueryRequest(query="x", profile="fäst"),
        "ana",
        "UNKNOWN_PROFILE",
    ),
    "bad mode": ("Search", pb.SearchRequest(query="x", mode="odd"), "ana", "INVALID_REQUEST"),
    "number that JSON lacks": (
        "Search",
        pb.SearchRequest(query="x", filters=pb.Filters(metadata={"a": math.nan})),
        "ana",
        "INVALID_REQUEST",
    ),
    "metadata that JSON lacks": (
        "Ingest",
        pb.IngestRequest(text="x", metadata={"a": math.inf}),
        "admin",
        "INVALID_REQUEST",
    ),
    "no content": ("Ingest", pb.IngestRequest(external_id="x"), "admin", "INVALID_REQUEST"),
    "NUL characters": (
        "Ingest",
        pb.IngestRequest(text="x\0", metadata={"a\0": 1}),
        "ana",
        "INVALID_REQUEST",
    ),
}
STATUS_BY_CODE = {
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
}


async def test_refused_calls_name_code_and_remedy(callers: LimitedCallers) -> None:
    async with open_stub(callers.app) as stub:
        for method, request, user, code in REFUSALS.values():
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                call = getattr(stub, method)(request, **as_user(user))
                await (call.read() if method == "Query" else call)
            error = refused.value
            metadata = dict(error.trailing_metadata())
            invalid = grpc.StatusCode.INVALID_ARGUMENT
            assert error.code() == STATUS_BY_CODE.get(code, invalid), error
            assert metadata["code"] == code and metadata["request-id"]
            assert metadata["remedy-bin"].decode() in error.details()


async def test_messages_are_bounded_and_await_a_valid_credential(
    callers: LimitedCallers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_JSON_BYTES", 1000)
    async with (
        server.serve_grpc(callers.app, "http://localhost", LOOPBACK, 0) as port,
        grpc.aio.insecure_channel(f"{LOOPBACK}:{port}") as channel,
    ):
        stub = AnabranchStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Ingest(pb.IngestRequest(text="x" * 1000), **as_user("admin"))
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        # The bytes are no message of the method.
        call = channel.stream_unary("/anabranch.v1.Anabranch/Search")(
            iter([b"\xff"]), **as_user("ana")
        )
        assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "cannot be read" in await call.details()
        # The message of this call never comes.
        call = channel.stream_unary("/anabranch.v1.Anabranch/Ingest")(**as_user("eve"))
        assert await call.code() == grpc.StatusCode.UNAUTHENTICATED
        monkeypatch.setattr(server, "MESSAGE_TIMEOUT_S", 0.01)
        call = channel.stream_unary("/anabranch.v1.Anabranch/Ingest")(**as_user("admin"))
        assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def test_cancelled_call_cancels_its_query() -> None:
    cancelled = asyncio.Event()

    async def query(caller: object, body: QueryRequest, on_progress: OnProgress) -> QueryResponse:
        on_progress(StepProgress(name="plan"))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError

    app = create_app(add_local_token(make_services(query=query)))
    async with open_stub(app) as stub:
        call = stub.Query(pb.QueryRequest(query="x"), **as_user(TOKEN))
        assert (await call.read()).step.name == "plan"
        assert not cancelled.is_set()
        call.cancel()
        async with asyncio.timeout(30):
            await cancelled.wait()


async def test_missing_extra_matters_only_with_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "api.grpc.server")
    monkeypatch.setitem(sys.modules, "grpc", None)
    await prepare_grpc(ApiSettings())
    with pytest.raises(ConfigurationError, match="package is missing") as refused:
        await prepare_grpc(ApiSettings(grpc_port=0))
    assert (refused.value.code, "EXTRAS=grpc" in refused.value.remedy) == ("NO_GRPC", True)


async def test_up_serves_grpc_and_the_example_of_the_page_runs(folder: Path) -> None:
    port = find_free_port(LOOPBACK)
    with run_up(folder, ANABRANCH_API__GRPC_PORT=str(port)) as (up, ready):
        assert f"gRPC      {LOOPBACK}:{port}\n" in up.stdout_file.read_text()
        async with grpc.aio.insecure_channel(f"{LOOPBACK}:{port}") as channel:
            request = pb.SearchRequest(query="anything")
            found = await AnabranchStub(channel).Search(request, **as_user(ready["token"]))
            assert found.run_id and not found.results
        page = (ROOT / "docs/how-to/use-grpc.md").read_text()
        (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        place = {"GRPC_SERVER": f"{LOOPBACK}:{port}", "TOKEN": ready["token"]}
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", example],
            cwd=ROOT,
            env=os.environ | place,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0 and "contracts/7" in done.stdout, done.stdout + done.stderr


def test_messages_have_the_fields_of_the_http_api() -> None:
    """Others would be refused in a request, and stay empty in a response."""
    for name, message in pb.DESCRIPTOR.message_types_by_name.items():
        if name not in ("IngestStatusRequest", "QueryEvent"):
            unknown = set(message.fields_by_name) - set(MODELS[name].model_fields)
            assert unknown == ({"data"} if name == "IngestRequest" else set()), name
