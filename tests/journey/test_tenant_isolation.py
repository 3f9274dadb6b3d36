"""Call every operation as users of two tenants with the names of each other's data."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx2
import pytest

from anabranch.composition.api import prepare_api
from anabranch.composition.worker import prepare_worker
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from api.app import create_app
from api.services import Services
from processors import TOPICS
from schemas.errors import Unauthenticated
from schemas.principals import Principal
from schemas.topics import CONTROL
from services import facts
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_client import build_openapi_document
from tests.support.api_world import wait_until_ready
from tests.support.eventually import eventually

T = TypeVar("T")
Json = dict[str, Any]
TENANTS = ("acme", "bolt")
READER_NAMES_BY_USER = {"ana": ("user:ana",), "ben": ("user:ben", "group:finance"), "head": None}
"""Two users, and an operator of the house that acts for the tenant."""
FIXED_BODY_FIELDS: dict[str, Json] = {"build_generation": {"purpose": "reindex"}}
"""Fields that keep an operation from changing the server for every tenant."""
STREAM_OPERATIONS = {"stream"}
IS_EXHAUSTIVE = "ATTACK_EXAMPLES" in os.environ
"""`make attack`: every caller, and every value in every place. The suite puts in each place the ids
of its kind and one other value, in turn.
"""
CALLERS = (
    [(tenant, user) for tenant in TENANTS for user in READER_NAMES_BY_USER]
    if IS_EXHAUSTIVE
    else [("acme", "ana"), ("bolt", "ben"), ("bolt", "head")]
)
"""Callers that look for the data of others: both tenants, and each kind of caller."""
VALUES_PER_PARAMETER = 1_000 if IS_EXHAUSTIVE else 1
STREAM_DURATION_S = 6.0 if IS_EXHAUSTIVE else 2.0
ID_KIND_BY_PARAMETER = {"other": "run", "seed": "entity", "into": "entity", "part": "entity"}
"""Of ids in places whose names do not hold it."""
ID_OR_NAME_PARAMETERS = {"entity", "part"}
VALUES_BY_PARAMETER = {
    "stage": ["receive"],
    "topic": ["chunked"],
    "state": ["searchable", "failed"],
    "topics": [",".join(topic for topic in TOPICS if topic != CONTROL)],
    "after": ["begin"],
    "format": ["prov"],
    # Of profiles, and of entities.
    "type": ["fusion", "PERSON", "ORG", "MISC"],
}
"""Values that let a parameter through to what is behind it."""


@dataclass
class OwnedData:
    """Data of one caller: queries contain `hooks`, and no other caller sends `secrets`."""

    secrets: set[str] = field(default_factory=set)
    query_terms: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    ids: dict[str, set[str]] = field(default_factory=dict)

    @property
    def tokens(self) -> set[str]:
        return self.secrets | self.query_terms | self.names | set().union(*self.ids.values())


@dataclass
class ParameterValues:
    """Values for the parameters of a call: ids by kind, and texts."""

    ids: dict[str, list[str]]
    texts: list[str]
    per_parameter: int = VALUES_PER_PARAMETER
    next_index: int = 0

    @property
    def all_ids(self) -> list[str]:
        return [one for ids in self.ids.values() for one in ids]

    def select_ids(self, name: str) -> list[str]:
        """Return all ids of the parameter's kind and some of other kinds."""
        fitting = [
            one
            for kind, ids in self.ids.items()
            if kind in ID_KIND_BY_PARAMETER.get(name, name)
            for one in ids
        ]
        return [*fitting, *self.select_values([one for one in self.all_ids if one not in fitting])]

    def select_values(self, values: Sequence[T]) -> list[T]:
        """Return a bounded number of values, the next ones at each call."""
        if len(values) <= self.per_parameter:
            return list(values)
        self.next_index += self.per_parameter
        return [
            values[(self.next_index + place) % len(values)] for place in range(self.per_parameter)
        ]


