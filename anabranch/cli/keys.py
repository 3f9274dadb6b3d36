"""`anabranch keys`: API keys of a tenant, and the master key."""

from __future__ import annotations

import asyncio
import getpass
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter
from cyclopts.validators import Number
from pydantic import BaseModel, ValidationError

from anabranch.cli.errors import OK
from anabranch.cli.options import (
    COMMON,
    FIRST_PAGE,
    REMOTE,
    CommonOptions,
    PageOptions,
    RemoteOptions,
    make_group,
)
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

app = make_group("keys")
KeyId = Annotated[str, Parameter(help="Key id: the part of the key between `ab_` and the secret.")]
SHOWN_ONCE_NOTE = "the key is shown only once"
ModelT = TypeVar("ModelT", bound=BaseModel)


class ApiKeyPage(BaseModel):
    items: list[ApiKey]
    next: str | None


@app.command
def create(
    *,
    role: Role = "reader",
    name: str | None = None,
    user: str | None = None,
    group: tuple[str, ...] = (),
    expires_at: datetime | None = None,
    common: RemoteOptions = REMOTE,
) -> int:
    """Create a key and print it. It cannot be printed again.

    With --server, the key is created over HTTP, for the caller's tenant. Otherwise it is created
    directly in the database; use this for the first key of a cluster.

    Args:
        role: Role of the key; each role includes the previous ones.
        name: Description of the key.
        user: Limit the key to documents that this user may read.
        group: Limit the key to documents that this group may read, in addition to --user.
            Repeatable.
        expires_at: Time at which the key expires.
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
    issued = _call(
        common,
        IssuedApiKey,
        lambda client: client.post("/v1/keys", request.model_dump(mode="json")),
        lambda keys, caller: keys.create(caller, request),
    )
    return _print_key(issued, common)


@app.command(name="list")
def list_keys(*, page: PageOptions = FIRST_PAGE, common: RemoteOptions = REMOTE) -> int:
    """List the tenant's keys, the newest first, without their secrets."""
    query = page.to_query()

    async def list_stored(keys: ApiKeyService, caller: Principal) -> ApiKeyPage:
        items, next_cursor = await keys.list_keys(caller, **query)
        return ApiKeyPage(items=items, next=next_cursor)

    found = _call(common, ApiKeyPage, lambda client: client.get("/v1/keys", **query), list_stored)
    return common.show_page(
        found.model_dump(mode="json"),
        *("id", "name", "role", "readers"),
        ("state", _format_key_state),
        ("created by", "created_by"),
        ("created", "created_at"),
        optional=("created by", "created", "readers"),
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
    common: RemoteOptions = REMOTE,
) -> int:
    """Replace the secret of a key and print the new key. It cannot be printed again.

    Args:
        grace: Seconds for which the old secret stays valid.
    """
    valid_id, request = _validate_key_id(key_id), RotationRequest(grace_s=grace)
    issued = _call(
        common,
        IssuedApiKey,
        lambda client: client.post(f"/v1/keys/{valid_id}/rotate", request.model_dump(mode="json")),
        lambda keys, caller: keys.rotate(caller, valid_id, request),
    )
    return _print_key(issued, common)


@app.command
def revoke(key_id: KeyId, /, *, common: RemoteOptions = REMOTE) -> int:
    """Revoke a key."""
    valid_id = _validate_key_id(key_id)
    revoked = _call(
        common,
        ApiKey,
        lambda client: client.call("DELETE", f"/v1/keys/{valid_id}"),
        lambda keys, caller: keys.revoke(caller, valid_id),
    )
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
    if common.print_if_json(issued.model_dump(mode="json")):
        return 0
    readers = f", readers {', '.join(issued.readers)}" if issued.readers is not None else ""
    common.print_note(
        f"{issued.id}: tenant {issued.tenant}, role {issued.role}{readers}; {SHOWN_ONCE_NOTE}"
    )
    print(issued.key)
    return 0


def _call(
    common: RemoteOptions,
    model: type[ModelT],
    over_http: Callable[[ApiClient], Awaitable[dict[str, Any]]],
    in_database: Callable[[ApiKeyService, Principal], Awaitable[ModelT]],
) -> ModelT:
    """Call the server of --server, else the service itself: the database's owner may do all."""

    async def call_server() -> ModelT:
        from anabranch.cli.server_connection import open_client

        async with open_client(common) as client:
            return client.parse(model, await over_http(client))

    async def call_service() -> ModelT:
        from anabranch.cli.database import open_command_database
        from anabranch.composition.storage import prepare_storage
        from services.api_keys import ApiKeyService, AuditLog
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
            audit = AuditLog(storage.log, storage.codec)
            return await in_database(ApiKeyService(PgApiKeys(storage.pool), audit), caller)

    return asyncio.run(call_server() if common.server else call_service())


@app.command
def rewrap(*, new_key_file: Path | None = None, common: CommonOptions = COMMON) -> int:
    """Rotate the master key: wrap the keys of all documents and runs with a new one.

    Stop every other process first.

    Args:
        new_key_file: File with the new key: 32 bytes in base64. Required if
            ANABRANCH_LOG__MASTER_KEY is set, else generated.
    """
    from anabranch.cli.database import open_command_database
    from anabranch.process.key_rotation import rotate_master_key

    settings = common.load_settings()

    async def run() -> int:
        async with open_command_database(settings) as dsn:
            return await rotate_master_key(settings, dsn, new_key_file)

    count = asyncio.run(run())
    if common.print_if_json({"keys": count}):
        return OK
    print(f"{count} keys wrapped with the new master key")
    if settings.log.master_key is not None:
        print(
            f"Set ANABRANCH_LOG__MASTER_KEY of every process to the content of {new_key_file}, "
            "and destroy the old key."
        )
    return OK
