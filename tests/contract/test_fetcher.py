"""Contract of the port `Fetcher`: it fetches only public addresses and within limits."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import quote, urlencode, urlsplit

import pytest

from engines import http_fetcher
from engines.blobs import open_blobs
from engines.http_fetcher import HttpFetcher, IpAddress
from schemas.errors import (
    AnabranchError,
    EngineUnavailable,
    ForbiddenAddress,
    LimitExceeded,
    UnreadableDocument,
)
from schemas.events import Content, DocumentReceived
from schemas.ports.engines import BlobStore
from tests.fakes.web_server import fake_web


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with fake_web() as address:
        yield address


@pytest.fixture
def blobs() -> BlobStore:
    return open_blobs("memory://")


def make_fetcher(
    blobs: BlobStore, web: str, *, max_bytes: int = 1_000_000, timeout_s: float = 20
) -> HttpFetcher:
    return HttpFetcher(
        blobs,
        allowed_hosts=frozenset({urlsplit(web).netloc}),
        max_bytes=max_bytes,
        timeout_s=timeout_s,
    )


async def test_file_is_stored_with_server_metadata(blobs: BlobStore, web: str) -> None:
    fetched = await make_fetcher(blobs, web).fetch(
        f"{web}/files/a%20contract.pdf?x=1", "uploads/default/"
    )
    assert await blobs.get(fetched.blob.key) == b"%PDF-1.7 fake"
    assert fetched.blob.key == f"uploads/default/{fetched.blob.sha256}"
    assert (fetched.media_type, fetched.filename) == ("application/pdf", "a contract.pdf")
    assert fetched.final_url == f"{web}/files/a%20contract.pdf?x=1"


async def test_filename_header_takes_precedence_over_path(blobs: BlobStore, web: str) -> None:
    assert (await make_fetcher(blobs, web).fetch(f"{web}/named", "u/")).filename == "relatório.pdf"


async def test_redirects_are_followed_up_to_limit(blobs: BlobStore, web: str) -> None:
    assert (
        await make_fetcher(blobs, web).fetch(f"{web}/around/4", "u/")
    ).final_url == f"{web}/files/end.pdf"
    with pytest.raises(LimitExceeded) as caught:
        await make_fetcher(blobs, web).fetch(f"{web}/around/6", "u/")
    assert caught.value.code == "TOO_MANY_REDIRECTS"


@pytest.mark.parametrize(
    "path",
    [
        "private/next/rules.pdf",
        "private/service/rules.pdf?part=1",
        "private/redirect_uri/rules",
        "deleted/rules.pdf",
    ],
)
async def test_page_in_place_of_document_is_rejected(blobs: BlobStore, web: str, path: str) -> None:
    """A sign-in page, and the front page in place of a deleted one."""
    with pytest.raises(UnreadableDocument) as caught:
        await make_fetcher(blobs, web).revisit(f"{web}/{path}", "u/", etag=None, last_modified=None)
    assert caught.value.code == "FETCH_FAILED"
    assert "rules" in caught.value.detail


async def test_moved_document_is_fetched(blobs: BlobStore, web: str) -> None:
    target = f"{web}/named?lang=en&from=/"
    fetched = await make_fetcher(blobs, web).fetch(f"{web}/redirect?to={quote(target)}", "u/")
    assert fetched.filename == "relatório.pdf"


@pytest.mark.parametrize(
    "disposition",
    [
        "attachment; filename*=idna''a%ff",
        "attachment; filename*=punycode''a%ff",
        "attachment; filename*=undefined''x",
        "attachment; filename*=unicode_escape''%5Cud800",
        "attachment; filename*=nonsense''x",
        "attachment; filename=" + "x" * 5000,
    ],
)
async def test_unreadable_filename_does_not_fail_fetch(
    blobs: BlobStore, web: str, disposition: str
) -> None:
    fetched = await make_fetcher(blobs, web).fetch(
        f"{web}/odd?{urlencode({'content-disposition': disposition})}", "u/"
    )
    assert await blobs.get(fetched.blob.key) == b"data"
    DocumentReceived(
        content=Content(storage_key=fetched.blob.key),
        filename=fetched.filename,
        media_type=fetched.media_type,
    )


async def test_overlong_media_type_is_ignored(blobs: BlobStore, web: str) -> None:
    query = urlencode({"content-type": "text/" + "x" * 5000})
    assert (await make_fetcher(blobs, web).fetch(f"{web}/odd?{query}", "u/")).media_type is None


@pytest.mark.parametrize("tag", ['"plain"', "\u00fc", 'W/"' + "x" * 9000 + '"'])
async def test_revisit_accepts_any_etag(blobs: BlobStore, web: str, tag: str) -> None:
    """Omit an entity tag that cannot be a header value; the document is sent again."""
    address = f"{web}/tagged?{urlencode({'tag': tag})}"
    first = await make_fetcher(blobs, web).revisit(address, "u/", etag=None, last_modified=None)
    assert first.file is not None
    again = await make_fetcher(blobs, web).revisit(
        address, "u/", etag=first.etag, last_modified=first.last_modified
    )
    assert again.file is None or again.file.blob.sha256 == first.file.blob.sha256


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999/", "http://127.0.0.1:0/", "http://127.0.0.1:-1/"]
)
async def test_invalid_port_is_rejected(blobs: BlobStore, web: str, url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        await make_fetcher(blobs, web).fetch(url, "u/")
    with pytest.raises(ForbiddenAddress):
        await make_fetcher(blobs, web).fetch(f"{web}/redirect?{urlencode({'to': url})}", "u/")


async def test_unconditional_request_rejects_304(blobs: BlobStore, web: str) -> None:
    with pytest.raises(UnreadableDocument, match="304"):
        await make_fetcher(blobs, web).revisit(
            f"{web}/status/304", "u/", etag=None, last_modified=None
        )


INTERNAL_URLS = [
    "file:///etc/passwd",
    "ftp://example.com/a",
    "http://127.0.0.1:{port}/files/a",
    "http://localhost:{port}/files/a",
    "http://2130706433:{port}/files/a",
    "http://0x7f000001:{port}/files/a",
    "http://0177.0.0.1:{port}/files/a",
    "http://127.1:{port}/files/a",
    "http://0.0.0.0:{port}/files/a",
    "http://[::1]:{port}/files/a",
    "http://[::ffff:127.0.0.1]:{port}/files/a",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://168.63.129.16/",
    "http://10.0.0.1/",
    "http://192.168.1.1/",
    "http://100.100.100.200/",
    "http://224.0.0.1/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://xn--/",
]


@pytest.mark.parametrize("url", INTERNAL_URLS)
async def test_internal_address_is_rejected_in_any_notation(
    blobs: BlobStore, web: str, url: str
) -> None:
    strict = HttpFetcher(blobs, max_bytes=1000, timeout_s=20)
    with pytest.raises(ForbiddenAddress):
        await strict.fetch(url.format(port=urlsplit(web).port), "u/")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:{port}/files/a",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "http://2130706433:1/",
        "http://xn--/",
    ],
)
async def test_redirect_to_internal_address_is_rejected(
    blobs: BlobStore, web: str, url: str
) -> None:
    with pytest.raises(ForbiddenAddress):
        await make_fetcher(blobs, web).fetch(
            f"{web}/redirect?to={url.format(port=urlsplit(web).port)}", "u/"
        )


async def test_oversized_response_is_rejected_by_header_or_stream(
    blobs: BlobStore, web: str
) -> None:
    for path in ("claims?size=10000000000", "endless"):
        with pytest.raises(LimitExceeded) as caught:
            await make_fetcher(blobs, web).fetch(f"{web}/{path}", "u/")
        assert caught.value.code == "TOO_LARGE"


async def test_slow_server_times_out(blobs: BlobStore, web: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        await make_fetcher(blobs, web, timeout_s=0.2).fetch(f"{web}/slow", "u/")
    assert caught.value.code == "FETCH_TIMEOUT"


async def test_silent_server_times_out(
    blobs: BlobStore, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_fetcher, "READ_TIMEOUT_S", 0.2)
    with pytest.raises(LimitExceeded, match=r"sent nothing for 0.2 s") as caught:
        await make_fetcher(blobs, web).fetch(f"{web}/slow", "u/")
    assert caught.value.code == "FETCH_TIMEOUT"


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip", "x-unknown"])
async def test_unknown_or_invalid_content_encoding_is_rejected(
    blobs: BlobStore, web: str, coding: str
) -> None:
    with pytest.raises(UnreadableDocument, match="cannot be decoded"):
        await make_fetcher(blobs, web).fetch(
            f"{web}/odd?{urlencode({'content-encoding': coding})}", "u/"
        )
    assert await blobs.list_keys("u/") == []


async def test_presigned_url_is_fetched_and_signature_redacted(blobs: BlobStore, web: str) -> None:
    fetched = await make_fetcher(blobs, web).fetch(
        f"{web}/files/a.pdf?X-Amz-Signature=s3cret&page=2", "u/"
    )
    assert fetched.final_url == f"{web}/files/a.pdf?X-Amz-Signature=REDACTED&page=2"
    for path in (
        "status/404?token=s3cret",
        "status/500?sig=s3cret",
        "redirect?to=http%3A%2F%2F10.0.0.1%2F%3Fkey%3Ds3cret",
    ):
        with pytest.raises(AnabranchError) as caught:
            await make_fetcher(blobs, web).fetch(f"{web}/{path}", "u/")
        assert "s3cret" not in str(caught.value) + caught.value.detail


@pytest.mark.parametrize("address", ["127.0.0.1", "64:ff9b:1::7f00:1", "fe80::1%1"])
async def test_hostname_resolving_to_internal_address_is_rejected(
    blobs: BlobStore, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a resolver of the test's own; among public addresses, too."""
    monkeypatch.setattr(
        http_fetcher, "_resolve_host", lambda host, port: resolve("1.1.1.1", address)
    )
    with pytest.raises(ForbiddenAddress, match="not a public address"):
        await HttpFetcher(blobs, max_bytes=1000, timeout_s=20).fetch(
            "http://documents.example/a", "u/"
        )