@dataclass
class TenantStack:
    """An API with clients of two tenants; all callers of a tenant may read `shared`."""

    services: Services
    clients: dict[tuple[str, str], httpx2.AsyncClient]
    data_by_owner: dict[tuple[str, str], OwnedData]
    request_count: int = 0
    disclosed_tokens: dict[str, set[str]] = field(
        default_factory=lambda: {tenant: set() for tenant in TENANTS}
    )

    def list_foreign_data(self, who: tuple[str, str]) -> list[OwnedData]:
        tenant, user = who
        readable = {who, (tenant, "shared")} | (
            {(tenant, other) for other in READER_NAMES_BY_USER}
            if READER_NAMES_BY_USER[user] is None
            else set()
        )
        return [found for owner, found in self.data_by_owner.items() if owner not in readable]


async def authenticate(credential: str | None, tenant: str | None) -> Principal:
    own, _, user = (credential or "").partition("/")
    if own not in TENANTS or user not in READER_NAMES_BY_USER:
        raise Unauthenticated("Nobody goes by that credential.")
    return Principal(
        f"jwt:{own}-{user}",
        own,
        "admin" if READER_NAMES_BY_USER[user] else "operator",
        READER_NAMES_BY_USER[user],
        None if READER_NAMES_BY_USER[user] else "house",
    )


@asynccontextmanager
async def open_tenant_stack(settings: Settings, dsn: str) -> AsyncIterator[TenantStack]:
    overrides = Overrides(embedder=NullEmbedder(64, 16))
    # Every variation of a request starts a run; none waits for the others.
    api = settings.api.model_copy(update={"max_runs": 10_000})
    settings = settings.model_copy(update={"api": api})
    async with prepare_worker(settings, dsn, overrides=overrides) as worker:
        working = asyncio.create_task(worker.run())
        try:
            async with prepare_api(settings, dsn, overrides=overrides) as services:
                app = create_app(replace(services, authenticate=authenticate))
                clients = {
                    (tenant, user): _open_client(app, f"{tenant}/{user}")
                    for tenant in TENANTS
                    for user in READER_NAMES_BY_USER
                }
                desk = TenantStack(
                    services,
                    clients,
                    {
                        (tenant, user): OwnedData()
                        for tenant in TENANTS
                        for user in (*READER_NAMES_BY_USER, "shared")
                    },
                )
                await wait_until_ready(clients["acme", "head"])
                yield desk
                for client in clients.values():
                    await client.aclose()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def _open_client(app: Any, credential: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {credential}"}
    return httpx2.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers, timeout=60
    )


async def _wait_until_job_final(http: httpx2.AsyncClient, job: str) -> str:
    """Wait until the job is searchable or failed and return its state."""

    async def fetch_state() -> str | None:
        return (await http.get(f"/v1/ingest/status/{job}")).json().get("state")

    return await eventually(fetch_state, lambda state: state in ("searchable", "failed")) or ""


async def create_data(stack: TenantStack) -> None:
    """Create documents, queries, feedback, dead letters, sources, replays and erasures."""
    receipts = [
        await _ingest_documents(stack, tenant, user)
        for tenant in TENANTS
        for user in (*READER_NAMES_BY_USER, "shared")
    ]
    for who, job in [item for found in receipts for item in found]:
        await _wait_until_job_final(stack.clients[who], job)
    for owner in stack.data_by_owner:
        await _state_fact(stack, owner)
    for who in stack.clients:
        await _query_and_rate(stack, who)
    for tenant in TENANTS:
        await _create_tenant_objects(stack, tenant)
    for who in stack.clients:
        await _collect_ids(stack, who)


