"""API keys of the form `ab_<key id>_<secret>`, stored as Argon2 hashes and verified at each
request; audit events of administrative actions, published on topic `control`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from argon2 import PasswordHasher
from argon2.exceptions import VerificationError
from argon2.low_level import ARGON2_VERSION
from cachetools import TTLCache

from schemas.api_keys import ApiKey, ApiKeyRequest, IssuedApiKey, RotationRequest
from schemas.errors import (
    Forbidden,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    unknown_resource_error,
)
from schemas.events import AuditRecorded
from schemas.principals import ROLES, Principal
from schemas.timestamps import utc_now
from services.publishing import EventPublisher
from sql.catalog.access import PgApiKeys, StoredApiKey

KEY_PREFIX = "ab_"
KEY_PATTERN = re.compile(r"ab_([0-9a-f]{16})_([0-9a-f]{64})")
HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
"""OWASP's minimum, about 20 ms per hash: enough for a secret of 256 random bits."""


def _make_decoy_hash() -> str:
    """Return a hash in the format of `HASHER.hash`, at random instead of by computing it."""
    salt, digest = (
        b64encode(secrets.token_bytes(length)).decode().rstrip("=")
        for length in (HASHER.salt_len, HASHER.hash_len)
    )
    costs = f"m={HASHER.memory_cost},t={HASHER.time_cost},p={HASHER.parallelism}"
    return f"$argon2id$v={ARGON2_VERSION}${costs}${salt}${digest}"


DECOY_HASHES = (_make_decoy_hash(), _make_decoy_hash())
"""Verified instead of missing hashes, so that unknown ids take as long as known ones.

Two, since one would be cached for both.
"""
CACHE_TTL_S = 10.0
CACHE_SIZE = 4096
MAX_CONCURRENT_VERIFICATIONS = 2
"""Limit per process: each verification takes a core and 19 MiB."""


@dataclass(slots=True)
class ApiKeyAuthenticator:
    """Authenticate callers by API key.

    Each request reads the key's row, so a revocation takes effect with the next request in every
    process. Only the outcome of Argon2 is cached, by the SHA-256 of the presented key and the
    stored hash.
    """

    keys: PgApiKeys
    clock: Callable[[], float] = time.monotonic
    _outcomes: TTLCache[tuple[bytes, str], bool] = field(init=False)
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_VERIFICATIONS)
    )

    def __post_init__(self) -> None:
        self._outcomes = TTLCache(CACHE_SIZE, CACHE_TTL_S, timer=self.clock)

    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        parsed_key = KEY_PATTERN.fullmatch(credential or "")
        if parsed_key is None:
            raise _make_refusal()
        key = await self.keys.find(parsed_key[1])
        is_match = await self._is_match(parsed_key[0], key)
        if key is None or not is_match or not key.valid:
            raise _make_refusal()
        return Principal(f"key:{key.id}", key.tenant, key.role, key.readers).for_tenant(tenant)

    async def _is_match(self, credential: str, key: StoredApiKey | None) -> bool:
        """Verify the credential against the current and the previous hash."""
        # Always both, with decoys for missing ones: the time must not reveal which exist.
        hashes = (
            key.hash if key else DECOY_HASHES[0],
            (key and key.previous_hash) or DECOY_HASHES[1],
        )
        digest = hashlib.sha256(credential.encode()).digest()
        # A list: with a generator, any() would stop at the first match and reveal it by the time.
        return any([await self._verify(credential, (digest, hashed)) for hashed in hashes])

    async def _verify(self, credential: str, pair: tuple[bytes, str]) -> bool:
        if (cached := self._outcomes.get(pair)) is not None:
            return cached
        async with self._slots:
            # Requests with the same key waited for a slot together.
            if (cached := self._outcomes.get(pair)) is not None:
                return cached
            outcome = await asyncio.to_thread(_verify_hash, pair[1], credential)
        # Failures too, so that repeating a wrong key costs one verification.
        self._outcomes[pair] = outcome
        return outcome


