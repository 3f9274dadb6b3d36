"""Roles of the routes, and audit events of administrative actions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args
from uuid import UUID

import httpx2
import pytest

from api.app import OPERATIONS as DECLARED
from api.app import create_app
from api.middleware import MAX_ADDRESSES, WINDOW_S, FailureLimit
from schemas.errors import LogUnavailable, Unauthenticated
from schemas.event_feed import FeedFilter, FeedMessage, LogPage
from schemas.principals import ROLES, Principal, Role
from tests.support.api_client import build_openapi_document
from tests.unit.api_fakes import MemoryFeed, RecordingAuditLog, make_services


@cache
def list_operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in build_openapi_document()["paths"].items()
        for method, operation in methods.items()
    }


REQUIRED_ROLES = {name: one.role for name, one in DECLARED.items() if one.role is not None}
PUBLIC_OPERATIONS = DECLARED.keys() - REQUIRED_ROLES.keys()
READ_ONLY_OPERATIONS = {"plan_generation", "compare_generations"}
AUDITED_BY_SERVICE = {"create_key", "rotate_key", "revoke_key"}


@dataclass
class RoleAuthenticator:
    """Admits `ROLE` or `ROLE@TENANT`."""

    revoked: set[str] = field(default_factory=set)
    call_count: int = 0

    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        self.call_count += 1
        role, _, home = (credential or "").partition("@")
        if role not in ROLES or credential in self.revoked:
            raise Unauthenticated("Unknown credential.")
        return Principal(f"key:{role}", home or "default", role).for_tenant(tenant)  # type: ignore[arg-type]


@asynccontextmanager
async def open_api(role: str, **replaced: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(make_services(**{"authenticate": RoleAuthenticator(), **replaced}))
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(
        transport=transport,
        base_url="http://localhost",
        headers={"Authorization": f"Bearer {role}"},
    ) as client:
        yield client


def test_every_operation_declares_its_role() -> None:
    assert list_operations().keys() == DECLARED.keys()
    assert {"livez", "readyz", "get_signed_file"} == PUBLIC_OPERATIONS
    assert set(get_args(Role)) == set(REQUIRED_ROLES.values())


def test_every_operation_documents_its_credential() -> None:
    document = build_openapi_document()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for name, (_, _, operation) in list_operations().items():
        assert ("security" in operation) == (name not in PUBLIC_OPERATIONS)
        assert name in PUBLIC_OPERATIONS or {"401", "403", "429"} <= operation["responses"].keys()


def test_every_administrative_operation_is_audited() -> None:
    changing = {
        name
        for name, (method, _, _) in list_operations().items()
        if method != "get" and REQUIRED_ROLES.get(name) in ("admin", "operator")
    }
    assert changing - READ_ONLY_OPERATIONS == AUDITED_BY_SERVICE | {
        name for name, one in DECLARED.items() if one.audit is not None
    }


@pytest.mark.parametrize("operation", sorted(REQUIRED_ROLES))
async def test_operation_refuses_the_next_lower_role(operation: str) -> None:
    method, path, _ = list_operations()[operation]
    filled = path.replace("{action}", "pause").replace("{key_id}", "0" * 16)
    while "{" in filled:
        filled = filled[: filled.index("{")] + str(UUID(int=1)) + filled[filled.index("}") + 1 :]
    below = ROLES.index(REQUIRED_ROLES[operation]) - 1
    role = ROLES[below] if below >= 0 else "nobody"
    body = {} if method in ("post", "patch") else None
    async with open_api(role) as client:
        response = await client.request(method.upper(), filled, json=body)
    assert (response.status_code, response.json()["code"]) == (
        (403, "FORBIDDEN_ROLE") if below >= 0 else (401, "UNAUTHENTICATED")
    )


async def test_only_operator_may_select_another_tenant() -> None:
    audit = RecordingAuditLog()
    for role in ("reader", "writer", "admin"):
        async with open_api(f"{role}@acme", audit=audit) as client:
            refused = await client.get("/v1/whoami", headers={"X-Anabranch-Tenant": "other"})
            assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN_TENANT")
            own = await client.get("/v1/whoami", headers={"X-Anabranch-Tenant": "acme"})
            assert (own.status_code, own.json()["tenant"]) == (200, "acme")
    assert audit.entries == []
    async with open_api("operator@acme", audit=audit) as client:
        assert (await client.get("/v1/whoami", headers={"X-Anabranch-Tenant": "other"})).json()[
            "tenant"
        ] == "other"
        assert (
            await client.get("/v1/whoami", headers={"X-Anabranch-Tenant": "../etc"})
        ).status_code == 422
    assert audit.entries == [("other", "tenant.entered", "other", "done")]


@pytest.mark.parametrize("name", ["X-Anabranch-Tenant", "Authorization", "x-anabranch-TENANT"])
async def test_repeated_header_is_refused(name: str) -> None:
    async with open_api("operator") as client:
        values = (
            ("default", "other")
            if "tenant" in name.lower()
            else ("Bearer reader", "Bearer operator")
        )
        pairs = [(name, value) for value in values]
        others = [] if name == "Authorization" else [("Authorization", "Bearer operator")]
        client.headers.clear()
        response = await client.get("/v1/whoami", headers=[*pairs, *others])
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_REQUEST")


async def test_tenant_in_query_or_body_is_refused() -> None:
    async with open_api("reader@acme") as client:
        assert (await client.get("/v1/whoami", params={"tenant": "other"})).status_code == 422
    async with open_api("admin@acme") as client:
        refused = await client.post("/v1/keys", json={"name": "n", "tenant": "other"})
        assert refused.status_code == 422


async def test_audit_event_is_written_before_response() -> None:
    class Away(RecordingAuditLog):
        async def record(self, *args: Any, **kwargs: Any) -> None:
            raise LogUnavailable("The log is unavailable.")

    async with open_api("operator", audit=Away()) as client:
        response = await client.post("/v1/erasures", json={"scope": "document", "name": "x"})
        assert (response.status_code, response.json()["code"]) == (503, "LOG_UNAVAILABLE")
    audit = RecordingAuditLog()
    async with open_api("operator", audit=audit) as client:
        receipt = (
            await client.post("/v1/erasures", json={"scope": "document", "name": "x"})
        ).json()["receipt_id"]
        await client.post("/v1/dead-letters/redrive", json={"all": True, "dry_run": True})
        assert (await client.delete("/v1/sources/orders")).status_code == 404
        await client.post("/v1/dead-letters/redrive", json={})
    assert audit.entries == [
        ("default", "erasure.requested", receipt, "done"),
        ("default", "source.removed", "orders", "NOT_FOUND"),
    ]


async def test_control_topic_is_visible_to_operators_only() -> None:
    filters: list[FeedFilter] = []

    class Feed(MemoryFeed):
        async def read_page(self, caller: Principal, events: FeedFilter, **_: Any) -> LogPage:
            filters.append(events)
            return LogPage(items=[], next="n", end=True, missed=0)

        async def follow(
            self, caller: Principal, events: FeedFilter, **_: Any
        ) -> AsyncGenerator[FeedMessage, None]:
            filters.append(events)
            yield FeedMessage(event="open", data={})

    async with open_api("admin", event_feed=Feed()) as client:
        for path in (
            "/v1/events?topics=control",
            "/v1/events?topics=raw,%20control",
            "/v1/stream?topics=control",
        ):
            assert (await client.get(path)).status_code == 403
        for path in ("/v1/events", "/v1/stream"):
            assert (await client.get(path)).status_code == 200
    assert len(filters) == 2
    for events in filters:
        topics = events.topics
        assert topics is not None and "control" not in topics and "outcomes" in topics
    async with open_api("operator", event_feed=Feed()) as client:
        for path in ("/v1/events?topics=control", "/v1/stream?topics=control"):
            assert (await client.get(path)).status_code == 200


async def test_authentication_failures_are_rate_limited_per_address() -> None:
    failures: list[int] = []
    async with open_api(
        "nobody", max_failures_per_minute=3, count_failed_authentication=lambda: failures.append(1)
    ) as client:
        answers = [
            await client.get("/v1/whoami", headers={"Authorization": f"Bearer ab_{number}"})
            for number in range(5)
        ]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= WINDOW_S
        assert len(failures) == 3, "a blocked address is not checked"
        assert (
            await client.get("/v1/whoami", headers={"Authorization": "Bearer nobody"})
        ).status_code == 429
        valid = await client.get("/v1/whoami", headers={"Authorization": "Bearer reader"})
        assert valid.status_code == 200, "others behind the same address keep their access"


def test_failure_window_expires_and_memory_is_bounded() -> None:
    now = [0.0]
    limit = FailureLimit(2, lambda: now[0])
    for _ in range(2):
        limit.record_failure("a")
    assert limit.get_wait_s("a") == WINDOW_S
    assert limit.get_wait_s("b") is None
    now[0] = WINDOW_S
    assert limit.get_wait_s("a") is None
    for number in range(MAX_ADDRESSES + 5):
        limit.record_failure(str(number))
    assert len(limit._windows) == MAX_ADDRESSES


async def test_revoked_credential_closes_open_stream() -> None:
    """The ASGI application receives the disconnect of the caller."""
    credentials = RoleAuthenticator()
    app = create_app(make_services(authenticate=credentials))
    sent: list[dict[str, Any]] = []
    request_sent = [False]

    async def receive() -> dict[str, Any]:
        if not request_sent[0]:
            request_sent[0] = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
    }
    scope |= {
        "path": "/v1/stream",
        "raw_path": b"/v1/stream",
        "query_string": b"",
        "root_path": "",
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }
    scope |= {"headers": [(b"host", b"localhost"), (b"authorization", b"Bearer reader@acme")]}
    streaming = asyncio.create_task(app(scope, receive, send))
    await asyncio.sleep(0.2)
    assert not streaming.done()
    credentials.revoked.add("reader@acme")
    await asyncio.wait_for(streaming, 30)
    assert sent[0]["status"] == 200