async def _ingest_documents(
    stack: TenantStack, tenant: str, user: str
) -> list[tuple[tuple[str, str], str]]:
    sender = (tenant, user if user in READER_NAMES_BY_USER else "head")
    own, mark = stack.data_by_owner[tenant, user], f"{tenant}{user}".capitalize()
    secret, hook, title = f"{mark}secretquartz", f"{mark}hookfeldspar", f"{mark}titlebasalt"
    own.secrets |= {secret, title, f"{mark}filegneiss", f"{mark}brokenschist"}
    own.query_terms |= {hook}
    own.names |= {
        f"{mark}externalmarl",
        f"{mark}collectionloess",
        f"{mark}tagtuff",
        f"{mark}metapumice",
    }
    text = (
        f"# {title}\n\n"
        f"The {hook} was bought by {mark} Brandt of {mark} Holdings for {secret} euro.\n"
    )
    fields = {
        "collection": f"{mark}collectionloess",
        "tags": f"{mark}tagtuff",
        "metadata": json.dumps({"who": f"{mark}metapumice"}),
    }
    fields |= {"external_id": f"{mark}externalmarl"}
    if user in READER_NAMES_BY_USER:
        fields["readers"] = f"user:{user}"
    http, sent = stack.clients[sender], []
    for name, body, extra in (
        (f"{mark}filegneiss.md", text.encode(), fields),
        (
            f"{mark}brokenschist.pdf",
            b"%PDF-1.7 broken",
            {**fields, "external_id": f"{mark}externalbroken"},
        ),
    ):
        answer = await http.post("/v1/ingest", files={"file": (name, body)}, data=extra)
        assert answer.status_code == 202, answer.text
        own.ids.setdefault("document", set()).add(answer.json()["document_id"])
        own.ids.setdefault("job", set()).add(answer.json()["ingestion_job_id"])
        sent.append((sender, answer.json()["ingestion_job_id"]))
    return sent


async def _state_fact(stack: TenantStack, owner: tuple[str, str]) -> None:
    """State and approve a fact with the words that the owner's queries contain."""
    tenant, user = owner
    http, own = stack.clients[tenant, "head"], stack.data_by_owner[owner]
    secret = f"{tenant}{user}factonyx".capitalize()
    own.secrets.add(secret)
    fact = {"subject": f"The {next(iter(own.query_terms))}", "predicate": "was bought for"}
    readers = [f"user:{user}"] if user in READER_NAMES_BY_USER else None
    proposed = await http.post("/v1/facts", json={**fact, "object": secret, "readers": readers})
    assert proposed.status_code == 202, proposed.text
    fact_id = str(proposed.json()["fact_id"])
    own.ids["fact"] = {fact_id}
    approved = await http.post(f"/v1/facts/{fact_id}/approve")
    assert approved.status_code == 202, approved.text

    async def fetch_status() -> str:
        return str((await http.get(f"/v1/facts/{fact_id}")).json().get("status"))

    await eventually(fetch_status, lambda status: status == "approved")


async def _query_and_rate(stack: TenantStack, who: tuple[str, str]) -> None:
    """Query with words that only this caller's own documents contain."""
    own, http = stack.data_by_owner[who], stack.clients[who]
    question = f"{''.join(who).capitalize()}askedgranite"
    own.secrets.add(question)
    for path in ("/v1/query", "/v1/search"):
        answer = await http.post(
            path,
            json={"query": f"What was the {next(iter(own.query_terms))} bought for, {question}?"},
        )
        assert answer.status_code == 200, answer.text
        own.ids.setdefault("run", set()).add(answer.json()["run_id"])
    found = [result["chunk_id"] for result in answer.json()["results"]]
    assert found, "everyone finds what is its own"
    saved = await http.post("/v1/questions", json={"query": f"Who sold {question}?"})
    assert saved.status_code == 201, saved.text
    own.ids.setdefault("question", set()).add(saved.json()["question_id"])
    note = f"{''.join(who).capitalize()}notedgabbro"
    own.secrets.add(note)
    feedback = await http.post(
        "/v1/feedback",
        json={
            "run_id": answer.json()["run_id"],
            "useful": True,
            "note": note,
            "relevant": found[:1],
        },
    )
    assert feedback.status_code in (202, 422), feedback.text


