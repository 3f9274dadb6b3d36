"""Requests generated from the OpenAPI document never get a 5xx answer."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from services import facts
from tests.support.api_client import build_openapi_document
from tests.support.api_world import ApiWorld

EXAMPLES_PER_OPERATION = int(os.environ.get("ATTACK_EXAMPLES", "2"))
"""Of each kind for each operation; `make attack` takes more."""
ENDLESS_STREAM_PATHS = ("/v1/stream", "/v1/runs/{run}/stream")
"""Server-sent events without an end are read elsewhere."""
_REQUEST_ARGUMENTS = ("method", "url", "headers", "params", "json", "data", "files")


@pytest.mark.timeout(1800)
async def test_openapi_requests_cause_no_server_error(
    world: ApiWorld,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Time that a decision waits for an unknown fact.
    monkeypatch.setattr(facts, "FACT_WAIT_S", 0.1)
    await world.ingest_until_searchable(
        "The pump in hall four is oiled each day.",
        "pump.md",
        external_id="pump",
        collection="rules",
        tags="a",
    )
    await world.ask("Who oils the pump?")
    loop, statuses, failures = asyncio.get_running_loop(), Counter[int](), list[str]()

    async def send(arguments: dict[str, Any]) -> httpx2.Response:
        return await asyncio.wait_for(world.http.request(**arguments), 60)

    def call(case: Any) -> None:
        arguments = _get_request_arguments(case)
        try:
            # Read as well: a multipart body is encoded only when it is sent.
            world.http.build_request(**arguments).read()
        except (ValueError, TypeError, AttributeError, httpx2.InvalidURL):
            return  # no HTTP client can send this
        response = asyncio.run_coroutine_threadsafe(send(arguments), loop).result(90)
        statuses[response.status_code] += 1
        if response.status_code >= 500:
            failures.append(
                f"{response.status_code} {case.method} {response.request.url}: "
                f"{arguments.get('json')!r:.300} → {response.text[:300]}"
            )

    schema = schemathesis.openapi.from_dict(build_openapi_document())
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 60
    for operation in operations:
        if operation.path not in ENDLESS_STREAM_PATHS:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                await asyncio.to_thread(_run_examples, operation, mode, call)
    record_property("attempts", statuses.total())
    assert failures == []
    assert {200, 404, 422} <= set(statuses) and statuses.total() > len(operations), statuses


def _get_request_arguments(case: Any) -> dict[str, Any]:
    """As our client takes them, always with the valid token: requests without one have tests of
    their own.
    """
    made = {
        name: value
        for name, value in case.as_transport_kwargs(base_url="http://localhost").items()
        if name in _REQUEST_ARGUMENTS and value is not None
    }
    made["headers"] = {
        name: value
        for name, value in (made.get("headers") or {}).items()
        if name.lower() != "authorization"
    }
    if isinstance(made.get("data"), (bytes, str)):
        made["content"] = made.pop("data")
    return made


def _run_examples(operation: Any, mode: GenerationMode, call: Callable[[Any], None]) -> None:
    @settings(
        max_examples=EXAMPLES_PER_OPERATION,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        call(case)

    try:
        one()
    except (schemathesis.errors.SchemathesisError, Unsatisfiable):
        assert mode is GenerationMode.NEGATIVE  # an operation without parameters has no wrong ones
