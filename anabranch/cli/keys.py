"""`anabranch keys`: API keys of a tenant, and the master key."""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number
from pydantic import BaseModel, ValidationError

from anabranch.cli.errors import OK
from anabranch.cli.options import CommonOptions, RemoteOptions
from anabranch.cli.output import print_stderr
from schemas.api_keys import (
    KEY_ID_PATTERN,
    MAX_GRACE_S,
    ApiKey,
    ApiKeyRequest,
    IssuedApiKey,
    RotationRequest,
)
from schemas.errors import InvalidRequest
from schemas.principals import Principal, Role

if TYPE_CHECKING:
    from anabranch.cli.http_client import ApiClient
    from services.api_keys import ApiKeyService

app = App(
    name="keys",
    help="Create, list, rotate and revoke API keys; rotate the master key.",
    result_action="return_value",
)
DEFAULT = RemoteOptions()
KeyId = Annotated[str, Parameter(help="Key id: the part of the key between `ab_` and the secret.")]
COMMON_DEFAULT = CommonOptions()
SHOWN_ONCE_NOTE = "the key is shown only once"
T = TypeVar("T")


class ApiKeyPage(BaseModel):
    items: list[ApiKey]
    next: str | None


class ApiKeyAdmin(Protocol):
    async def create(self, request: ApiKeyRequest) -> IssuedApiKey: ...

    async def list_keys(self, after: str | None, limit: int) -> ApiKeyPage: ...

    async def rotate(self, key_id: str, request: RotationRequest) -> IssuedApiKey: ...

    async def revoke(self, key_id: str) -> ApiKey: ...


