"""The MCP server in this process: protocol, errors, and attacks on the transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import MCPError

from api.agents.route import ApplicationTransport
from api.agents.tools import ApiCaller, ExplainArguments, explain
from api.app import create_app
from api.middleware import MAX_JSON_BYTES
from schemas.errors import TransientError, Unauthenticated
from schemas.principals import Principal
from schemas.questions import (
    OnProgress,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    StepProgress,
)
from tests.support.api_client import call_tool, fail_tool, open_agent
from tests.support.http_server import send_and_disconnect
from tests.unit.api_fakes import DOCUMENT_ID, JOB_ID, make_services
from tests.unit.query_responses import respond

READ_TOOLS = {"search", "fetch", "answer", "explain", "list_collections"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
JSON_HEADERS = {"Accept": "application/json, text/event-stream"}


async def authenticate_reader(credential: str | None, tenant: str | None) -> Principal:
    if credential != "reader":
        raise Unauthenticated("Unknown credential.")
    return Principal("key:reader", "default", "reader")


@asynccontextmanager
async def open_http(**replaced: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(make_services(**{"authenticate": authenticate_reader, **replaced}))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app, raise_app_exceptions=False),
        base_url="http://localhost",
        headers={"Authorization": "Bearer reader"},
        timeout=30,
    ) as http:
        yield http


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_are_read_only_by_default(mode: str) -> None:
    async with open_http() as http, open_agent(http, mode) as agent:
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert tools.keys() == READ_TOOLS
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        with pytest.raises(MCPError, match="Unknown tool 'feedback'"):
            await agent.call_tool("feedback", {"query": "q", "useful": True})


async def test_feedback_tool_follows_setting() -> None:
    async with open_http(agent_feedback=True) as http, open_agent(http) as agent:
        tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
        assert not tools["feedback"].annotations.read_only_hint
        stored = await call_tool(agent, "feedback", query="q", grades={str(JOB_ID): 2})
        assert stored["judgements"] == 1
        assert "set run_id or query" in await fail_tool(agent, "feedback", useful=True)


async def test_document_is_fetched_in_parts() -> None:
    async with open_http() as http, open_agent(http) as agent:
        whole = await call_tool(agent, "fetch", id=str(DOCUMENT_ID))
        assert (whole["text"], whole["next_start"], whole["title"]) == ("# Title", None, "não.bin")
        assert whole["url"] == f"http://localhost/ui/documents/{DOCUMENT_ID}"
        part = await call_tool(agent, "fetch", id=str(DOCUMENT_ID), char_start=2, max_characters=3)
        assert (part["text"], part["char_start"], part["next_start"]) == ("Tit", 2, 5)
        beyond = await fail_tool(agent, "fetch", id=str(DOCUMENT_ID), char_start=8)
        assert "beyond the document's 7 characters" in beyond
        assert "page 3" in await fail_tool(agent, "fetch", id=str(DOCUMENT_ID), page=3)
        assert "Set only one" in await fail_tool(
            agent, "fetch", id=str(DOCUMENT_ID), page=1, char_start=1
        )


async def test_documents_are_resources() -> None:
    async with open_http() as http, open_agent(http) as agent:
        listed = await agent.list_resources()
        (document,) = listed.resources
        assert (document.title, listed.next_cursor) == ("não.bin", "more")
        (content,) = (await agent.read_resource(document.uri)).contents
        assert (content.text, content.mime_type) == ("# Title", "text/markdown")
        for unknown in (
            "anabranch://documents/x",
            f"anabranch://documents/{JOB_ID}",
            "file:///etc",
        ):
            with pytest.raises(MCPError, match=r"Unknown|has no text"):
                await agent.read_resource(unknown)


async def test_failure_is_an_error_and_not_an_empty_result() -> None:
    async def search(caller: Principal, request: SearchRequest) -> Any:
        raise TransientError("All channels failed.", code="ENGINE_UNAVAILABLE", remedy="Retry.")

    async with open_http(search=search) as http, open_agent(http) as agent:
        failed = await fail_tool(agent, "search", query="heron")
        assert failed == "All channels failed. Retry. [ENGINE_UNAVAILABLE]"
        assert "[NOT_FOUND]" in await fail_tool(agent, "answer", query="heron")
        assert "[NOT_FOUND]" in await fail_tool(agent, "fetch", id=str(JOB_ID))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_answer_reports_its_steps_while_it_is_made(mode: str) -> None:
    is_reported = asyncio.Event()
    reports: list[tuple[float, str | None]] = []

    async def query(caller: Principal, request: QueryRequest, tell: OnProgress) -> QueryResponse:
        tell(StepProgress(name="plan"))
        # Never ends if the step is sent only with the answer.
        await is_reported.wait()
        tell(StepProgress(name="answer\x85\u2028", ms=3.0))
        if request.query == "broken":
            raise TransientError("The model broke.", code="ENGINE_UNAVAILABLE", remedy="Retry.")
        return respond("By\u2028the\u2029weir.")

    async def on_progress(step: float, total: float | None, message: str | None) -> None:
        reports.append((step, message))
        is_reported.set()

    app = create_app(make_services(authenticate=authenticate_reader, query=query))
    async with (
        asyncio.timeout(30),
        httpx2.AsyncClient(
            transport=ApplicationTransport(app, ("127.0.0.1", 1)),
            base_url="http://localhost",
            headers={"Authorization": "Bearer reader"},
        ) as http,
        open_agent(http, mode) as agent,
    ):
        result = await agent.call_tool("answer", {"query": "heron"}, progress_callback=on_progress)
        assert dict(result.structured_content)["answer"] == "By\u2028the\u2029weir."
        assert reports == [(1, "plan"), (2, "answer\x85\u2028")]
        broken = await agent.call_tool("answer", {"query": "broken"}, progress_callback=on_progress)
        assert broken.is_error
        assert broken.content[0].text == "The model broke. Retry. [ENGINE_UNAVAILABLE]"
        silent = await agent.call_tool("answer", {"query": "heron"})
        assert not silent.is_error and len(reports) == 4


async def test_remedies_name_tools_instead_of_calls_of_the_api() -> None:
    async with open_http() as http, open_agent(http) as agent:
        failed = await fail_tool(agent, "fetch", id=str(JOB_ID))
        assert "/v1/" not in failed and "Use `search`" in failed


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("search", {}, "query: Field required"),
        ("search", {"query": "x" * 8001}, "at most 8000 characters"),
        ("search", {"query": "x", "k": 101}, "k: give at most 100"),
        ("search", {"query": "x\x00"}, "NUL"),
        ("search", {"query": "x", "overrides": {"answer": {"refuse": False}}}, "overrides"),
        ("search", {"query": "x", "filters": {"tags": ["t"] * 1001}}, "at most 1000"),
        ("answer", {"query": "x", "debug": True}, "debug"),
        ("fetch", {"id": "../../etc/passwd"}, "id: "),
        ("fetch", {"id": str(DOCUMENT_ID), "max_characters": 10**9}, "at most 200000"),
        ("list_collections", {"tenant": "other"}, "tenant"),
    ],
)
async def test_invalid_arguments_are_refused(
    tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with open_http() as http, open_agent(http) as agent:
        failed = await fail_tool(agent, tool, **arguments)
    assert message in failed and "[INVALID_REQUEST]" in failed, failed


@pytest.mark.parametrize("tool", ["search", "answer"])
async def test_numbers_that_json_lacks_are_no_null(tool: str) -> None:
    call = (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":'
        '{"query":"x","filters":{"metadata":{"a":NaN}}}%s}}'
    )
    headers = {**JSON_HEADERS, "Content-Type": "application/json"}
    async with open_http() as http:
        for token in ("", ',"_meta":{"progressToken":1}'):
            response = await http.post("/mcp", content=call % (tool, token), headers=headers)
            assert (
                "filters.metadata: Out of range float" in response.text
                and "INVALID_REQUEST" in response.text
            )


async def test_transport_refuses_web_pages_and_strangers() -> None:
    async with open_http() as http:
        for headers, status in (
            ({"Host": "rebind.evil.example"}, 421),
            ({"Host": "rebind.evil.example", "Origin": "http://rebind.evil.example"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Authorization": "Bearer nobody"}, 401),
        ):
            refused = await http.post("/mcp", json=PING, headers={**JSON_HEADERS, **headers})
            assert refused.status_code == status, (headers, refused.text)
        large = await http.post("/mcp", content=b"{" + b" " * MAX_JSON_BYTES, headers=JSON_HEADERS)
        assert large.status_code == 413
        assert (await http.get("/mcp", headers=JSON_HEADERS)).status_code == 405


async def test_deeply_nested_message_is_an_error() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 100_000
    headers = {**JSON_HEADERS, "Content-Type": "application/json"}
    async with open_http() as http:
        assert (await http.post("/mcp", content=body, headers=headers)).status_code == 400


async def test_disconnect_cancels_the_call() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def query(caller: Principal, request: QueryRequest, _: OnProgress) -> QueryResponse:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    call = {"name": "answer", "arguments": {"query": "heron"}}
    body = {**PING, "method": "tools/call", "params": call}
    app = create_app(make_services(authenticate=authenticate_reader, query=query))
    async with send_and_disconnect(app, "/mcp", body, "reader") as disconnect:
        await asyncio.wait_for(started.wait(), 30)
        disconnect()
        await asyncio.wait_for(cancelled.wait(), 30)


async def test_explain_waits_until_the_run_is_recorded() -> None:
    unknown = {"detail": "Unknown run.", "code": "NOT_FOUND", "remedy": ""}
    running = {"trace": None, "state": "running", "candidates": None, "numbers": None}
    recorded = running | {"trace": {"models": {}}, "state": "completed"}
    replies = iter([(404, unknown), (200, running), (200, recorded)])

    def reply(request: httpx2.Request) -> httpx2.Response:
        status, body = next(replies)
        return httpx2.Response(status, json=body)

    transport = httpx2.MockTransport(reply)
    async with httpx2.AsyncClient(transport=transport, base_url="http://server") as http:
        explained = await explain(ApiCaller(http), ExplainArguments(run_id=JOB_ID))
    assert explained["state"] == "completed"