@dataclass(frozen=True, slots=True)
class ApiKeyService:
    """Create, list, rotate and revoke keys that permit no more than the caller has.

    Each change commits with its audit event.
    """

    keys: PgApiKeys
    audit: AuditLog
    clock: Callable[[], datetime] = utc_now

    async def create(
        self, caller: Principal, request: ApiKeyRequest, request_id: str | None = None
    ) -> IssuedApiKey:
        """Create a key.

        Raises Forbidden if it permits more than the caller has, InvalidRequest for an expiry in the
        past.
        """
        if request.expires_at is not None and request.expires_at <= self.clock():
            raise InvalidRequest(
                f"expires_at {request.expires_at.isoformat()} is in the past.",
                remedy="Use a later time, or omit it.",
            )
        readers = request.readers()
        key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
        key = ApiKey(
            id=key_id,
            tenant=caller.tenant,
            name=request.name,
            role=request.role,
            readers=None if readers is None else list(readers),
            created_at=self.clock(),
            created_by=caller.id,
            expires_at=request.expires_at,
            rotated_at=None,
            previous_until=None,
            revoked_at=None,
        )
        _check_covers(caller, key)
        full_key = f"{KEY_PREFIX}{key_id}_{secret}"
        # Hashing takes 20 ms of CPU, too long for the event loop.
        key_hash = await asyncio.to_thread(HASHER.hash, full_key)
        async with self.keys.changes() as changes:
            created = await changes.insert(key, key_hash)
            # If the log does not accept the event, the change is rolled back.
            await self.audit.record(
                caller, "api_key.created", f"{key_id} {request.role}", request_id
            )
        return IssuedApiKey(**dict(created), key=full_key)

    async def list_keys(
        self, caller: Principal, *, after: str | None, limit: int
    ) -> tuple[list[ApiKey], str | None]:
        # One more than requested tells whether there is another page.
        keys = await self.keys.list_keys(
            caller.tenant, readers=caller.readers, after=after, limit=limit + 1
        )
        return keys[:limit], keys[limit - 1].id if len(keys) > limit else None

    async def rotate(
        self,
        caller: Principal,
        key_id: str,
        request: RotationRequest,
        request_id: str | None = None,
    ) -> IssuedApiKey:
        """Replace the secret of a key. Raises NotFound, also for a revoked key, and Forbidden."""
        _check_covers(caller, await self._fetch_of_tenant(caller, key_id))
        full_key = f"{KEY_PREFIX}{key_id}_{secrets.token_hex(32)}"
        key_hash = await asyncio.to_thread(HASHER.hash, full_key)
        previous_until = (
            self.clock() + timedelta(seconds=request.grace_s) if request.grace_s else None
        )
        async with self.keys.changes() as changes:
            rotated = await changes.rotate(key_id, key_hash, previous_until)
            if rotated is None:
                raise _make_not_found(key_id)
            await self.audit.record(caller, "api_key.rotated", key_id, request_id)
        return IssuedApiKey(**dict(rotated), key=full_key)

    async def revoke(self, caller: Principal, key_id: str, request_id: str | None = None) -> ApiKey:
        """Revoke a key. Raises NotFound and Forbidden."""
        _check_covers(caller, await self._fetch_of_tenant(caller, key_id))
        async with self.keys.changes() as changes:
            revoked = await changes.revoke(key_id)
            if revoked is None:
                raise _make_not_found(key_id)
            await self.audit.record(caller, "api_key.revoked", key_id, request_id)
        return revoked

    async def _fetch_of_tenant(self, caller: Principal, key_id: str) -> ApiKey:
        key = await self.keys.get(key_id)
        if key is None or key.tenant != caller.tenant:
            raise _make_not_found(key_id)
        return key


def _check_covers(caller: Principal, key: ApiKey) -> None:
    """Raise Forbidden for a key that permits more than the caller: its secret would lift the
    caller's limits.
    """
    if ROLES.index(key.role) > ROLES.index(caller.role):
        raise Forbidden(
            f"A caller with role {caller.role!r} may not manage a key with role {key.role!r}.",
            code="FORBIDDEN_ROLE",
            remedy="Use a credential whose role is at least that of the key.",
        )
    if caller.readers is not None and (
        key.readers is None or not set(key.readers) <= set(caller.readers)
    ):
        raise Forbidden(
            "The key could read documents that the caller may not read.",
            code="FORBIDDEN_READERS",
            remedy="Use only the caller's own user and groups.",
        )


def _verify_hash(hashed: str, credential: str) -> bool:
    try:
        return HASHER.verify(hashed, credential)
    except VerificationError:
        return False


def _make_refusal() -> Unauthenticated:
    # One text for every reason, so that it does not reveal which ids exist.
    return Unauthenticated("The API key is unknown, expired or revoked.")


def _make_not_found(key_id: str) -> NotFound:
    return unknown_resource_error(
        "API key",
        repr(key_id),
        "List the tenant's keys with GET /v1/keys or `anabranch keys list`.",
    )


AUDIT_SOURCE = "anabranch/audit"
VISIT_INTERVAL_S = 900.0
MAX_VISITS = 4096


@dataclass(frozen=True, slots=True)
class AuditLog(EventPublisher):
    """Publish audit events."""

    _visits: dict[tuple[str, str], datetime] = field(default_factory=dict)

    async def record(
        self,
        caller: Principal,
        action: str,
        subject: str | None,
        request_id: str | None,
        outcome: str = "done",
    ) -> None:
        audit_event = AuditRecorded(
            audit_id=self.fresh_id(),
            actor=caller.id,
            role=caller.role,
            action=action,
            subject=subject,
            tenant=caller.tenant,
            occurred_at=self.clock(),
            request_id=request_id,
            outcome=outcome,
        )
        await self.publish(
            audit_event, AUDIT_SOURCE, caller.tenant, audit_event.audit_id, caller.tenant
        )

    async def record_visit(self, caller: Principal, request_id: str | None) -> None:
        """Record that an operator acts for another tenant, at most once per `VISIT_INTERVAL_S`."""
        if caller.home_tenant is None:
            return
        visit, now = (caller.id, caller.tenant), self.clock()
        last = self._visits.get(visit)
        if last is not None and (now - last).total_seconds() < VISIT_INTERVAL_S:
            return
        await self.record(caller, "tenant.entered", caller.tenant, request_id)
        # Only once it is published, so that a failed visit is recorded at the next request.
        self._visits.pop(visit, None)
        self._visits[visit] = now
        if len(self._visits) > MAX_VISITS:
            del self._visits[next(iter(self._visits))]