async def _create_tenant_objects(stack: TenantStack, tenant: str) -> None:
    http, own = stack.clients[tenant, "head"], stack.data_by_owner[tenant, "head"]
    name = f"{tenant}-source"
    added = await http.post(
        "/v1/sources",
        json={
            "name": name,
            "connector": {"kind": "urls", "urls": [f"http://127.0.0.1:9/{tenant}source"]},
        },
    )
    if added.status_code == 202:
        own.names |= {name, f"{tenant}source"}
    started = await http.post("/v1/experiments", json={"candidate": "rrf"})
    assert started.status_code == 201, started.text
    own.ids["experiment"] = {started.json()["experiment_id"]}
    replayed = await http.post(
        "/v1/replays",
        json={"stage": "transcribe", "collection": f"{tenant.capitalize()}headcollectionloess"},
    )
    assert replayed.status_code == 202, replayed.text
    own.ids["replay"] = {replayed.json()["replay_id"]}
    receipt = await http.post(
        "/v1/ingest",
        json={
            "text": "Nothing stays.",
            "collection": f"{tenant}-gone",
            "external_id": f"{tenant}-gone",
        },
    )
    own.ids["receipt"] = {
        await _erase_collection(http, f"{tenant}-gone", receipt.json()["ingestion_job_id"])
    }
    own.names.add(f"{tenant}-gone")
    exam = await http.post("/v1/exams", json={"questions": 2})
    assert exam.status_code == 200, exam.text
    own.ids["exam"] = {exam.json()["exam_id"]}
    letters = (await http.get("/v1/dead-letters")).json()["items"]
    assert letters, "a broken file is a dead letter"
    own.ids["event"] = {
        letter["event_id"]
        for letter in letters
        if letter["external_id"] == f"{tenant.capitalize()}headexternalbroken"
    }


async def _erase_collection(http: httpx2.AsyncClient, collection: str, job: str) -> str:
    assert await _wait_until_job_final(http, job) == "searchable"
    answer = await http.post("/v1/erasures", json={"scope": "collection", "name": collection})
    assert answer.status_code == 202, answer.text
    receipt_id = str(answer.json()["receipt_id"])

    async def fetch_state() -> str:
        return str((await http.get(f"/v1/erasures/{receipt_id}")).json().get("state"))

    # Until then the events about the document are shown to all who could read it.
    await eventually(fetch_state, lambda state: state == "done")
    return receipt_id


async def _collect_ids(stack: TenantStack, who: tuple[str, str]) -> None:
    """Collect ids of chunks and entities that no other caller owns.

    Ids of documents that everyone in the tenant may read belong to the tenant.
    """
    http, own = stack.clients[who], stack.data_by_owner[who]
    for document in own.ids["document"]:
        chunks = (await http.get(f"/v1/documents/{document}/chunks")).json().get("items", [])
        own.ids.setdefault("chunk", set()).update(chunk["chunk_id"] for chunk in chunks)

    async def list_entities() -> list[dict[str, Any]]:
        page = await http.get("/v1/entities", params={"text": "".join(who), "limit": 500})
        return list(page.json()["items"])

    entities = await eventually(list_entities)
    mine = [entity for entity in entities if entity["name"].lower().startswith("".join(who))]
    own.ids["entity"] = {entity["id"] for entity in mine}
    own.secrets |= {entity["name"] for entity in mine}


@dataclass(frozen=True)
class ApiOperation:
    id: str
    method: str
    path: str
    parameters: tuple[Json, ...]
    body: Json | None

    @property
    def is_read(self) -> bool:
        return self.method == "GET"


def list_operations() -> list[ApiOperation]:
    document = build_openapi_document()
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema")
            found.append(
                ApiOperation(
                    operation["operationId"],
                    method.upper(),
                    path,
                    tuple(
                        _resolve_references(parameter, document)
                        for parameter in operation.get("parameters", [])
                    ),
                    _resolve_references(schema, document) if schema else None,
                )
            )
    return found


