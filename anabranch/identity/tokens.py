"""JSON Web Tokens of an issuer such as Supabase Auth, verified with its published keys."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
import jwt
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from anabranch.config.settings import AuthSettings
from engines.bounded_body import (
    DECODABLE_HEADERS,
    BodyTooLarge,
    UndecodableBody,
    bound_replies,
)
from schemas.api_keys import MAX_GROUPS
from schemas.errors import Forbidden, TransientError, Unauthenticated
from schemas.principals import ROLES, Principal, Role, is_valid_tenant

log = structlog.get_logger(__name__)
ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""Asymmetric algorithms only: a public key must never serve as a shared secret (RFC 8725, section
3.1).
"""
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
TIMEOUT_S = 5.0
MAX_AGE_S = 600.0
"""Age after which the keys are fetched again, so that one withdrawn by the issuer is refused."""

FetchJwks = Callable[[str], Awaitable[bytes]]


async def fetch_jwks(url: str) -> bytes:
    """Fetch the key set.

    Raises TransientError unless at most MAX_BYTES arrive completely within TIMEOUT_S.
    """
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            # No redirects: they could lead to a server that the operator did not name.
            httpx2.AsyncClient(
                timeout=TIMEOUT_S,
                follow_redirects=False,
                headers=DECODABLE_HEADERS,
                event_hooks={"response": [bound_replies(MAX_BYTES)]},
            ) as client,
            client.stream("GET", url, headers={"Accept": "application/json"}) as response,
        ):
            if response.status_code != 200:
                raise _make_unavailable_error(f"the server responded {response.status_code}")
            return await response.aread()
    except (BodyTooLarge, UndecodableBody) as error:
        raise _make_unavailable_error(f"the response cannot be read: {error}") from error
    except (httpx2.HTTPError, TimeoutError, OSError) as error:
        raise _make_unavailable_error(str(error) or type(error).__name__) from error


@dataclass(slots=True)
class KeySet:
    """Keys by `kid`.

    An unknown `kid` triggers a fetch, at most one per `refresh_s`; fetched keys stay in use during
    an outage.
    """

    url: str
    refresh_s: float
    fetch: FetchJwks = fetch_jwks
    clock: Callable[[], float] = time.monotonic
    keys: dict[str, PyJWK] = field(default_factory=dict)
    fetched_at: float | None = None
    attempted_at: float | None = None
    failure: TransientError | None = None
    _refreshing: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find(self, kid: str) -> PyJWK:
        """Return the key.

        Raises Unauthenticated if the issuer does not list it, TransientError if the fetch failed.
        """
        if key := self.keys.get(kid):
            is_stale = self.fetched_at is None or self.clock() - self.fetched_at > MAX_AGE_S
            if is_stale and (self._refreshing is None or self._refreshing.done()):
                # In the background: an unreachable issuer must not delay callers whose key is
                # cached.
                self._refreshing = asyncio.create_task(self._refresh())
            return key
        await self._refresh()
        if kid in self.keys:
            return self.keys[kid]
        if self.failure is not None:
            raise self.failure
        raise Unauthenticated("The token is signed with a key that the issuer does not list.")

    async def _refresh(self) -> None:
        async with self._lock:
            # Callers choose the key id: they must not make this server flood the issuer.
            if self.attempted_at is not None and self.clock() - self.attempted_at < self.refresh_s:
                return
            # Before the fetch, so that a failed one counts as well.
            self.attempted_at = self.clock()
            try:
                self.keys = parse_jwks(await self.fetch(self.url))
            except TransientError as error:
                self.failure = error
                log.warning("jwks_unavailable", detail=error.detail)
            else:
                self.failure, self.fetched_at = None, self.clock()


def parse_jwks(body: bytes) -> dict[str, PyJWK]:
    """Return verification keys by `kid`, skipping other entries.

    Raises TransientError if the body is not a key set.
    """
    try:
        entries = json.loads(body)["keys"][:MAX_KEYS]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _make_unavailable_error("the response is not a JSON Web Key Set") from error
    return {
        entry["kid"]: key
        for entry in entries
        if (key := _parse_verification_key(entry)) is not None
    }


def _parse_verification_key(entry: object) -> PyJWK | None:
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("kid"), str)
        or entry.get("kty") == "oct"
        or entry.get("use", "sig") != "sig"
    ):
        return None
    try:
        key = PyJWK.from_dict(entry)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    return key if key.algorithm_name in ALGORITHMS else None


