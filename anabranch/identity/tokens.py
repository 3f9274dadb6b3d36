"""JSON Web Tokens of an issuer such as Supabase Auth, verified with its published keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import jwt
from jwt.exceptions import PyJWTError

from anabranch.config.settings import AuthSettings
from anabranch.identity.jwks import ALGORITHMS, KeySet
from schemas.api_keys import MAX_GROUPS
from schemas.errors import Forbidden, Unauthenticated
from schemas.events.raw import is_valid_tenant
from schemas.principals import Principal
from schemas.roles import ROLES, Role

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
                        "require": ["exp", "sub", "aud", *(["iss"] if self.settings.issuer else [])]
                    },
                ),
            )
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
                remedy="Configure the issuer to set this claim, or set ANABRANCH_AUTH__TENANT_CLAIM to the claim with the tenant.",
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
                f"The claim {self.settings.groups_claim!r} is not a list of at most {MAX_GROUPS} names.",
                code="FORBIDDEN_CLAIMS",
            )
        readers = (f"user:{subject}", *(f"group:{group}" for group in groups))
        return Principal(f"jwt:{subject}", tenant, cast("Role", role or "reader"), readers)


def _read_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or None."""
    value: Any = claims
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
