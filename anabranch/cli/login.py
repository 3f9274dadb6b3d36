"""`anabranch login`, `logout` and `whoami`."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import Any

from anabranch.cli.calls import got
from anabranch.cli.credentials import is_private, normalize_server, remove_token, store_token
from anabranch.cli.options import Remote
from anabranch.cli.output import print_fields, say
from schemas.errors import InvalidRequest

DEFAULT = Remote()


def login(*, common: Remote = DEFAULT) -> int:
    """Store a credential for a server. It is read from a prompt or from stdin, and checked by a call.

    Then `--server` with the same address needs no ANABRANCH_TOKEN.
    """
    server = _named_server(common)
    if not is_private(server):
        say(f"warning: {server} is not https, so others on the way can read the credential", quiet=common.quiet)
    token = _read_token()
    identity = asyncio.run(_check(server, token))
    path = store_token(server, token)
    if common.json:
        common.show(identity)
    else:
        say(f"{server}: {identity['id']}, tenant {identity['tenant']}, role {identity['role']}; stored in {path}", quiet=common.quiet)
    return 0


def logout(*, common: Remote = DEFAULT) -> int:
    """Remove the stored credential of a server. The credential stays valid: revoke a key with `anabranch keys revoke`."""
    server = _named_server(common)
    removed = remove_token(server)
    if common.json:
        common.show({"server": server, "removed": removed})
    else:
        say(f"{server}: {'removed' if removed else 'no credential was stored'}", quiet=common.quiet)
    return 0


def whoami(*, common: Remote = DEFAULT) -> int:
    """Show who the credential belongs to: tenant, role and readers."""
    identity = got("/v1/whoami", common)
    if common.json:
        common.show(identity)
    else:
        print_fields(identity)
    return 0


def _named_server(common: Remote) -> str:
    if common.server is None:
        raise InvalidRequest("No server is named.", remedy="Name it with --server URL, or set ANABRANCH_SERVER.")
    return normalize_server(common.server)


def _read_token() -> str:
    token = (getpass.getpass("API key or token: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not token.isprintable() or not token.isascii() or not token or " " in token:
        raise InvalidRequest("No credential was read.", remedy="Paste the key at the prompt, or pipe it in: anabranch login --server URL < KEYFILE")
    return token


async def _check(server: str, token: str) -> dict[str, Any]:
    from anabranch.client import ApiClient

    async with ApiClient(server, token) as client:
        return await client.get("/v1/whoami")
