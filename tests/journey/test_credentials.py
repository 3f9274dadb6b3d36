"""Keys, roles and audit events of a real server, from its command line and over HTTP."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.canaries import read_files
from tests.support.eventually import eventually_blocking
from tests.support.server_process import open_http_client, run_anabranch, run_up

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("credentials") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[dict[str, Any]]:
    with run_up(data) as (_, ready):
        yield ready


def open_client(server: dict[str, Any], key: str, **headers: str) -> httpx2.Client:
    return httpx2.Client(
        base_url=server["url"], headers={"Authorization": f"Bearer {key}", **headers}, timeout=60
    )


def create_key(server: dict[str, Any], tenant: str | None = None, **wanted: Any) -> str:
    with open_http_client(server) as http:
        headers = {"X-Anabranch-Tenant": tenant} if tenant else {}
        response = http.post("/v1/keys", json={"name": "journey", **wanted}, headers=headers)
        assert response.status_code == 201, response.text
        return str(response.json()["key"])


def test_first_key_is_created_locally_and_used_by_login(
    server: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    made = run_anabranch(
        "keys", "create", "--role", "admin", "--tenant", "acme", "--data", str(data)
    )
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    assert key.startswith("ab_") and key not in made.stderr
    settings = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    remote = ("--server", server["url"])
    wrong = run_anabranch("login", *remote, stdin="ab_wrong\n", **settings)
    assert wrong.returncode != 0 and not (tmp_path / "config").exists()
    login = run_anabranch("login", *remote, stdin=f"{key}\n", **settings)
    assert login.returncode == 0, login.stderr
    assert key not in login.stdout + login.stderr
    stored = tmp_path / "config" / "anabranch" / "credentials.json"
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    who = run_anabranch("whoami", *remote, "--json", **settings)
    assert (json.loads(who.stdout)["tenant"], json.loads(who.stdout)["role"]) == ("acme", "admin")
    wins = run_anabranch("whoami", *remote, "--json", ANABRANCH_TOKEN=server["token"], **settings)
    assert json.loads(wins.stdout)["id"] == "local"
    refused = run_anabranch("whoami", *remote, "--tenant", "other", **settings)
    assert refused.returncode != 0 and "FORBIDDEN_TENANT" in refused.stderr
    above = run_anabranch("keys", "create", "--role", "operator", *remote, **settings)
    assert above.returncode != 0 and "FORBIDDEN_ROLE" in above.stderr
    listed = json.loads(run_anabranch("keys", "list", *remote, "--json", **settings).stdout)[
        "items"
    ]
    assert [item["tenant"] for item in listed] == ["acme"]
    assert run_anabranch("logout", *remote, **settings).returncode == 0
    assert "UNAUTHENTICATED" in run_anabranch("whoami", *remote, **settings).stderr


def test_revoked_key_is_rejected_and_its_stream_closed(server: dict[str, Any]) -> None:
    key = create_key(server)
    ended: list[float] = []

    def read() -> None:
        with open_client(server, key) as http, http.stream("GET", "/v1/stream") as response:
            opened.set()
            try:
                for _ in response.iter_lines():
                    pass
            except httpx2.HTTPError:
                pass
            ended.append(time.monotonic())

    opened = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    assert opened.wait(TIMEOUT_S)
    with open_http_client(server) as operator, open_client(server, key) as http:
        assert http.get("/v1/whoami").status_code == 200
        assert operator.delete(f"/v1/keys/{key.split('_')[1]}").status_code == 200
        revoked = time.monotonic()
        assert http.get("/v1/whoami").status_code == 401
    reader.join(TIMEOUT_S)
    assert ended and ended[0] - revoked < TIMEOUT_S, "a second, and what a busy machine adds"


def test_data_folder_contains_no_key_secrets(server: dict[str, Any], data: Path) -> None:
    key = create_key(server)
    with open_client(server, key) as http, open_http_client(server) as operator:
        http.get("/v1/documents")
        rotated = operator.post(
            f"/v1/keys/{key.split('_')[1]}/rotate", json={"grace_s": 60}
        ).json()["key"]
        http.get("/v1/documents", headers={"Authorization": f"Bearer {rotated}"})
        http.get("/v1/documents", headers={"Authorization": f"Bearer {key[:-1]}x"})
    secrets = [one.split("_")[2].encode() for one in (key, rotated)]
    elsewhere = data / "postgres" / "postgres-location.txt"
    folders = [data, *([Path(elsewhere.read_text().splitlines()[0])] if elsewhere.exists() else [])]
    output = [
        (path, path.read_bytes()) for path in (data.parent / "up.out", data.parent / "up.err")
    ]
    n_files, found = 0, []
    for path, content in chain(output, read_files(*folders)):
        n_files += 1
        found += [(path, secret) for secret in secrets if secret in content]
    assert found == [] and n_files > 100


def test_audit_events_are_listed_per_tenant(server: dict[str, Any]) -> None:
    key = create_key(server, "initech", role="admin")
    with open_client(server, key) as http:
        assert http.post("/v1/keys", json={"name": "second", "role": "operator"}).status_code == 403
        second = http.post("/v1/keys", json={"name": "second"}).json()
        assert http.delete(f"/v1/keys/{second['id']}").status_code == 200
        assert http.delete("/v1/sources/nothing").status_code == 404
        wanted = {
            ("api_key.created", "done"),
            ("api_key.revoked", "done"),
            ("source.removed", "NO_SUCH_SOURCE"),
            ("tenant.entered", "done"),
        }
        acts = eventually_blocking(
            lambda: http.get("/v1/audit").json()["items"],
            lambda acts: wanted <= {(act["action"], act["outcome"]) for act in acts},
        )
        assert {act["tenant"] for act in acts} == {"initech"}
        assert {act["actor"] for act in acts} == {"local", f"key:{key.split('_')[1]}"}
    with open_http_client(server) as operator:
        assert "initech" in {act["tenant"] for act in operator.get("/v1/audit").json()["items"]}
        named = operator.get("/v1/audit", headers={"X-Anabranch-Tenant": "initech"}).json()["items"]
        assert {act["tenant"] for act in named} == {"initech"}
    with open_client(server, create_key(server)) as reader:
        assert reader.get("/v1/audit").status_code == 403


def test_tenant_header_cannot_be_forged(server: dict[str, Any]) -> None:
    key = create_key(server, "acme")
    with open_client(server, key) as http:
        for name, value in (
            ("X-Anabranch-Tenant", "default"),
            ("x_anabranch_tenant", "default"),
            ("X-Forwarded-Tenant", "default"),
        ):
            whoami = http.get("/v1/whoami", headers={name: value})
            assert whoami.status_code == 403 or whoami.json()["tenant"] == "acme"
        assert http.get("/v1/whoami?tenant=default").json()["code"] == "UNKNOWN_PARAMETER"
        twice = http.get(
            "/v1/whoami",
            headers=[("X-Anabranch-Tenant", "acme"), ("X-Anabranch-Tenant", "default")],
        )
        assert twice.status_code in (400, 422)