async def resolve(*addresses: str) -> list[IpAddress]:
    return [ip_address(address) for address in addresses]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("status/404", UnreadableDocument),
        ("status/403", UnreadableDocument),
        ("status/204", UnreadableDocument),
        ("status/500", EngineUnavailable),
        ("status/429", EngineUnavailable),
    ],
)
async def test_status_code_decides_whether_error_is_retryable(
    blobs: BlobStore, web: str, path: str, error: type[AnabranchError]
) -> None:
    with pytest.raises(error, match=path.removeprefix("status/")):
        await make_fetcher(blobs, web).fetch(f"{web}/{path}", "u/")


async def test_closed_port_raises_engine_unavailable(blobs: BlobStore) -> None:
    with pytest.raises(EngineUnavailable):
        await HttpFetcher(
            blobs, allowed_hosts=frozenset({"127.0.0.1:1"}), max_bytes=10, timeout_s=20
        ).fetch("http://127.0.0.1:1/", "u/")


@pytest.mark.parametrize(
    "url", ["http://", "http://a b/", "http://[::1/", "not a url", "http://exa\x00mple.com/"]
)
async def test_malformed_url_fails_permanently(blobs: BlobStore, url: str) -> None:
    with pytest.raises((UnreadableDocument, ForbiddenAddress)):
        await HttpFetcher(blobs, max_bytes=10, timeout_s=20).fetch(url, "u/")
