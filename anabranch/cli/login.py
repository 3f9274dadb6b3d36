"""`anabranch login`, `logout`, `whoami`, `open` and `audit`."""

from __future__ import annotations

import asyncio
import getpass
import sys
from datetime import datetime

from anabranch.cli.api_calls import format_time, get
from anabranch.cli.credentials import is_private, normalize_server, remove_token, store_token
from anabranch.cli.options import FIRST_PAGE, REMOTE, PageOptions, RemoteOptions
from anabranch.cli.output import print_fields
from schemas.api_keys import Identity
from schemas.errors import InvalidRequest
from schemas.principals import AuditOutcome


def login(*, common: RemoteOptions = REMOTE) -> int:
    """Store a credential for a server. Reads it from a prompt or stdin and verifies it with
    the server.

    Later commands with the same `--server` then need no ANABRANCH_TOKEN.
    """
    server = _require_server(common)
    if not is_private(server):
        common.print_note(f"warning: {server} is not https; the credential can be read in transit")
    token = _read_token()
    # Before it is stored, so that a wrong credential is reported now.
    identity = asyncio.run(fetch_identity(server, token))
    path = store_token(server, token)
    return common.acknowledge(
        identity.model_dump(mode="json"),
        f"{server}: {identity.id}, tenant {identity.tenant}, role {identity.role}; "
        f"stored in {path}",
    )


def logout(*, common: RemoteOptions = REMOTE) -> int:
    """Remove the stored credential of a server.

    The credential stays valid: revoke a key with `anabranch keys revoke`.
    """
    server = _require_server(common)
    removed = remove_token(server)
    outcome = "removed" if removed else "no credential was stored"
    return common.acknowledge({"server": server, "removed": removed}, f"{server}: {outcome}")


def whoami(*, common: RemoteOptions = REMOTE) -> int:
    """Show the identity behind the credential: tenant, role and readers."""
    identity = get("/v1/whoami", common)
    return common.show(identity, lambda: print_fields(identity))


def _require_server(common: RemoteOptions) -> str:
    if common.server is None:
        raise InvalidRequest(
            "No server was given.", remedy="Use --server URL, or set ANABRANCH_SERVER."
        )
    return normalize_server(common.server)


def _read_token() -> str:
    token = (
        getpass.getpass("API key or token: ") if sys.stdin.isatty() else sys.stdin.readline()
    ).strip()
    if not token.isprintable() or not token.isascii() or not token or " " in token:
        raise InvalidRequest(
            "No valid credential was entered.",
            remedy="Paste the key at the prompt, or pipe it in: anabranch login --server URL < "
            "KEYFILE",
        )
    return token


async def fetch_identity(server: str, token: str | None) -> Identity:
    from anabranch.cli.http_client import ApiClient

    async with ApiClient(server, token) as client:
        return client.parse(Identity, await client.get("/v1/whoami"))


def print_login_link(*, common: RemoteOptions = REMOTE) -> int:
    """Print a link that opens the server in a browser. It works once, for ten minutes."""
    link = asyncio.run(_create_link(common))
    return common.show(link, lambda: print(link["url"]))


async def _create_link(common: RemoteOptions) -> dict[str, str]:
    from anabranch.cli.server_connection import open_lasting_client

    async with open_lasting_client(common) as client:
        link = await client.post("/v1/login-links", {})
    return {
        "url": link["url"] if "://" in link["url"] else client.url + link["url"],
        "expires_at": link["expires_at"],
    }


def audit(
    *,
    search: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    outcome: AuditOutcome | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page: PageOptions = FIRST_PAGE,
    common: RemoteOptions = REMOTE,
) -> int:
    """List administrative actions, the latest first.

    Operators see the actions of all tenants, or of one with --tenant.

    Args:
        search: Only actions with this text in any field.
        actor: Only actions of this caller, such as `local` or `key:<key id>`.
        action: Only this action, such as `source.added`.
        outcome: Only actions with this outcome.
        since: Only actions at this time or later.
        until: Only actions before this time.
    """
    found = get(
        "/v1/audit",
        common,
        text=search,
        actor=actor,
        action=action,
        outcome=outcome,
        **{"from": format_time(since), "to": format_time(until)},
        **page.to_query(),
    )
    columns = (("at", "occurred_at"), "tenant", "actor", "action", "subject", "outcome")
    return common.show_page(found, *columns, optional=("tenant", "actor", "outcome"))