@app.command
def create(
    *,
    role: Role = "reader",
    name: str | None = None,
    user: str | None = None,
    group: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    expires_at: datetime | None = None,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Create a key and print it. It cannot be printed again.

    With --server, the key is created over HTTP, for the caller's tenant. Otherwise it is created
    directly in the database; use this for the first key of a cluster.

    Parameters
    ----------
    role
        Role of the key; each role includes the previous ones.
    name
        Description of the key.
    user
        Limit the key to documents that this user may read.
    group
        Limit the key to documents that this group may read, in addition to --user. Repeatable.
    expires_at
        Time at which the key expires.
    """
    prefixed = [
        (option, value)
        for option, values in (("user", [user] if user else []), ("group", group))
        for value in values
        if value.startswith(f"{option}:")
    ]
    for option, value in prefixed:
        raise InvalidRequest(
            f"--{option} {value!r} includes the prefix of a reader.",
            remedy=f"Omit the prefix: --{option} {value.removeprefix(f'{option}:')}",
        )
    try:
        request = ApiKeyRequest(
            name=name or f"{role} key",
            role=role,
            user=user,
            groups=list(group),
            expires_at=expires_at,
        )
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        option = str(first["loc"][0]).replace("_", "-").replace("groups", "group")
        raise InvalidRequest(
            f"--{option} {first['input']!r}: {first['msg']}.",
            remedy="Names have at most 200 characters; users and groups have no spaces.",
        ) from error
    return _print_key(_run_call(common, lambda keys: keys.create(request)), common)


@app.command(name="list")
def list_keys(
    *,
    after: str | None = None,
    limit: Annotated[int, Parameter(validator=Number(gte=1, lte=500))] = 50,
    common: RemoteOptions = DEFAULT,
) -> int:
    """List the tenant's keys, the newest first, without their secrets.

    Parameters
    ----------
    after
        Cursor printed with the previous page.
    limit
        Maximum number of keys.
    """
    page = _run_call(common, lambda keys: keys.list_keys(after, limit))
    body = page.model_dump(mode="json")
    return common.show_page(
        body,
        *("id", "name", "role", "readers"),
        ("state", _format_key_state),
        ("created by", "created_by"),
        ("created", "created_at"),
    )


def _format_key_state(key: dict[str, Any]) -> str:
    if key["revoked_at"]:
        return "revoked"
    return f"until {key['expires_at']}" if key["expires_at"] else "valid"


@app.command
def rotate(
    key_id: KeyId,
    /,
    *,
    grace: Annotated[int, Parameter(validator=Number(gte=0, lte=MAX_GRACE_S))] = 0,
    common: RemoteOptions = DEFAULT,
) -> int:
    """Replace the secret of a key and print the new key. It cannot be printed again.

    Parameters
    ----------
    grace
        Seconds for which the old secret stays valid.
    """
    valid_id = _validate_key_id(key_id)
    return _print_key(
        _run_call(common, lambda keys: keys.rotate(valid_id, RotationRequest(grace_s=grace))),
        common,
    )


@app.command
def revoke(key_id: KeyId, /, *, common: RemoteOptions = DEFAULT) -> int:
    """Revoke a key."""
    valid_id = _validate_key_id(key_id)
    revoked = _run_call(common, lambda keys: keys.revoke(valid_id))
    return common.acknowledge(revoked.model_dump(mode="json"), f"revoked {key_id}")


def _validate_key_id(key_id: str) -> str:
    """Return the id.

    Raises InvalidRequest for other text; the secret of a whole key is not repeated.
    """
    if full_key := re.fullmatch(r"ab_([0-9a-f]{16})_.*", key_id):
        raise InvalidRequest(
            f"The whole key {full_key[1]} was given, with its secret.",
            remedy=f"Use the id alone: {full_key[1]}",
        )
    if not re.fullmatch(KEY_ID_PATTERN, key_id):
        raise InvalidRequest(
            f"Invalid API key id {key_id!r}.", remedy="List ids with `anabranch keys list`."
        )
    return key_id


def _print_key(issued: IssuedApiKey, common: RemoteOptions) -> int:
    """Print the key alone to stdout, so that it can be piped into a file or a secret store."""
    if common.is_json:
        common.print_result(issued.model_dump(mode="json"))
        return 0
    readers = f", readers {', '.join(issued.readers)}" if issued.readers is not None else ""
    print_stderr(
        f"{issued.id}: tenant {issued.tenant}, role {issued.role}{readers}; {SHOWN_ONCE_NOTE}",
        quiet=common.quiet,
    )
    print(issued.key)
    return 0


def _run_call(common: RemoteOptions, call: Callable[[ApiKeyAdmin], Awaitable[T]]) -> T:
    async def run() -> T:
        async with _open_remote(common) if common.server else _open_direct(common) as keys:
            return await call(keys)

    return asyncio.run(run())


class RemoteApiKeyAdmin:
    """Administration over HTTP."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    async def create(self, request: ApiKeyRequest) -> IssuedApiKey:
        body = await self.client.post("/v1/keys", request.model_dump(mode="json"))
        return self.client.parse(IssuedApiKey, body)

    async def list_keys(self, after: str | None, limit: int) -> ApiKeyPage:
        body = await self.client.get("/v1/keys", after=after, limit=limit)
        return self.client.parse(ApiKeyPage, body)

    async def rotate(self, key_id: str, request: RotationRequest) -> IssuedApiKey:
        body = await self.client.post(f"/v1/keys/{key_id}/rotate", request.model_dump(mode="json"))
        return self.client.parse(IssuedApiKey, body)

    async def revoke(self, key_id: str) -> ApiKey:
        return self.client.parse(ApiKey, await self.client.delete(f"/v1/keys/{key_id}"))


class DirectApiKeyAdmin:
    """Administration through the database; its owner may do everything."""

    def __init__(self, service: ApiKeyService, caller: Principal) -> None:
        self.service, self.caller = service, caller

    async def create(self, request: ApiKeyRequest) -> IssuedApiKey:
        return await self.service.create(self.caller, request)

    async def list_keys(self, after: str | None, limit: int) -> ApiKeyPage:
        keys, next_cursor = await self.service.list_keys(self.caller, after=after, limit=limit)
        return ApiKeyPage(items=keys, next=next_cursor)

    async def rotate(self, key_id: str, request: RotationRequest) -> IssuedApiKey:
        return await self.service.rotate(self.caller, key_id, request)

    async def revoke(self, key_id: str) -> ApiKey:
        return await self.service.revoke(self.caller, key_id)


@asynccontextmanager
async def _open_remote(common: RemoteOptions) -> AsyncIterator[ApiKeyAdmin]:
    from anabranch.cli.server_connection import open_client

    async with open_client(common) as client:
        yield RemoteApiKeyAdmin(client)


@asynccontextmanager
async def _open_direct(common: RemoteOptions) -> AsyncIterator[ApiKeyAdmin]:
    from anabranch.cli.database import open_command_database
    from anabranch.composition.storage import prepare_storage
    from services.api_keys import ApiKeyService
    from services.audit_log import AuditLog
    from sql.catalog.access import PgApiKeys
    from streams.codec import DEFAULT_TENANT

    settings = common.load_settings()
    caller = Principal(f"cli:{getpass.getuser()}", DEFAULT_TENANT, "operator").for_tenant(
        common.tenant
    )
    async with (
        open_command_database(settings) as dsn,
        prepare_storage(settings, dsn, pool_size=2, name="anabranch keys") as storage,
    ):
        yield DirectApiKeyAdmin(
            ApiKeyService(PgApiKeys(storage.pool), AuditLog(storage.log, storage.codec)), caller
        )


@app.command
def rewrap(*, new_key_file: Path | None = None, common: CommonOptions = COMMON_DEFAULT) -> int:
    """Rotate the master key: wrap the keys of all documents and runs with a new one.

    Stop every other process first.

    Parameters
    ----------
    new_key_file
        File with the new key: 32 bytes in base64. Required if ANABRANCH_LOG__MASTER_KEY is set,
        else generated.
    """
    from anabranch.cli.database import open_command_database
    from anabranch.process.key_rotation import rotate_master_key

    settings = common.load_settings()

    async def run() -> int:
        async with open_command_database(settings) as dsn:
            return await rotate_master_key(settings, dsn, new_key_file)

    count = asyncio.run(run())
    if common.is_json:
        common.print_result({"keys": count})
        return OK
    print(f"{count} keys wrapped with the new master key")
    if settings.log.master_key is not None:
        print(
            f"Set ANABRANCH_LOG__MASTER_KEY of every process to the content of {new_key_file}, "
            "and destroy the old key."
        )
    return OK
