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

from anabranch.config.loader import load_settings
from anabranch.config.settings import AuthSettings
from anabranch.identity import tokens
from anabranch.identity.authentication import CredentialAuthenticator, LocalTokenAuthenticator
from anabranch.identity.tokens import KeySet, TokenAuthenticator
from schemas.errors import ConfigurationError, Forbidden, TransientError, Unauthenticated
from services.api_keys import ApiKeyAuthenticator
from tests.fakes.failing_server import run_asgi_app

ISSUER_URL = "https://project.example/auth/v1"
PRIVATE_KEYS = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
STRANGER_KEY = ec.generate_private_key(ec.SECP256R1())
ALGORITHMS = {
    "ES256": jwt.algorithms.ECAlgorithm,
    "RS256": jwt.algorithms.RSAAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}


@dataclass
class JwksServer:
    """A key server that counts its requests."""

    url: str = ""
    body: bytes = b""
    status: int = 200
    requests: int = 0
    served_keys: list[dict[str, Any]] = field(default_factory=list)

    def serve(self, *algorithms: str) -> None:
        self.status, self.requests = 200, 0
        self.served_keys = [
            {
                **ALGORITHMS[name].to_jwk(PRIVATE_KEYS[name].public_key(), as_dict=True),
                "kid": name,
                "alg": name,
                "use": "sig",
            }
            for name in algorithms
        ]
        self.body = json.dumps({"keys": self.served_keys}).encode()


JWKS_SERVER = JwksServer()


@pytest.fixture(scope="module")
def server() -> Iterator[JwksServer]:
    app = FastAPI()

    @app.get("/jwks.json")
    async def keys() -> Response:
        JWKS_SERVER.requests += 1
        return Response(JWKS_SERVER.body, JWKS_SERVER.status, media_type="application/json")

    with run_asgi_app(app) as address:
        JWKS_SERVER.url = f"{address}/jwks.json"
        yield JWKS_SERVER


@pytest.fixture
def issuer(server: JwksServer) -> JwksServer:
    server.serve(*PRIVATE_KEYS)
    return server


def make_authenticator(
    issuer: JwksServer, refresh_s: float = 30, **settings: Any
) -> TokenAuthenticator:
    chosen = AuthSettings(jwks_url=issuer.url, issuer=ISSUER_URL, **settings)
    return TokenAuthenticator(chosen, KeySet(issuer.url, refresh_s))


def make_claims(**changed: Any) -> dict[str, Any]:
    now = int(time.time())
    claims = {
        "sub": "ana",
        "aud": "authenticated",
        "iss": ISSUER_URL,
        "iat": now,
        "exp": now + 600,
        "app_metadata": {"tenant_id": "acme", "anabranch_role": "writer", "groups": ["finance"]},
    }
    return {name: value for name, value in (claims | changed).items() if value is not None}


def sign_token(
    algorithm: str = "ES256", key: Any = None, headers: dict[str, Any] | None = None, **changed: Any
) -> str:
    return jwt.encode(
        make_claims(**changed),
        key or PRIVATE_KEYS[algorithm],
        algorithm,
        headers={"kid": algorithm, **(headers or {})},
    )


@pytest.mark.parametrize("algorithm", PRIVATE_KEYS)
async def test_token_determines_tenant_role_and_readers(issuer: JwksServer, algorithm: str) -> None:
    caller = await make_authenticator(issuer)(sign_token(algorithm), None)
    assert (caller.id, caller.tenant, caller.role, caller.readers) == (
        "jwt:ana",
        "acme",
        "writer",
        ("user:ana", "group:finance"),
    )


async def test_token_without_role_is_a_reader(issuer: JwksServer) -> None:
    caller = await make_authenticator(issuer)(sign_token(app_metadata={"tenant_id": "acme"}), None)
    assert (caller.role, caller.readers) == ("reader", ("user:ana",))


def make_unsigned_token() -> str:
    parts = ({"alg": "none", "typ": "JWT", "kid": "ES256"}, make_claims())
    return (
        ".".join(
            urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
        )
        + "."
    )


