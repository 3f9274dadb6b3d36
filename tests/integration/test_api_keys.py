"""API keys in Postgres: what is stored, who is admitted, how soon a change takes effect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from argon2 import extract_parameters

from anabranch.identity.authentication import CredentialAuthenticator, LocalTokenAuthenticator
from schemas.api_keys import ApiKeyRequest, RotationRequest
from schemas.errors import (
    AnabranchError,
    Forbidden,
    InvalidRequest,
    LogUnavailable,
    NotFound,
    Unauthenticated,
)
from schemas.principals import Principal
from schemas.topics import CONTROL, Position, Record
from services import api_keys
from services.api_keys import ApiKeyAuthenticator, ApiKeyService, AuditLog
from sql.catalog.access import PgApiKeys
from sql.database import Pool, close_pool, open_pool
from streams.codec import Codec
from tests.fakes.memory_log import MemoryLog

OPERATOR = Principal("local", "default", "operator")
ADMIN = Principal("key:a", "acme", "admin")


@dataclass
class ApiKeyStack:
    pool: Pool
    service: ApiKeyService
    admit: ApiKeyAuthenticator
    other_process: ApiKeyAuthenticator
    """Of another API process."""
    log: MemoryLog

    async def issue_key(self, caller: Principal = ADMIN, **wanted: object) -> str:
        return (
            await self.service.create(
                caller, ApiKeyRequest.model_validate({"name": "test", **wanted})
            )
        ).key

    async def list_recorded_events(self) -> list[str]:
        return [str(record.record.value) async for record in self.log.read(CONTROL)]


@pytest.fixture
async def keys(database: str) -> AsyncIterator[ApiKeyStack]:
    pool = await open_pool(database, size=4, name="keys")
    log = MemoryLog()
    await log.create_topics({CONTROL: 1}, retention_ms={})
    store = PgApiKeys(pool)
    yield ApiKeyStack(
        pool,
        ApiKeyService(store, AuditLog(log, Codec())),
        ApiKeyAuthenticator(store),
        ApiKeyAuthenticator(store),
        log,
    )
    await close_pool(pool)


def parse_key(key: str) -> tuple[str, str]:
    _, identity, secret = key.split("_")
    return identity, secret


async def test_key_gives_its_tenant_role_and_readers(keys: ApiKeyStack) -> None:
    key = await keys.issue_key(role="writer", user="ana", groups=["finance"])
    identity, _ = parse_key(key)
    assert await keys.admit(key, None) == Principal(
        f"key:{identity}", "acme", "writer", ("user:ana", "group:finance")
    )
    unlimited = await keys.admit(await keys.issue_key(), None)
    assert (unlimited.role, unlimited.readers) == ("reader", None)


async def test_secret_is_stored_nowhere(keys: ApiKeyStack) -> None:
    issued = await keys.service.create(ADMIN, ApiKeyRequest(name="n"))
    rotated = await keys.service.rotate(ADMIN, issued.id, RotationRequest(grace_s=60))
    row = await keys.pool.fetchval(
        "select to_jsonb(k)::text from credentials.api_keys k where id = $1", issued.id
    )
    listed = str(await keys.service.list_keys(ADMIN, after=None, limit=10))
    for key in (issued.key, rotated.key):
        for place in (row, listed, *await keys.list_recorded_events()):
            assert parse_key(key)[1] not in place
    assert row.count("$argon2id$") == 2


async def test_other_roles_cannot_read_the_table(keys: ApiKeyStack) -> None:
    await keys.issue_key()
    async with keys.pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "create role documents_only; grant documents_only to current_user; grant usage "
            "on schema anabranch to documents_only; set local role documents_only"
        )
        with pytest.raises(Exception, match="permission denied for schema credentials"):
            async with connection.transaction():
                await connection.fetch("select hash from credentials.api_keys")
        await connection.execute(
            "reset role; revoke all on schema anabranch "
            "from documents_only; drop role documents_only"
        )


@pytest.mark.parametrize("change", ["revoke", "rotate"])
async def test_change_applies_to_next_request_in_every_process(
    keys: ApiKeyStack, change: str
) -> None:
    key = await keys.issue_key()
    for process in (keys.admit, keys.other_process):
        await process(key, None)
    if change == "revoke":
        await keys.service.revoke(ADMIN, parse_key(key)[0])
    else:
        await keys.service.rotate(ADMIN, parse_key(key)[0], RotationRequest())
    for process in (keys.admit, keys.other_process):
        with pytest.raises(Unauthenticated):
            await process(key, None)


async def test_old_secret_is_valid_for_the_grace_period_only(keys: ApiKeyStack) -> None:
    old = await keys.issue_key()
    new = (await keys.service.rotate(ADMIN, parse_key(old)[0], RotationRequest(grace_s=60))).key
    assert (await keys.admit(old, None)).id == (await keys.admit(new, None)).id
    await keys.pool.execute(
        "update credentials.api_keys set previous_until = previous_until - interval '60 s'"
    )
    with pytest.raises(Unauthenticated):
        await keys.admit(old, None)
    await keys.admit(new, None)


async def test_expired_key_is_refused(keys: ApiKeyStack) -> None:
    key = await keys.issue_key(expires_at=datetime.now(UTC) + timedelta(seconds=60))
    await keys.admit(key, None)
    await keys.pool.execute(
        "update credentials.api_keys set expires_at = expires_at - interval '60 s'"
    )
    with pytest.raises(Unauthenticated):
        await keys.admit(key, None)
    with pytest.raises(InvalidRequest):
        await keys.issue_key(expires_at=datetime.now(UTC) - timedelta(seconds=1))


async def test_wrong_keys_get_identical_errors(keys: ApiKeyStack) -> None:
    key = await keys.issue_key()
    identity, secret = parse_key(key)
    revoked = await keys.issue_key()
    await keys.service.revoke(ADMIN, parse_key(revoked)[0])
    wrong = [
        f"ab_{identity}_{'0' * 64}",
        f"ab_{'0' * 16}_{secret}",
        revoked,
        key.upper(),
        f"{key}0",
        f" {key}",
        "ab_",
        "ab__",
        "",
        f"ab_{identity}'--_{secret}",
    ]
    refusals = set()
    for credential in wrong:
        with pytest.raises(Unauthenticated) as refused:
            await keys.admit(credential, None)
        refusals.add((refused.value.detail, refused.value.remedy))
    assert len(refusals) == 1


async def test_unknown_ids_take_as_long_as_known_ones(
    keys: ApiKeyStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the runs and parameters of Argon2, because a clock would be unreliable."""
    verified: list[str] = []
    monkeypatch.setattr(
        api_keys, "_verify_hash", lambda hashed, credential: bool(verified.append(hashed))
    )
    known, rotated, revoked = [parse_key(await keys.issue_key())[0] for _ in range(3)]
    await keys.service.rotate(ADMIN, rotated, RotationRequest(grace_s=60))
    await keys.service.revoke(ADMIN, revoked)
    costs = set()
    for key_id in (known, rotated, revoked, "0" * 16):
        verified.clear()
        with pytest.raises(Unauthenticated):
            await keys.admit(f"ab_{key_id}_{'0' * 64}", None)
        costs.add(tuple(str(extract_parameters(hashed)) for hashed in verified))
    [cost] = costs
    assert len(cost) == 2


