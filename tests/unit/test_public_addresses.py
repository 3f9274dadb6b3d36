"""Addresses that may be dialed for a user, range by range.

Credentials in URLs.
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address, ip_network

import pytest

from engines.http_fetcher import REFUSED_NETWORKS, is_public
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

    assert spent(250_000) < 8 * spent(62_500) + 0.1


# IANA's registries, written down apart from the code: network, and whether the addresses right
# before and after it are public.
RESERVED_NETWORKS = [
    ("0.0.0.0/8", None, True),
    ("10.0.0.0/8", True, True),
    ("100.64.0.0/10", True, True),
    ("127.0.0.0/8", True, True),
    ("168.63.129.16/32", True, True),
    ("169.254.0.0/16", True, True),
    ("172.16.0.0/12", True, True),
    ("192.0.0.0/24", True, True),
    ("192.0.2.0/24", True, True),
    ("192.31.196.0/24", True, True),
    ("192.52.193.0/24", True, True),
    ("192.88.99.0/24", True, True),
    ("192.168.0.0/16", True, True),
    ("192.175.48.0/24", True, True),
    ("198.18.0.0/15", True, True),
    ("198.51.100.0/24", True, True),
    ("203.0.113.0/24", True, True),
    ("224.0.0.0/4", True, False),
    ("240.0.0.0/4", False, None),
    ("::/128", None, False),
    ("::1/128", False, False),
    ("::/96", None, False),
    ("::ffff:0:0:0/96", False, False),
    ("64:ff9b:1::/48", False, False),
    ("100::/64", False, False),
    ("100:0:0:1::/64", False, False),
    ("2001::/23", True, True),
    ("2001:db8::/32", True, True),
    ("2620:4f:8000::/48", True, True),
    ("3fff::/20", True, True),
    ("5f00::/16", False, False),
    ("fc00::/7", False, False),
    ("fe80::/10", False, False),
    ("fec0::/10", False, False),
    ("ff00::/8", False, None),
]


@pytest.mark.parametrize(("network", "before", "after"), RESERVED_NETWORKS)
def test_reserved_range_is_refused_up_to_its_edges(
    network: str, before: bool | None, after: bool | None
) -> None:
    found = ip_network(network)
    first, last = int(found.network_address), int(found.broadcast_address)
    kind = type(found.network_address)
    assert not any(is_public(kind(number)) for number in (first, (first + last) // 2, last))
    assert before is None or is_public(kind(first - 1)) is before
    assert after is None or is_public(kind(last + 1)) is after


def test_every_refused_range_is_covered_by_a_case() -> None:
    covered = {network for network, *_ in RESERVED_NETWORKS}
    assert {str(network) for network in REFUSED_NETWORKS} == covered


IPV4_IN_IPV6_FORMS = [
    "::ffff:{hex}",
    "64:ff9b::{hex}",
    "2002:{hex}::1",
    "2607:f8b0::5efe:{hex}",
    "2607:f8b0::200:5efe:{hex}",
]


@pytest.mark.parametrize("form", IPV4_IN_IPV6_FORMS)
@pytest.mark.parametrize(
    "inner",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "192.0.0.1",
        "192.88.99.1",
        "168.63.129.16",
        "224.0.0.1",
        "0.0.0.0",
    ],
)
def test_embedded_private_ipv4_is_refused(form: str, inner: str) -> None:
    packed = IPv4Address(inner).packed
    assert not is_public(ip_address(form.format(hex=f"{packed[:2].hex()}:{packed[2:].hex()}")))


@pytest.mark.parametrize("form", IPV4_IN_IPV6_FORMS)
def test_embedded_public_ipv4_is_accepted(form: str) -> None:
    assert is_public(ip_address(form.format(hex="0808:0808")))


@pytest.mark.parametrize(
    "address",
    [
        "::127.0.0.1",  # compatible
        "64:ff9b:1::7f00:1",  # NAT64 of the local network, whatever it carries
        "64:ff9b:1::808:808",
        "2001:0:808:808:0:ffff:80ff:fffe",  # Teredo, client 127.0.0.1
        "2001:0:7f00:1:0:ffff:f7f7:f7f7",  # Teredo, server 127.0.0.1
        "2607:f8b0::1%eth0",  # a zone
        "fe80::1%1",
        "4000::1",  # unallocated
        "8000::1",
    ],
)
def test_compatible_teredo_and_zoned_ipv6_are_refused(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "8.8.8.8", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001:800::200e"],
)
def test_public_addresses_are_accepted(address: str) -> None:
    assert is_public(ip_address(address))