def make_algorithm_confusion_token() -> str:
    """Sign with the public key as the shared secret of HS256."""
    secret = (
        PRIVATE_KEYS["RS256"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    parts = (
        {"alg": "HS256", "typ": "JWT", "kid": "RS256"},
        make_claims(app_metadata={"tenant_id": "acme", "anabranch_role": "operator"}),
    )
    signing = ".".join(
        urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
    )
    signature = hmac.digest(secret, signing.encode(), hashlib.sha256)
    return f"{signing}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def make_altered_token() -> str:
    header, _, signature = sign_token().split(".")
    payload = urlsafe_b64encode(
        json.dumps(
            make_claims(app_metadata={"tenant_id": "acme", "anabranch_role": "operator"})
        ).encode()
    )
    return f"{header}.{payload.rstrip(b'=').decode()}.{signature}"


ATTACKS = {
    "no signature": make_unsigned_token,
    "public key as shared secret": make_algorithm_confusion_token,
    "payload changed": make_altered_token,
    "another key": lambda: sign_token(key=STRANGER_KEY),
    "algorithm of another key": lambda: sign_token("RS256", headers={"kid": "ES256"}),
    "unknown kid": lambda: sign_token(key=STRANGER_KEY, headers={"kid": "stranger"}),
    "kid of a file": lambda: sign_token(key=STRANGER_KEY, headers={"kid": "../../dev/null"}),
    "key in the header": lambda: sign_token(
        key=STRANGER_KEY,
        headers={
            "kid": "stranger",
            "jwk": jwt.algorithms.ECAlgorithm.to_jwk(STRANGER_KEY.public_key(), as_dict=True),
        },
    ),
    "address in the header": lambda: sign_token(
        key=STRANGER_KEY,
        headers={"jku": "http://127.0.0.1:9/keys", "x5u": "http://127.0.0.1:9/cert"},
    ),
    "expired": lambda: sign_token(exp=int(time.time()) - 60),
    "no expiry": lambda: sign_token(exp=None),
    "not yet valid": lambda: sign_token(nbf=int(time.time()) + 600),
    "issued in the future": lambda: sign_token(iat=int(time.time()) + 600),
    "another audience": lambda: sign_token(aud="other"),
    "no audience": lambda: sign_token(aud=None),
    "another issuer": lambda: sign_token(iss="https://evil.example"),
    "no issuer": lambda: sign_token(iss=None),
    "no subject": lambda: sign_token(sub=None),
    "not base64": lambda: "a.b.c",
    "too long": lambda: "a" * 20_000 + ".b.c",
    "nested": lambda: urlsafe_b64encode(b"[" * 12_000).decode() + ".e30.e30",
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_forged_token_is_refused(issuer: JwksServer, attack: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await make_authenticator(issuer)(ATTACKS[attack](), None)
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
async def test_valid_token_with_invalid_claims_is_forbidden(
    issuer: JwksServer, metadata: dict[str, Any]
) -> None:
    with pytest.raises(Forbidden):
        await make_authenticator(issuer)(sign_token(app_metadata=metadata), None)


async def test_user_editable_claims_are_ignored(issuer: JwksServer) -> None:
    token = sign_token(
        app_metadata={"tenant_id": "acme"},
        user_metadata={"tenant_id": "other", "anabranch_role": "operator"},
    )
    caller = await make_authenticator(issuer)(token, None)
    assert (caller.tenant, caller.role) == ("acme", "reader")
    with pytest.raises(ConfigurationError, match="users can edit"):
        load_settings(sets=["auth.tenant_claim=user_metadata.tenant_id"])


async def test_only_operator_token_acts_for_another_tenant(issuer: JwksServer) -> None:
    with pytest.raises(Forbidden):
        await make_authenticator(issuer)(sign_token(), "other")
    operator = sign_token(app_metadata={"tenant_id": "acme", "anabranch_role": "operator"})
    caller = await make_authenticator(issuer)(operator, "other")
    assert (caller.tenant, caller.home_tenant) == ("other", "acme")


async def test_symmetric_keys_in_jwks_are_ignored(issuer: JwksServer) -> None:
    issuer.body = json.dumps(
        {
            "keys": [
                {"kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256"},
                "x",
                {"kid": "broken", "kty": "EC"},
                *issuer.served_keys,
            ]
        }
    ).encode()
    with pytest.raises(Unauthenticated):
        await make_authenticator(issuer)(
            jwt.encode(make_claims(), b"secret" * 8, "HS256", headers={"kid": "s"}), None
        )
    assert (await make_authenticator(issuer)(sign_token(), None)).id == "jwt:ana"


async def test_unknown_key_id_triggers_one_fetch_per_interval(issuer: JwksServer) -> None:
    admit = make_authenticator(issuer)
    await admit(sign_token(), None)
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await admit(sign_token(key=STRANGER_KEY, headers={"kid": str(number)}), None)
    assert issuer.requests == 1


async def test_rotated_issuer_key_is_fetched(issuer: JwksServer) -> None:
    issuer.serve("RS256")
    admit, now = make_authenticator(issuer), [1000.0]
    admit.keys.clock = lambda: now[0]
    await admit(sign_token("RS256"), None)
    issuer.serve("RS256", "ES256")
    now[0] += 31
    assert (await admit(sign_token("ES256"), None)).tenant == "acme"


@pytest.mark.parametrize("failure", ["status", "garbage", "endless"])
async def test_cached_keys_work_while_issuer_is_unavailable(
    issuer: JwksServer, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.serve("RS256")
    admit, now = make_authenticator(issuer), [1000.0]
    admit.keys.clock = lambda: now[0]
    await admit(sign_token("RS256"), None)
    match failure:
        case "status":
            issuer.status = 500
        case "garbage":
            issuer.body = b"<html>"
        case "endless":
            issuer.body = b"x" * (tokens.MAX_BYTES + 1)
    now[0] += tokens.MAX_AGE_S + 1
    assert (await admit(sign_token("RS256"), None)).tenant == "acme"
    with pytest.raises(TransientError) as unavailable:
        await admit(sign_token("ES256"), None)
    assert unavailable.value.code == "JWKS_UNAVAILABLE"
    assert (await admit(sign_token("RS256"), None)).tenant == "acme"


async def test_unresponsive_issuer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    hung_up = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        hung_up.set()

    monkeypatch.setattr(tokens, "TIMEOUT_S", 0.2)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        with pytest.raises(TransientError):
            await tokens.fetch_jwks(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/")
        await hung_up.wait()


@pytest.mark.parametrize(
    "url", ["http://project.example/jwks", "ftp://x/jwks", "file:///etc/passwd", "jwks"]
)
def test_insecure_jwks_url_is_rejected(url: str) -> None:
    with pytest.raises(ConfigurationError):
        load_settings(sets=[f"auth.jwks_url={url}"])


async def test_credential_format_selects_authenticator(issuer: JwksServer) -> None:
    class NoKeys:
        async def find(self, key_id: str) -> None:
            return None

        async def exists_any(self) -> bool:
            return True

    keys = ApiKeyAuthenticator(NoKeys())  # type: ignore[arg-type]
    local = LocalTokenAuthenticator(SecretStr("local-token-of-the-test"), "default")
    chain = CredentialAuthenticator(local, keys, make_authenticator(issuer))
    assert (await chain(sign_token(), None)).id == "jwt:ana"
    assert (await chain("local-token-of-the-test", None)).id == "local"
    for refused in (f"ab_{'0' * 16}_{'0' * 64}", make_algorithm_confusion_token(), None, "", "a.b"):
        with pytest.raises(Unauthenticated):
            await chain(refused, None)
    with pytest.raises(Unauthenticated):
        await CredentialAuthenticator(local, keys, None)(sign_token(), None)
