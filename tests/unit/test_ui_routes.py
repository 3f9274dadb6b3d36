from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx2
import pytest

from api.app import create_app
from api.routes.ui import BUILT_BASE_TAG, CHECKOUT
from api.sessions import BrowserSessions
from schemas.errors import Unauthenticated
from schemas.principals import Principal
from tests.unit.api_fakes import make_services

SECRET = "secret of the folder above"
SCRIPT = "console.log(1)"


@asynccontextmanager
async def open_client(ui_folder: Path, public_url: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    services = make_services(
        sessions=BrowserSessions("token-of-the-tests-0123456789"), public_url=public_url
    )
    app = create_app(services, ui_folders=(ui_folder,))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://localhost"
    ) as client:
        yield client


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(
        f'<!doctype html>{BUILT_BASE_TAG}<script src="./assets/main-1a2b.js"></script>'
    )
    (folder / "assets" / "main-1a2b.js").write_text(SCRIPT)
    (folder / "anabranch.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
async def client(build: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with open_client(build) as client:
        yield client


@pytest.mark.parametrize("address", ["/", "/ui"])
async def test_root_leads_to_the_ui(client: httpx2.AsyncClient, address: str) -> None:
    page = await client.get(address, follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/ui/")


async def test_login_link_sets_a_strict_cookie_and_leads_to_the_ui(
    client: httpx2.AsyncClient,
) -> None:
    code = BrowserSessions("token-of-the-tests-0123456789").make_code()
    response = await client.get("/", params={"login": code})
    assert (response.status_code, response.headers["location"]) == (303, "ui/")
    flags = {flag.strip().lower() for flag in response.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    # Plain HTTP on the loopback address, where browsers drop secure cookies.
    assert "secure" not in flags


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("/ui/", "./"),
        ("/ui/query", "./"),
        ("/ui/runs/0193/fusion", "../../"),
        ("/ui/documents/a%2Fb", "../"),
        ("/ui/index.html", "./"),
    ],
)
async def test_every_screen_gets_the_page_and_finds_its_files(
    client: httpx2.AsyncClient, address: str, base: str
) -> None:
    page = await client.get(address)
    assert page.status_code == 200 and page.headers["cache-control"] == "no-cache"
    assert f'<base href="{base}" />' in page.text
    # As a browser resolves it behind a proxy that serves the server below a path.
    root = urljoin(f"https://example.org/files{address}", base)
    assert root == "https://example.org/files/ui/"
    script = urljoin(urljoin(address, base), "./assets/main-1a2b.js")
    assert (await client.get(script)).text == SCRIPT


async def test_hashed_files_are_immutable_and_others_are_not(client: httpx2.AsyncClient) -> None:
    script = await client.get("/ui/assets/main-1a2b.js")
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "javascript" in script.headers["content-type"]
    icon = await client.get("/ui/anabranch.svg")
    assert icon.headers["cache-control"] == "no-cache"
    assert (await client.head("/ui/assets/main-1a2b.js")).status_code == 200


async def test_unknown_files_are_not_the_page(client: httpx2.AsyncClient) -> None:
    for address in ("/ui/assets/main-0000.js", "/ui/assets/", "/uix", "/query", "/ui" + "/a" * 40):
        found = await client.get(address)
        assert found.status_code in (401, 404) and "<base" not in found.text, address


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../secret.txt",
        "/ui/..%2fsecret.txt",
        "/ui/%2e%2e/secret.txt",
        "/ui/%2e%2e%2fsecret.txt",
        "/ui/assets/../../secret.txt",
        "/ui/assets/..%2f..%2fsecret.txt",
        "/ui/assets/..%5c..%5csecret.txt",
        "/ui//secret.txt",
        "/ui/%00",
        "/ui/assets/%00",
        "/ui/" + "a" * 5_000,
        "/ui/{secret}",
    ],
)
async def test_path_traversal_reaches_no_other_file(
    client: httpx2.AsyncClient, tmp_path: Path, path: str
) -> None:
    path = path.replace("{secret}", str(tmp_path / "secret.txt"))
    # Raw, since clients normalize addresses before they send them.
    url = httpx2.URL("http://localhost/").copy_with(raw_path=path.encode())
    found = await client.get(url)
    assert found.status_code in (200, 404) and SECRET not in found.text