def _make_unavailable_error(reason: str) -> TransientError:
    return TransientError(
        f"Cannot fetch the issuer's keys from AUTH__JWKS_URL: {reason}.",
        code="JWKS_UNAVAILABLE",
        remedy="Retry later; check that the URL in ANABRANCH_AUTH__JWKS_URL is reachable.",
    )


LEEWAY_S = 30
MAX_TOKEN_CHARS = 16_384
NAME_PATTERN = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True)
class TokenAuthenticator:
    """Authenticate callers by token. Tenant, role and groups come from claims that users cannot
    write.
    """

    settings: AuthSettings
    keys: KeySet

    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        claims = await self._verify(credential or "")
        return self._to_principal(claims).for_tenant(tenant)

    async def _verify(self, token: str) -> Mapping[str, Any]:
        """Verify signature and claims. Raises Unauthenticated."""
        # `kid` alone selects the key, and the key the algorithm; `jku`, `jwk` and `x5u` of the
        # token are never read.
        if len(token) > MAX_TOKEN_CHARS:
            raise Unauthenticated(f"The token is longer than {MAX_TOKEN_CHARS} characters.")
        try:
            header = jwt.get_unverified_header(token)
        except (PyJWTError, ValueError, RecursionError) as error:
            raise Unauthenticated("The bearer token is not a JSON Web Token.") from error
        kid, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in ALGORITHMS:
            raise Unauthenticated(f"The token is not signed by one of {', '.join(ALGORITHMS)}.")
        if not isinstance(kid, str):
            raise Unauthenticated("The token has no key id (`kid`).")
        key = await self.keys.find(kid)
        if key.algorithm_name != algorithm:
            raise Unauthenticated("The token's algorithm differs from that of its key.")
        try:
            return cast(
                "Mapping[str, Any]",
                jwt.decode(
                    token,
                    key,
                    algorithms=[key.algorithm_name],
                    audience=self.settings.audience,
                    issuer=self.settings.issuer,
                    leeway=LEEWAY_S,
                    options={
                        # PyJWT accepts a token without `exp` unless it is required here.
                        "require": ["exp", "sub", "aud", *(["iss"] if self.settings.issuer else [])]
                    },
                ),
            )
        # Numbers in the claims may be infinite or too large.
        except (PyJWTError, ValueError, ArithmeticError, RecursionError) as error:
            raise Unauthenticated(f"The token is not valid: {error}.") from error

    def _to_principal(self, claims: Mapping[str, Any]) -> Principal:
        """Map claims to a principal. Raises Forbidden if the claims of a genuine token give no
        access.
        """
        subject = claims["sub"]
        if not isinstance(subject, str) or not NAME_PATTERN.fullmatch(subject):
            raise Forbidden(
                "The claim 'sub' is not a name of at most 200 characters without spaces.",
                code="FORBIDDEN_CLAIMS",
            )
        tenant = _read_claim(claims, self.settings.tenant_claim)
        if not isinstance(tenant, str) or not is_valid_tenant(tenant):
            raise Forbidden(
                f"The claim {self.settings.tenant_claim!r} is not a valid tenant.",
                code="FORBIDDEN_CLAIMS",
                remedy="Configure the issuer to set this claim, or set "
                "ANABRANCH_AUTH__TENANT_CLAIM to the claim with the tenant.",
            )
        role = _read_claim(claims, self.settings.role_claim)
        if role is not None and role not in ROLES:
            raise Forbidden(
                f"The claim {self.settings.role_claim!r} is not one of {', '.join(ROLES)}.",
                code="FORBIDDEN_CLAIMS",
            )
        groups = _read_claim(claims, self.settings.groups_claim) or []
        if (
            not isinstance(groups, list)
            or len(groups) > MAX_GROUPS
            or not all(isinstance(group, str) and NAME_PATTERN.fullmatch(group) for group in groups)
        ):
            raise Forbidden(
                f"The claim {self.settings.groups_claim!r} is not a list of at most {MAX_GROUPS} "
                "names.",
                code="FORBIDDEN_CLAIMS",
            )
        # Never None: a token is limited to readers, whatever its role.
        readers = (f"user:{subject}", *(f"group:{group}" for group in groups))
        return Principal(f"jwt:{subject}", tenant, cast("Role", role or "reader"), readers)


def _read_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
