"""JSON Web Tokens against a key server on this machine."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from fastapi import FastAPI, Response
from pydantic import SecretStr

from anabranch.desk.authentication import LocalTokenAuthenticator
from anabranch.identity import jwks
from anabranch.identity.api_keys import ApiKeyAuthenticator
from anabranch.identity.authentication import CredentialAuthenticator
from anabranch.identity.jwks import KeySet
from anabranch.identity.tokens import TokenAuthenticator
from anabranch.settings import AuthSettings
from anabranch.settings_loading import load_settings
from schemas.errors import ConfigurationError, Forbidden, TransientError, Unauthenticated
from tests.fakes.serving import serving

ISSUER = "https://project.example/auth/v1"
PRIVATE = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
STRANGER = ec.generate_private_key(ec.SECP256R1())
ALGORITHMS = {
    "ES256": jwt.algorithms.ECAlgorithm,
    "RS256": jwt.algorithms.RSAAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}


@dataclass
class Issuer:
    """What the server answers, and how often it was asked."""

    address: str = ""
    body: bytes = b""
    status: int = 200
    requests: int = 0
    served: list[dict[str, Any]] = field(default_factory=list)

    def serve(self, *algorithms: str) -> None:
        self.status, self.requests = 200, 0
        self.served = [{**ALGORITHMS[name].to_jwk(PRIVATE[name].public_key(), as_dict=True), "kid": name, "alg": name, "use": "sig"} for name in algorithms]
        self.body = json.dumps({"keys": self.served}).encode()


ISSUING = Issuer()


@pytest.fixture(scope="module")
def server() -> Iterator[Issuer]:
    app = FastAPI()

    @app.get("/jwks.json")
    async def keys() -> Response:
        ISSUING.requests += 1
        return Response(ISSUING.body, ISSUING.status, media_type="application/json")

    with serving(app) as address:
        ISSUING.address = f"{address}/jwks.json"
        yield ISSUING


@pytest.fixture
def issuer(server: Issuer) -> Issuer:
    server.serve(*PRIVATE)
    return server


def authenticator(issuer: Issuer, refresh_s: float = 30, **settings: Any) -> TokenAuthenticator:
    chosen = AuthSettings(jwks_url=issuer.address, issuer=ISSUER, **settings)
    return TokenAuthenticator(chosen, KeySet(issuer.address, refresh_s))


def claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    told = {
        "sub": "ana",
        "aud": "authenticated",
        "iss": ISSUER,
        "iat": now,
        "exp": now + 600,
        "app_metadata": {"tenant_id": "acme", "anabranch_role": "writer", "groups": ["finance"]},
    }
    return {name: value for name, value in (told | changed).items() if value is not None}


def signed(algorithm: str = "ES256", key: Any = None, headers: dict[str, Any] | None = None, **changed: Any) -> str:
    return jwt.encode(claims(**changed), key or PRIVATE[algorithm], algorithm, headers={"kid": algorithm, **(headers or {})})


@pytest.mark.parametrize("algorithm", PRIVATE)
async def test_token_gives_tenant_role_and_readers(issuer: Issuer, algorithm: str) -> None:
    caller = await authenticator(issuer)(signed(algorithm), None)
    assert (caller.id, caller.tenant, caller.role, caller.readers) == ("jwt:ana", "acme", "writer", ("user:ana", "group:finance"))


async def test_token_without_role_is_a_readers(issuer: Issuer) -> None:
    caller = await authenticator(issuer)(signed(app_metadata={"tenant_id": "acme"}), None)
    assert (caller.role, caller.readers) == ("reader", ("user:ana",))


def unsigned() -> str:
    parts = ({"alg": "none", "typ": "JWT", "kid": "ES256"}, claims())
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def confused() -> str:
    """Signed with the public key as the shared secret of HS256."""
    secret = PRIVATE["RS256"].public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    parts = ({"alg": "HS256", "typ": "JWT", "kid": "RS256"}, claims(app_metadata={"tenant_id": "acme", "anabranch_role": "operator"}))
    signing = ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return f"{signing}.{urlsafe_b64encode(hmac.digest(secret, signing.encode(), hashlib.sha256)).rstrip(b'=').decode()}"


def altered() -> str:
    header, _, signature = signed().split(".")
    payload = urlsafe_b64encode(json.dumps(claims(app_metadata={"tenant_id": "acme", "anabranch_role": "operator"})).encode())
    return f"{header}.{payload.rstrip(b'=').decode()}.{signature}"


ATTACKS = {
    "no signature": unsigned,
    "public key as shared secret": confused,
    "payload changed": altered,
    "another key": lambda: signed(key=STRANGER),
    "algorithm of another key": lambda: signed("RS256", headers={"kid": "ES256"}),
    "unknown kid": lambda: signed(key=STRANGER, headers={"kid": "stranger"}),
    "kid of a file": lambda: signed(key=STRANGER, headers={"kid": "../../dev/null"}),
    "key in the header": lambda: signed(
        key=STRANGER, headers={"kid": "stranger", "jwk": jwt.algorithms.ECAlgorithm.to_jwk(STRANGER.public_key(), as_dict=True)}
    ),
    "address in the header": lambda: signed(key=STRANGER, headers={"jku": "http://127.0.0.1:9/keys", "x5u": "http://127.0.0.1:9/cert"}),
    "expired": lambda: signed(exp=int(time.time()) - 60),
    "no expiry": lambda: signed(exp=None),
    "not yet valid": lambda: signed(nbf=int(time.time()) + 600),
    "issued in the future": lambda: signed(iat=int(time.time()) + 600),
    "another audience": lambda: signed(aud="other"),
    "no audience": lambda: signed(aud=None),
    "another issuer": lambda: signed(iss="https://evil.example"),
    "no issuer": lambda: signed(iss=None),
    "no subject": lambda: signed(sub=None),
    "not base64": lambda: "a.b.c",
    "too long": lambda: "a" * 20_000 + ".b.c",
    "nested": lambda: urlsafe_b64encode(b"[" * 12_000).decode() + ".e30.e30",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_forged_token_is_refused(issuer: Issuer, attack: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await authenticator(issuer)(ATTACKS[attack](), None)
    assert issuer.requests <= 1
    assert "eyJ" not in refused.value.detail


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"tenant_id": ""},
        {"tenant_id": "../other"},
        {"tenant_id": 7},
        {"tenant_id": "acme", "anabranch_role": "root"},
        {"tenant_id": "acme", "anabranch_role": ["operator"]},
        {"tenant_id": "acme", "groups": "finance"},
        {"tenant_id": "acme", "groups": ["a b"]},
        {"tenant_id": "acme", "groups": ["g"] * 101},
    ],
)
async def test_genuine_token_with_unusable_claims_is_forbidden(issuer: Issuer, metadata: dict[str, Any]) -> None:
    with pytest.raises(Forbidden):
        await authenticator(issuer)(signed(app_metadata=metadata), None)


async def test_claims_that_users_can_edit_are_ignored(issuer: Issuer) -> None:
    token = signed(app_metadata={"tenant_id": "acme"}, user_metadata={"tenant_id": "other", "anabranch_role": "operator"})
    caller = await authenticator(issuer)(token, None)
    assert (caller.tenant, caller.role) == ("acme", "reader")
    with pytest.raises(ConfigurationError, match="users can edit"):
        load_settings(sets=["auth.tenant_claim=user_metadata.tenant_id"])


async def test_only_an_operators_token_acts_for_another_tenant(issuer: Issuer) -> None:
    with pytest.raises(Forbidden):
        await authenticator(issuer)(signed(), "other")
    operator = signed(app_metadata={"tenant_id": "acme", "anabranch_role": "operator"})
    caller = await authenticator(issuer)(operator, "other")
    assert (caller.tenant, caller.home) == ("other", "acme")


async def test_shared_secrets_in_the_key_set_are_left_out(issuer: Issuer) -> None:
    issuer.body = json.dumps(
        {"keys": [{"kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256"}, "x", {"kid": "broken", "kty": "EC"}, *issuer.served]}
    ).encode()
    with pytest.raises(Unauthenticated):
        await authenticator(issuer)(jwt.encode(claims(), b"secret" * 8, "HS256", headers={"kid": "s"}), None)
    assert (await authenticator(issuer)(signed(), None)).id == "jwt:ana"


async def test_unknown_keys_trigger_one_fetch_an_interval(issuer: Issuer) -> None:
    admit = authenticator(issuer)
    await admit(signed(), None)
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await admit(signed(key=STRANGER, headers={"kid": str(number)}), None)
    assert issuer.requests == 1


async def test_new_key_of_the_issuer_is_found(issuer: Issuer) -> None:
    issuer.serve("RS256")
    admit, now = authenticator(issuer), [1000.0]
    admit.keys.clock = lambda: now[0]
    await admit(signed("RS256"), None)
    issuer.serve("RS256", "ES256")
    now[0] += 31
    assert (await admit(signed("ES256"), None)).tenant == "acme"


@pytest.mark.parametrize("failure", ["status", "garbage", "endless"])
async def test_known_keys_work_while_the_issuer_is_unavailable(issuer: Issuer, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer.serve("RS256")
    admit, now = authenticator(issuer), [1000.0]
    admit.keys.clock = lambda: now[0]
    await admit(signed("RS256"), None)
    match failure:
        case "status":
            issuer.status = 500
        case "garbage":
            issuer.body = b"<html>"
        case "endless":
            issuer.body = b"x" * (jwks.MAX_BYTES + 1)
    now[0] += jwks.LIFETIME_S + 1
    assert (await admit(signed("RS256"), None)).tenant == "acme"
    with pytest.raises(TransientError) as unavailable:
        await admit(signed("ES256"), None)
    assert unavailable.value.code == "JWKS_UNAVAILABLE"
    assert (await admit(signed("RS256"), None)).tenant == "acme"


async def test_silent_issuer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hung_up = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        hung_up.set()

    monkeypatch.setattr(jwks, "TIMEOUT_S", 0.2)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        with pytest.raises(TransientError):
            await jwks.fetch_jwks(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/")
        await hung_up.wait()


@pytest.mark.parametrize("url", ["http://project.example/jwks", "ftp://x/jwks", "file:///etc/passwd", "jwks"])
def test_keys_are_not_fetched_over_an_open_network(url: str) -> None:
    with pytest.raises(ConfigurationError):
        load_settings(sets=[f"auth.jwks_url={url}"])


async def test_form_of_the_credential_chooses_who_checks_it(issuer: Issuer) -> None:
    class NoKeys:
        async def find(self, key_id: str) -> None:
            return None

        async def exists_any(self) -> bool:
            return True

    keys = ApiKeyAuthenticator(NoKeys())  # type: ignore[arg-type]
    local = LocalTokenAuthenticator(SecretStr("local-token-of-the-test"), "default")
    chain = CredentialAuthenticator(local, keys, authenticator(issuer))
    assert (await chain(signed(), None)).id == "jwt:ana"
    assert (await chain("local-token-of-the-test", None)).id == "local"
    for refused in (f"ab_{'0' * 16}_{'0' * 64}", confused(), None, "", "a.b"):
        with pytest.raises(Unauthenticated):
            await chain(refused, None)
    with pytest.raises(Unauthenticated):
        await CredentialAuthenticator(local, keys, None)(signed(), None)