@pytest.mark.parametrize(
    "address",
    [
        '/ui/"><script>alert(1)</script>',
        "/ui/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/ui/query?q=%3Cscript%3Ealert(1)%3C/script%3E",
        "/ui/javascript:alert(1)//",
    ],
)
async def test_nothing_of_an_address_gets_into_the_page(
    client: httpx2.AsyncClient, address: str
) -> None:
    page = await client.get(address, headers={"X-Forwarded-Prefix": '"><script>alert(1)'})
    assert page.status_code == 200 and "alert" not in page.text
    assert re.fullmatch(r"\./|(\.\./)+", re.findall(r'<base href="(.*?)"', page.text)[0])


async def test_page_allows_no_inline_script_and_no_other_origin(client: httpx2.AsyncClient) -> None:
    policy = dict(
        directive.strip().split(" ", 1)
        for directive in (await client.get("/ui/query"))
        .headers["content-security-policy"]
        .split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["object-src"] == "'none'"
    assert "unsafe-eval" not in str(policy) and "http" not in str(policy)


async def test_page_without_a_build_names_the_command(tmp_path: Path) -> None:
    async with open_client(tmp_path / "dist") as client:
        page = await client.get("/ui/runs/0193")
        assert page.status_code == 200 and "make web" in page.text
        docs = re.findall(r'href="(.*?)"', page.text)[0]
        assert urljoin("/ui/runs/0193", docs) == "/docs"
        # Built while the server runs.
        (tmp_path / "dist").mkdir()
        (tmp_path / "dist" / "index.html").write_text("<!doctype html>built")
        assert "built" in (await client.get("/ui/")).text


async def test_path_of_the_public_url_is_served_like_the_root(build: Path) -> None:
    async with open_client(build, "https://example.org/team/files") as client:
        for prefix in ("", "/team/files"):
            assert (await client.get(f"{prefix}/livez")).status_code == 200
            page = await client.get(f"{prefix}/ui/runs/0193/fusion")
            # The address of the build, resolved as a browser does.
            base = urljoin(page.url.path, re.findall(r'<base href="(.*?)"', page.text)[0])
            assert base == f"{prefix}/ui/"
            assert (await client.get(f"{base}assets/main-1a2b.js")).text == SCRIPT
            root = await client.get(f"{prefix}/", follow_redirects=True)
            assert root.url.path == f"{prefix}/ui/"
            if prefix:
                assert (await client.get(prefix, follow_redirects=True)).url.path == f"{prefix}/ui/"
        assert (await client.get("/team/files-of-others/livez")).status_code in (401, 404)


async def test_path_of_the_public_url_bypasses_no_authentication(build: Path) -> None:
    async def refuse(credential: str | None, tenant: str | None) -> Principal:
        raise Unauthenticated("No credential.")

    services = make_services(authenticate=refuse, public_url="https://example.org/ui")
    transport = httpx2.ASGITransport(create_app(services, ui_folders=(build,)))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("/ui/v1/documents", "/v1/documents", "/ui/metrics"):
            assert (await client.get(path)).status_code == 401, path


def test_source_page_has_the_base_that_the_server_replaces() -> None:
    assert BUILT_BASE_TAG in (CHECKOUT / "web" / "index.html").read_text("utf-8")


@pytest.fixture
async def docs_client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(create_app(make_services())), base_url="http://localhost"
    ) as found:
        yield found


async def test_docs_page_references_only_local_resources(docs_client: httpx2.AsyncClient) -> None:
    page = (await docs_client.get("/docs")).text
    assert "://" not in page
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(named) == 4
    for address in (*named, "openapi.json"):
        # As a browser resolves it.
        found = await docs_client.get(urljoin("/docs", address))
        assert found.status_code == 200 and len(found.content) > 200, address


async def test_other_package_files_are_not_served(docs_client: httpx2.AsyncClient) -> None:
    assert (await docs_client.get("/docs/redoc.standalone.js")).status_code == 422
    assert (await docs_client.get("/redoc")).status_code == 404