def _resolve_references(schema: Any, document: Json, depth: int = 0) -> Any:
    if depth > 12:
        return {}
    if isinstance(schema, list):
        return [_resolve_references(one, document, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target.get(part, {}) if isinstance(target, dict) else {}
        return _resolve_references(target, document, depth + 1)
    return {name: _resolve_references(value, document, depth + 1) for name, value in schema.items()}


def generate_calls(
    operation: ApiOperation, things: ParameterValues
) -> Iterator[tuple[Json, Json, Json | None]]:
    """Yield path, query and body with each value in each parameter, one at a time."""
    places = [parameter for parameter in operation.parameters if parameter["in"] == "path"]
    queries = [parameter for parameter in operation.parameters if parameter["in"] == "query"]
    first = {
        place["name"]: _list_parameter_values(place["name"], place["schema"], things)[0]
        for place in places
    }
    required = {
        one["name"]: _list_parameter_values(one["name"], one["schema"], things)[0]
        for one in queries
        if one.get("required")
    }
    body = (
        _make_minimal_body(operation.body, things) | FIXED_BODY_FIELDS.get(operation.id, {})
        if operation.body
        else None
    )
    yield first, required, body
    for place in places:
        for value in _list_parameter_values(place["name"], place["schema"], things):
            yield first | {place["name"]: value}, required, body
    for one in queries:
        for value in _list_parameter_values(one["name"], one["schema"], things):
            yield first, required | {one["name"]: value}, body
    for name, schema in (operation.body or {}).get("properties", {}).items():
        if name in FIXED_BODY_FIELDS.get(operation.id, {}):
            continue
        for value in _list_body_values(name, schema, things):
            yield first, required, {**(body or {}), name: value}


def _list_parameter_values(name: str, schema: Json, things: ParameterValues) -> list[Any]:
    for one in schema.get("anyOf", [schema]):
        if name in VALUES_BY_PARAMETER:
            return VALUES_BY_PARAMETER[name]
        if "enum" in one or "const" in one:
            return things.select_values(one.get("enum", [one.get("const")]))
        if one.get("type") == "array":
            return [[value] for value in _list_parameter_values(name, one.get("items", {}), things)]
        if one.get("type") == "boolean":
            return things.select_values([True, False])
        if one.get("type") in ("integer", "number"):
            return [one.get("maximum", one.get("minimum", 1))]
        if one.get("format") == "uuid":
            return things.select_ids(name)
        if name in ID_OR_NAME_PARAMETERS:
            return [*things.select_ids(name), *things.select_values(things.texts)]
        if one.get("format") in ("date-time", "date"):
            return ["2020-01-01T00:00:00Z" if one["format"] == "date-time" else "2020-01-01"]
        if one.get("type") == "string":
            return things.select_values(things.texts)
    return things.select_values(things.texts)


def _list_body_values(name: str, schema: Json, things: ParameterValues) -> list[Any]:
    for one in schema.get("anyOf", schema.get("oneOf", [schema])):
        if one.get("type") == "object" or "properties" in one:
            inner = one.get("properties", {})
            if not inner:
                return [{"who": text} for text in things.select_values(things.texts)]
            return [
                _make_minimal_body(one, things) | {key: value}
                for key, part in inner.items()
                for value in _list_body_values(key, part, things)
            ]
        if one.get("type") == "array" and (
            one.get("items", {}).get("type") == "object" or "properties" in one.get("items", {})
        ):
            return [[_make_minimal_body(one["items"], things)]]
        return _list_parameter_values(name, one, things)
    return []


def _make_minimal_body(schema: Json, things: ParameterValues) -> Json:
    properties = schema.get("properties", {})
    found = {}
    for name in schema.get("required", []):
        part = properties.get(name, {})
        variants = part.get("anyOf", part.get("oneOf", [part]))
        if "properties" in variants[0]:
            found[name] = _make_minimal_body(variants[0], things)
        else:
            found[name] = (_list_body_values(name, part, things) or things.texts[:1])[0]
    return found


def _send_request(
    http: httpx2.AsyncClient, operation: ApiOperation, path: Json, query: Json, body: Json | None
) -> Any:
    url = operation.path
    for name, value in path.items():
        url = url.replace("{" + name + "}", str(value))
    return http.request(operation.method, url, params=query, json=body)


def _collect_foreign_values(stack: TenantStack, who: tuple[str, str]) -> ParameterValues:
    """Collect values of another user of the tenant and of the other tenant."""
    other = next(tenant for tenant in TENANTS if tenant != who[0])
    owners = [
        stack.data_by_owner[other, "head"],
        *(
            [
                stack.data_by_owner[
                    who[0], next(user for user in READER_NAMES_BY_USER if user != who[1])
                ]
            ]
            if READER_NAMES_BY_USER[who[1]]
            else []
        ),
    ]
    ids: dict[str, list[str]] = {}
    for own in owners:
        for kind in own.ids if own is owners[-1] else ("document", "replay", "receipt", "exam"):
            ids.setdefault(kind, []).extend(sorted(own.ids[kind])[-1:] if kind in own.ids else [])
    texts = [
        text
        for own in owners
        for text in (*own.query_terms, *sorted(own.names)[:2], *sorted(own.names)[-1:])
    ]
    return ParameterValues(ids, [*texts, other], next_index=list(stack.clients).index(who))


def _find_leaks(stack: TenantStack, who: tuple[str, str], answer: Any, sent: str) -> set[str]:
    answer_text = (answer.text + json.dumps(dict(answer.headers))).lower()
    tokens = {token for found in stack.list_foreign_data(who) for token in found.tokens}
    return {
        token
        for token in tokens - stack.disclosed_tokens[who[0]]
        if token.lower() in answer_text and token.lower() not in sent.lower()
    }


def _note_disclosed_tokens(stack: TenantStack, who: tuple[str, str], sent: str) -> None:
    """Exempt what the tenant's own callers have disclosed to it."""
    stack.disclosed_tokens[who[0]] |= {
        token
        for found in stack.list_foreign_data(who)
        for token in found.tokens
        if token.lower() in sent.lower()
    }


async def call_operations(
    stack: TenantStack, wanted: list[ApiOperation]
) -> tuple[set[str], list[str]]:
    """Return the operations called and the leaks found."""
    called, found = set[str](), list[str]()

    async def call_all(who: tuple[str, str]) -> None:
        things = _collect_foreign_values(stack, who)
        for operation in wanted:
            for path, query, body in generate_calls(operation, things):
                sent = json.dumps([path, query, body], default=str)
                if not operation.is_read:
                    _note_disclosed_tokens(stack, who, sent)
                answer = await _send_request(stack.clients[who], operation, path, query, body)
                stack.request_count += 1
                called.add(operation.id)
                where = f"{'/'.join(who)} {operation.id} {sent[:300]} → {answer.status_code}"
                if answer.status_code >= 500:
                    found.append(f"{where} {answer.text[:300]}")
                if leaks := _find_leaks(stack, who, answer, sent):
                    found.append(f"{where} told {sorted(leaks)[:5]}")

    await asyncio.gather(*map(call_all, CALLERS))
    return called, found


async def find_existence_leaks(stack: TenantStack, wanted: list[ApiOperation]) -> list[str]:
    """Find operations that answer a foreign id differently from an unknown one."""
    found = []
    for who in CALLERS:
        http = stack.clients[who]
        for operation in wanted:
            places = [
                one["name"]
                for one in operation.parameters
                if one["in"] == "path"
                and (one["schema"].get("format") == "uuid" or one["name"] in ID_OR_NAME_PARAMETERS)
            ]
            if len(places) != 1 or operation.id == "get_signed_file":
                continue
            fixed = {
                one["name"]: _list_parameter_values(
                    one["name"], one["schema"], ParameterValues({}, ["x"])
                )[0]
                for one in operation.parameters
                if one["in"] == "path" and one["name"] not in places
            }
            body = (
                _make_minimal_body(operation.body, _collect_foreign_values(stack, who))
                if operation.body
                else None
            )
            unknown = await _send_request(
                http, operation, fixed | {places[0]: str(uuid4())}, {}, body
            )
            for thing in _collect_foreign_values(stack, who).select_ids(places[0]):
                answer = await _send_request(http, operation, fixed | {places[0]: thing}, {}, body)
                if (answer.status_code, _get_error_code(answer)) != (
                    unknown.status_code,
                    _get_error_code(unknown),
                ):
                    found.append(
                        f"{'/'.join(who)} {operation.id} {thing}: {answer.status_code} "
                        f"{_get_error_code(answer)}, unknown: {unknown.status_code} "
                        f"{_get_error_code(unknown)}"
                    )
    return found


def _get_error_code(answer: Any) -> Any:
    return answer.json().get("code") if "json" in answer.headers.get("content-type", "") else None


async def test_no_operation_leaks_data_between_users_or_tenants(
    settings: Settings,
    database: str,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_tenant_stack(settings, database) as desk:
        await create_data(desk)
        # Time that a decision waits for an unknown fact.
        monkeypatch.setattr(facts, "FACT_WAIT_S", 0.1)
        every = list_operations()
        assert len({operation.id for operation in every}) == len(every) > 50
        reads = [
            operation
            for operation in every
            if operation.is_read and operation.id not in STREAM_OPERATIONS
        ]
        writes = [operation for operation in every if not operation.is_read]
        called, found = await call_operations(desk, reads)
        assert not found, "\n".join(found[:20])
        assert not (differ := await find_existence_leaks(desk, reads)), "\n".join(differ[:20])
        missing = await _find_operations_failing_for_owners(desk, reads)
        assert not missing, (
            f"the sweep proves nothing of what its owner cannot read either: {missing}"
        )
        assert not (found := await _find_stream_leaks(desk)), "\n".join(found)
        written, found = await call_operations(desk, writes)
        assert not found, "\n".join(found[:20])
        assert called | written | STREAM_OPERATIONS == {operation.id for operation in every}
        assert not (lost := await _find_changed_documents(desk)), (
            f"a call of another user changed {lost}"
        )
        record_property("attempts", desk.request_count)


async def _find_operations_failing_for_owners(
    stack: TenantStack, reads: list[ApiOperation]
) -> list[str]:
    """Find operations that answer no owner with 2xx for its own data."""
    lacking = []
    for operation in reads:
        statuses = set()
        for who, http in stack.clients.items():
            own = stack.data_by_owner[who]
            things = ParameterValues(
                {kind: sorted(ids) for kind, ids in own.ids.items()},
                [
                    *("g1", f"{who[0]}-source", "default"),
                    f"{''.join(who).capitalize()}collectionloess",
                ],
                per_parameter=1_000,
            )
            for call in generate_calls(operation, things):
                statuses.add((await _send_request(http, operation, *call)).status_code)
                if any(200 <= status < 300 for status in statuses):
                    break
            else:
                continue
            break
        if not any(200 <= status < 300 for status in statuses):
            lacking.append(f"{operation.id} {sorted(statuses)}")
    return [
        one
        for one in lacking
        if not one.startswith(("get_signed_file", "get_build", "ingest_status_by_event"))
    ]


async def _find_stream_leaks(stack: TenantStack) -> list[str]:
    """Read the streams of all callers from the beginning until the server closes them."""

    async def follow(who: tuple[str, str], **query: Any) -> list[str]:
        answer = await stack.clients[who].get("/v1/stream", params={"after": "begin", **query})
        leaks = _find_leaks(stack, who, answer, json.dumps(query))
        return (
            [f"{who} stream {query}: {sorted(leaks)[:5]}"]
            if leaks
            else ([] if "event: open" in answer.text else [f"{who}: {answer.text[:200]}"])
        )

    async def stop() -> list[str]:
        await asyncio.sleep(STREAM_DURATION_S)
        stack.services.event_feed.close_streams()
        return []

    wanted = [follow(who) for who in CALLERS]
    wanted += [
        follow(who, document=thing)
        for who in CALLERS
        for thing in _collect_foreign_values(stack, who).all_ids[:4]
    ]
    return [line for lines in await asyncio.gather(*wanted, stop()) for line in lines]


async def _find_changed_documents(stack: TenantStack) -> list[str]:
    """Find documents that have changed for their owners."""
    lost = []
    for (tenant, user), own in stack.data_by_owner.items():
        http = stack.clients[tenant, user if user in READER_NAMES_BY_USER else "head"]
        mark = f"{tenant}{user}".capitalize()
        for document in own.ids["document"]:
            found = (await http.get(f"/v1/documents/{document}")).json()
            if found.get("state") not in ("searchable", "failed", "running") or UUID(
                found["document_id"]
            ) != UUID(document):
                lost.append(f"{mark} {document}: {found}")
            if found.get("state") == "searchable" and (found["collection"], found["tags"]) != (
                f"{mark}collectionloess",
                [f"{mark}tagtuff"],
            ):
                lost.append(f"{mark} {document}: {found['collection']} {found['tags']}")
    return lost


async def test_collection_is_changed_for_its_tenant_only(settings: Settings, database: str) -> None:
    """Both tenants have a collection `laws`; in acme's, ana may read a document and ben none."""
    question: Json = {"query": "Who keeps the ferry?", "filters": {"collections": ["laws"]}}
    async with open_tenant_stack(settings, database) as desk:

        async def fetch_profile(who: tuple[str, str]) -> str:
            answer = await desk.clients[who].post("/v1/query", json=question)
            return str(answer.json()["trace"]["profile"])

        async def fetch_collection(who: tuple[str, str]) -> Json | None:
            answer = await desk.clients[who].get("/v1/collections/laws")
            return answer.json() if answer.status_code == 200 else None

        for tenant in TENANTS:
            http = desk.clients[tenant, "head"]
            sent = await http.post(
                "/v1/ingest",
                json={"text": "Ann keeps it.", "collection": "laws", "readers": ["user:ana"]},
            )
            assert await _wait_until_job_final(http, sent.json()["ingestion_job_id"]) == (
                "searchable"
            )
        settings_body = {"default_profile": "rrf"}
        # A caller that is limited to readers changes nothing, whatever its role.
        for user in ("ana", "ben"):
            for method, body in (("PUT", settings_body), ("DELETE", None)):
                answer = await desk.clients["acme", user].request(
                    method, "/v1/collections/laws", json=body
                )
                assert (answer.status_code, answer.json()["code"]) == (403, "LIMITED_TO_READERS")
        configured = await desk.clients["acme", "head"].put(
            "/v1/collections/laws", json=settings_body
        )
        assert configured.status_code == 200
        assert (
            await fetch_profile(("acme", "head")) == await fetch_profile(("acme", "ana")) == ("rrf")
        )
        # Neither the list nor the profile of an answer tells that the collection exists.
        assert await fetch_profile(("acme", "ben")) == "default"
        assert await fetch_collection(("acme", "ben")) is None
        assert (await desk.clients["acme", "ben"].get("/v1/collections")).json()["items"] == []
        assert await fetch_profile(("bolt", "head")) == "default"
        before = await fetch_collection(("bolt", "head"))
        assert before and before["default_profile"] is None and before["documents"] == 1

        deleted = await desk.clients["acme", "head"].delete("/v1/collections/laws")
        assert deleted.status_code == 202
        await eventually(
            lambda: fetch_collection(("acme", "head")),
            lambda found: bool(found) and found["deletion"]["state"] == "done",
        )
        assert await fetch_collection(("acme", "ana")) is None
        assert await fetch_collection(("bolt", "head")) == before
