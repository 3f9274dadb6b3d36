"""Credentials in URLs."""

from __future__ import annotations

import pytest

from schemas.errors import EngineUnavailable
from schemas.urls import has_user_info, redact_urls
from tests.support.cpu_time import measure_cpu_s


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pw@host/",
        "https://user@host",
        "HTTP://u%40x:p@h/",
        " http://:pw@host",
        "http:\\\\user:pw@host",
        "http://a@b@host/",
    ],
)
def test_user_info_in_url_is_detected(url: str) -> None:
    assert has_user_info(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://host/",
        "http://host/a@b",
        "http://host?mail=a@b.example",
        "http://host#a@b",
        "mailto:a@b.example",
        "a@b",
    ],
)
def test_at_sign_after_host_is_not_user_info(url: str) -> None:
    assert not has_user_info(url)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("http://user:pw@host/a could not be fetched", "http://host/a could not be fetched"),
        (
            "https://h/a?X-Amz-Signature=abc&page=2#top",
            "https://h/a?X-Amz-Signature=REDACTED&page=2#top",
        ),
        (
            "https://h/a?page=2&token=abc&SIG=d%20e",
            "https://h/a?page=2&token=REDACTED&SIG=REDACTED",
        ),
        (
            "'https://h/a?access_token=abc' and https://u:p@i/?api_key=x.",
            "'https://h/a?access_token=REDACTED' and https://i/?api_key=REDACTED",
        ),
        ("https://h/a?monkey=1&barcode=2", "https://h/a?monkey=1&barcode=2"),
        ("what?code=1 is no URL", "what?code=1 is no URL"),
    ],
)
def test_credentials_are_redacted_from_urls(text: str, redacted: str) -> None:
    assert redact_urls(text) == redacted


def test_error_details_contain_no_credentials() -> None:
    error = EngineUnavailable("http://user:s3cret@host/?sig=s3cret could not be fetched")
    assert "s3cret" not in error.detail + str(error) + repr(error)


@pytest.mark.parametrize("piece", ["a://", "a:" * 9, "://@", "?token=", "a" * 40 + "://"])
def test_redaction_takes_linear_time(piece: str) -> None:
    def spent(length: int) -> float:
        text = "x://" + piece * (length // len(piece))
        return measure_cpu_s(lambda: redact_urls(text))

    assert spent(1_000_000) < 8 * spent(250_000) + 0.2
