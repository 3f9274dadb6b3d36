""""""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
from pydantic import SecretStr

from anabranch.identity.authentication import LocalTokenAuthenticator
from api.app import create_app
from api.sessions import LINK_LIFETIME_S, SESSION_LIFETIME_S, BrowserSessions
from schemas.errors import Unauthenticated
from schemas.principals import Principal
from tests.support.api_client import BEARER, TOKEN, add_local_token
from tests.unit.api_fakes import FakeIntake, make_services

BASE_URL = "http://localhost:8420"


class ManualSecondsClock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualSecondsClock:
    return ManualSecondsClock()


@pytest.fixture
def sessions(clock: ManualSecondsClock) -> BrowserSessions:
    return BrowserSessions(TOKEN, clock)


@pytest.fixture
async def browser(sessions: BrowserSessions) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without Authorization that keeps cookies."""
    app = create_app(add_local_token(make_services(sessions=sessions, ingest=FakeIntake())))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app, raise_app_exceptions=False), base_url=BASE_URL
    ) as client:
        yield client


async def make_login_link(browser: httpx2.AsyncClient) -> str:
    made = await browser.post("/v1/login-links", headers=BEARER)
    assert made.status_code == 201, made.text
    return str(made.json()["url"])


async def test_login_link_opens_exactly_one_session(browser: httpx2.AsyncClient) -> None:
    link = await make_login_link(browser)
    opened = await browser.get(link)
    assert (opened.status_code, opened.headers["location"]) == (303, "ui/")
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and TOKEN not in cookie
    assert (await browser.get("/v1/documents")).status_code == 200
    browser.cookies.clear()
    assert (await browser.get("/v1/documents")).status_code == 401
    again = await browser.get(link)
    assert (again.status_code, again.json()["code"]) == (401, "UNAUTHENTICATED")
    assert "anabranch open" in again.json()["remedy"]


async def test_used_login_link_leads_on_with_a_session_and_explains_itself_without(
    browser: httpx2.AsyncClient,
) -> None:
    link = await make_login_link(browser)
    await browser.get(link)
    again = await browser.get(link, headers={"Accept": "text/html"})
    assert (again.status_code, again.headers["location"]) == (303, "ui/")
    assert "set-cookie" not in again.headers
    browser.cookies.clear()
    page = await browser.get(link, headers={"Accept": "text/html,*/*"})
    assert page.status_code == 401 and page.headers["content-type"].startswith("text/html")
    assert "already used" in page.text and "anabranch open" in page.text
    forged = await browser.get(
        "/", params={"login": "<script>"}, headers={"Accept": "text/html", **BEARER}
    )
    assert forged.status_code == 303 and "script" not in forged.text


async def test_other_spelling_of_a_used_code_opens_no_session(sessions: BrowserSessions) -> None:
    """The last Base64 digit of a signature has unused bits, and other characters are skipped."""
    code = sessions.make_code()
    sessions.exchange_code(code)
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    position = digits.index(code[-1])
    for spelling in (
        *(code[:-1] + digits[position ^ bits] for bits in (1, 2, 3)),
        f"{code}=",
        f"{code}!",
    ):
        with pytest.raises(Unauthenticated):
            sessions.exchange_code(spelling)


async def test_login_link_expires(browser: httpx2.AsyncClient, clock: ManualSecondsClock) -> None:
    link = await make_login_link(browser)
    clock.now += LINK_LIFETIME_S + 1
    assert (await browser.get(link)).status_code == 401


async def test_session_expires(browser: httpx2.AsyncClient, clock: ManualSecondsClock) -> None:
    await browser.get(await make_login_link(browser))
    clock.now += SESSION_LIFETIME_S + 1
    assert (await browser.get("/v1/documents")).status_code == 401


@pytest.mark.parametrize("code", ["", "x", "..", "9999999999.a.b", "é", "9" * 500])
async def test_forged_codes_and_cookies_are_refused(
    browser: httpx2.AsyncClient, sessions: BrowserSessions, code: str
) -> None:
    assert (await browser.get("/", params={"login": code})).status_code == 401
    for forged in (
        code,
        sessions.make_code(),
        BrowserSessions("another-token-0123456789").exchange_code(
            BrowserSessions("another-token-0123456789").make_code()
        ),
    ):
        assert (
            await browser.get(
                "/v1/documents", headers={"Cookie": f"anabranch_session_8420={forged}".encode()}
            )
        ).status_code == 401


async def test_cookie_writes_require_request_header(browser: httpx2.AsyncClient) -> None:
    await browser.get(await make_login_link(browser))
    form = {"files": {"file": ("a.md", b"x")}}
    refused = await browser.post("/v1/ingest", **form)
    assert refused.status_code == 401 and "X-Anabranch-Request" in refused.json()["detail"]
    # Whoever has no session learns nothing of the header.
    anonymous = await browser.post("/v1/ingest", **form, headers={"Cookie": "x=1"})
    assert "X-Anabranch-Request" not in anonymous.text
    assert (
        await browser.post("/v1/ingest", **form, headers={"X-Anabranch-Request": "1"})
    ).status_code == 202
    foreign = await browser.post(
        "/v1/ingest",
        **form,
        headers={"X-Anabranch-Request": "1", "Origin": "http://localhost:9999"},
    )
    assert foreign.status_code == 403


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
async def test_cookie_is_ignored_for_cross_origin_requests(
    browser: httpx2.AsyncClient, site: str
) -> None:
    await browser.get(await make_login_link(browser))
    assert (await browser.get("/v1/documents", headers={"Sec-Fetch-Site": site})).status_code == 401


async def test_cookie_does_not_replace_wrong_bearer_token(browser: httpx2.AsyncClient) -> None:
    await browser.get(await make_login_link(browser))
    assert (
        await browser.get("/v1/documents", headers={"Authorization": "Bearer wrong"})
    ).status_code == 401


async def test_creating_login_link_requires_credential(browser: httpx2.AsyncClient) -> None:
    assert (await browser.post("/v1/login-links")).status_code == 401


@pytest.fixture
async def anonymous_client() -> AsyncIterator[httpx2.AsyncClient]:
    """A client without credentials."""
    transport = httpx2.ASGITransport(create_app(add_local_token(make_services())))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/documents"),
        ("POST", "/v1/search"),
        ("POST", "/v1/sources"),
        ("POST", "/v1/generations/g1/promote"),
        ("GET", "/v1/no-such-path"),
        ("GET", "/metrics"),
        ("GET", "/health"),
        ("GET", "/v1/stream"),
    ],
)
@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer wrong", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe4"],
)
async def test_request_without_valid_token_is_unauthenticated(
    anonymous_client: httpx2.AsyncClient, method: str, path: str, authorization: str | None
) -> None:
    headers = {"Authorization": authorization.encode("latin-1")} if authorization else {}
    response = await anonymous_client.request(method, path, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert "token" in response.json()["remedy"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/docs", "/openapi.json"])
async def test_probes_and_documentation_need_no_token(
    anonymous_client: httpx2.AsyncClient, path: str
) -> None:
    assert (await anonymous_client.get(path)).status_code == 200


async def test_local_token_authenticates_as_operator(anonymous_client: httpx2.AsyncClient) -> None:
    assert (await anonymous_client.get("/v1/documents", headers=BEARER)).status_code == 200
    found = await LocalTokenAuthenticator(SecretStr(TOKEN), "default")(TOKEN, None)
    assert found == Principal(id="local", tenant="default", role="operator")
    assert await LocalTokenAuthenticator(SecretStr(TOKEN), "default")(TOKEN, "acme") == replace(
        found, tenant="acme", home_tenant="default"
    )


@pytest.mark.parametrize("credential", [None, "", "None", TOKEN])
async def test_no_credential_is_accepted_without_configured_token(credential: str | None) -> None:
    with pytest.raises(Unauthenticated):
        await LocalTokenAuthenticator(None, "default")(credential, None)