async def test_argon2_runs_once_for_many_requests_and_memory_is_bounded(
    keys: ApiKeyStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    real = api_keys._verify_hash
    monkeypatch.setattr(
        api_keys,
        "_verify_hash",
        lambda hashed, credential: verified.append(hashed) or real(hashed, credential),
    )
    monkeypatch.setattr(api_keys, "CACHE_SIZE", 8)
    admit = ApiKeyAuthenticator(keys.admit.keys)
    key = await keys.issue_key()
    for _ in range(20):
        await admit(key, None)
    assert len(verified) == 2
    for number in range(8):
        with pytest.raises(Unauthenticated):
            await admit(f"ab_{number:016x}_{number:064x}", None)
    assert len(admit._outcomes) == 8


async def test_cached_outcome_expires_within_seconds(keys: ApiKeyStack) -> None:
    now = [0.0]
    admit = ApiKeyAuthenticator(keys.admit.keys, lambda: now[0])
    await admit(await keys.issue_key(), None)
    pair = next(iter(admit._outcomes))
    assert pair in admit._outcomes
    now[0] += api_keys.CACHE_TTL_S
    assert pair not in admit._outcomes


async def test_caller_cannot_issue_key_above_own_role(keys: ApiKeyStack) -> None:
    with pytest.raises(Forbidden):
        await keys.issue_key(ADMIN, role="operator")
    operators = await keys.issue_key(Principal("local", "acme", "operator"), role="operator")
    for attempt in (
        keys.service.rotate(ADMIN, parse_key(operators)[0], RotationRequest()),
        keys.service.revoke(ADMIN, parse_key(operators)[0]),
    ):
        with pytest.raises(Forbidden):
            await attempt
    await keys.admit(operators, None)


async def test_limited_admin_cannot_issue_wider_key(keys: ApiKeyStack) -> None:
    limited = Principal("jwt:ana", "acme", "admin", ("user:ana", "group:finance"))
    wider: tuple[dict[str, object], ...] = ({}, {"user": "bob"}, {"groups": ["finance", "board"]})
    for wanted in wider:
        with pytest.raises(Forbidden):
            await keys.issue_key(limited, **wanted)
    await keys.issue_key(limited, groups=["finance"])
    unlimited = await keys.issue_key(ADMIN)
    with pytest.raises(Forbidden):
        await keys.service.rotate(limited, parse_key(unlimited)[0], RotationRequest())


async def test_keys_of_another_tenant_are_not_found(keys: ApiKeyStack) -> None:
    key = await keys.issue_key(ADMIN)
    other = Principal("key:b", "globex", "admin")
    for attempt in (
        keys.service.rotate(other, parse_key(key)[0], RotationRequest()),
        keys.service.revoke(other, parse_key(key)[0]),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert await keys.service.list_keys(other, after=None, limit=10) == ([], None)
    assert (await keys.service.list_keys(other, after=parse_key(key)[0], limit=10))[0] == []
    with pytest.raises(Forbidden):
        await keys.admit(key, "globex")


async def test_operator_issues_keys_for_a_named_tenant(keys: ApiKeyStack) -> None:
    key = await keys.issue_key(OPERATOR.for_tenant("globex"), role="admin")
    assert (await keys.admit(key, None)).tenant == "globex"


async def test_keys_are_listed_in_pages(keys: ApiKeyStack) -> None:
    issued = [parse_key(await keys.issue_key())[0] for _ in range(5)]
    seen: list[str] = []
    after: str | None = None
    while True:
        page, after = await keys.service.list_keys(ADMIN, after=after, limit=2)
        seen += [key.id for key in page]
        if after is None:
            break
    assert seen == issued[::-1]


async def test_change_is_rolled_back_when_publish_fails(
    keys: ApiKeyStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await keys.issue_key()

    async def away(records: list[Record]) -> list[Position]:
        raise LogUnavailable("The log is unavailable.")

    monkeypatch.setattr(keys.log, "append", away)
    attempts = (
        keys.issue_key(),
        keys.service.rotate(ADMIN, parse_key(key)[0], RotationRequest()),
        keys.service.revoke(ADMIN, parse_key(key)[0]),
    )
    for attempt in attempts:
        with pytest.raises(LogUnavailable):
            await attempt
    await keys.admit(key, None)
    assert len((await keys.service.list_keys(ADMIN, after=None, limit=10))[0]) == 1


async def test_every_change_is_recorded_without_its_secret(keys: ApiKeyStack) -> None:
    key = await keys.issue_key(role="writer")
    await keys.service.rotate(ADMIN, parse_key(key)[0], RotationRequest(), "request-1")
    await keys.service.revoke(ADMIN, parse_key(key)[0])
    recorded = await keys.list_recorded_events()
    assert [
        next(what for what in ("created", "rotated", "revoked") if f"api_key.{what}" in text)
        for text in recorded
    ] == ["created", "rotated", "revoked"]
    assert "request-1" in recorded[1] and all(
        '"actor":"key:a"' in text and '"tenant":"acme"' in text for text in recorded
    )


async def test_server_without_credentials_explains_how_to_create_one(keys: ApiKeyStack) -> None:
    chain = CredentialAuthenticator(LocalTokenAuthenticator(None, "default"), keys.admit, None)
    for credential in (None, "guess"):
        with pytest.raises(Unauthenticated) as refused:
            await chain(credential, None)
        assert "anabranch keys create" in refused.value.remedy
    key = await keys.issue_key()
    assert (await chain(key, None)).tenant == "acme"
    with pytest.raises(Unauthenticated) as without:
        await chain(None, None)
    assert "keys create" not in without.value.remedy


async def test_unavailable_database_is_not_an_authentication_error(keys: ApiKeyStack) -> None:
    key = await keys.issue_key()
    await close_pool(keys.pool)
    with pytest.raises(AnabranchError) as error:
        await keys.admit(key, None)
    assert not isinstance(error.value, Unauthenticated)


async def test_limited_admin_lists_only_keys_that_permit_no_more(keys: ApiKeyStack) -> None:
    limited = Principal("key:b", "acme", "admin", ("user:ana", "group:board"))
    await keys.issue_key()
    await keys.issue_key(user="bob")
    await keys.issue_key(user="ana", groups=["audit"])
    own = parse_key(await keys.issue_key(user="ana"))[0]
    listed, _ = await keys.service.list_keys(limited, after=None, limit=10)
    assert [key.id for key in listed] == [own]
    assert len((await keys.service.list_keys(ADMIN, after=None, limit=10))[0]) == 4
