"""IP address ranges that the fetcher refuses (SSRF protection).

The list is our own because `ipaddress.is_global` changes between patch releases of Python
(CVE-2024-4032 and later tables). Sources, as of November 2026: the IANA IPv4 and IPv6
Special-Purpose Address Registries (RFC 6890), RFC 5771 and RFC 4291 (multicast), RFC 3879
(site-local). Ranges that the registries call globally reachable (AS112, AMT, protocol anycast) are
refused too: they host no documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

IpAddress = IPv4Address | IPv6Address

REFUSED_IPV4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT; metadata service of Alibaba Cloud
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # Azure's virtual machine service, although the address is public
            "169.254.0.0/16",  # link-local; cloud metadata services
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # IETF protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays, deprecated
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and limited broadcast
        ),
    )
)
REFUSED_IPV6 = tuple(
    map(
        IPv6Network,
        (
            "::/128",  # unspecified
            "::1/128",  # loopback
            "::/96",  # IPv4-compatible, deprecated
            "::ffff:0:0:0/96",  # IPv4-translated (SIIT)
            "64:ff9b:1::/48",  # NAT64 of the local network
            "100::/64",  # discard
            "100:0:0:1::/64",  # dummy prefix
            "2001::/23",  # IETF protocol assignments: Teredo, ORCHID, benchmarks
            "2001:db8::/32",  # documentation
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
            "5f00::/16",  # segment routing
            "fc00::/7",  # unique local
            "fe80::/10",  # link-local
            "fec0::/10",  # site-local, deprecated
            "ff00::/8",  # multicast
        ),
    )
)
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 range allocated to networks."""
MAPPED, NAT64 = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def is_public(address: IpAddress) -> bool:
    """Return whether the address and every IPv4 address embedded in it are public unicast."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in REFUSED_IPV4)
    if address.scope_id is not None or any(address in network for network in REFUSED_IPV6):
        return False
    carries_ipv4 = address in MAPPED or address in NAT64
    return (carries_ipv4 or address in GLOBAL_UNICAST) and all(
        map(is_public, find_embedded_ipv4(address))
    )


def find_embedded_ipv4(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield each IPv4 address that a tunnel or translator would extract from the address.

    Covers mapped addresses (RFC 4291), NAT64 (RFC 6052), 6to4 (RFC 3056), Teredo server and client
    (RFC 4380) and ISATAP (RFC 5214).
    """
    packed = address.packed
    if address in MAPPED or address in NAT64 or packed[8:12] in ISATAP:
        yield IPv4Address(packed[12:])
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
