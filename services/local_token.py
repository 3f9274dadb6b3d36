"""Authenticate callers by the local token."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from pydantic import SecretStr

from schemas.errors import Unauthenticated
from schemas.principals import Principal


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
        if not expected or not hmac.compare_digest(credential.encode(), expected.encode()):
            raise Unauthenticated("The bearer token is not valid here.")
        return Principal(id="local", tenant=self.tenant, role="operator").for_tenant(tenant)
