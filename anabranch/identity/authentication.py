"""Authenticate by local token, API key or JSON Web Token, chosen by the credential's form."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import SecretStr

from anabranch.config.settings import AuthSettings, Settings
from schemas.errors import Unauthenticated
from schemas.principals import Principal
from services.api_keys import KEY_PATTERN, ApiKeyAuthenticator
from sql.catalog.access import PgApiKeys
from streams.codec import DEFAULT_TENANT

if TYPE_CHECKING:
    from anabranch.identity.tokens import TokenAuthenticator


@dataclass(frozen=True, slots=True)
class LocalTokenAuthenticator:
    """Admit the holder of the local token as an operator. Without a configured token, admit no
    caller.
    """

    token: SecretStr | None
    tenant: str

    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        if credential is None:
            raise Unauthenticated("The request carries no credential.")
        expected = self.token.get_secret_value() if self.token else ""
        # In constant time, so that the duration reveals no prefix of the token.
        if not expected or not hmac.compare_digest(credential.encode(), expected.encode()):
            raise Unauthenticated("The bearer token is not valid here.")
        return Principal(id="local", tenant=self.tenant, role="operator").for_tenant(tenant)


FIRST_KEY_REMEDY = (
    "Create the first key on the server's machine, with its settings: `anabranch keys create "
    "--role operator`. "
    "Then send it as `Authorization: Bearer KEY`, or store it with `anabranch login --server URL`."
)


@dataclass(frozen=True, slots=True)
class CredentialAuthenticator:
    """Authenticate by API key, JSON Web Token (if an issuer is configured) or local token."""

    local: LocalTokenAuthenticator
    keys: ApiKeyAuthenticator
    tokens: TokenAuthenticator | None

    async def __call__(self, credential: str | None, tenant: str | None) -> Principal:
        if self.local.token is None and self.tokens is None and not await self.keys.keys.has_any():
            raise Unauthenticated(
                "No credential is configured for this server, so it refuses every call.",
                code="NO_CREDENTIALS",
                remedy=FIRST_KEY_REMEDY,
            )
        if credential is not None and KEY_PATTERN.fullmatch(credential):
            return await self.keys(credential, tenant)
        if self.tokens is not None and credential is not None and credential.count(".") == 2:
            return await self.tokens(credential, tenant)
        return await self.local(credential, tenant)


def build_authenticator(settings: Settings, keys: PgApiKeys) -> CredentialAuthenticator:
    return CredentialAuthenticator(
        LocalTokenAuthenticator(settings.api.token, DEFAULT_TENANT),
        ApiKeyAuthenticator(keys),
        _build_token_authenticator(settings.auth),
    )


def _build_token_authenticator(auth: AuthSettings) -> TokenAuthenticator | None:
    """Return None if no issuer is configured."""
    if not auth.jwks_url:
        return None
    # Here, because the library takes 30 ms of every start.
    from anabranch.identity.tokens import KeySet, TokenAuthenticator

    return TokenAuthenticator(auth, KeySet(auth.jwks_url, auth.jwks_refresh_s))
