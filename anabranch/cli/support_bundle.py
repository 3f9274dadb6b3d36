"""Archive for a bug report: versions, settings, findings, lag, tables and log, without secrets."""

from __future__ import annotations

import json
import os
import platform
import re
import zipfile
from collections import deque
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr

from anabranch.cli.database import open_command_database
from anabranch.cli.options import RemoteOptions
from anabranch.cli.server_connection import find_lasting_server, open_client
from anabranch.config.setting_values import list_setting_values
from anabranch.config.settings import Settings
from anabranch.config.version import get_program_version
from schemas.errors import AnabranchError, ConfigurationError
from schemas.findings import Finding
from schemas.urls import redact_urls
from sql.operations.monitoring import fetch_table_sizes

LOG_FILE = "commands.log"
MAX_LOG_LINES = 1000
MIN_SECRET = 4
"""Shorter values, such as an empty password, are parts of ordinary words."""
MASK = "**********"
# Credentials of other programs that a log may quote: assignments, header fields, JSON.
_ASSIGNED = re.compile(
    r"((?<![a-z])(?:pass(?:word|wd)?|(?:access_|api[-_]?|secret_)key|secret|token|authorization)"
    r"[\"\\]{0,2}\s?[=:]\s?(?:bearer |basic )?)(?!\*)(?:\\\\?\"[^\"\n]*|'[^'\n]*|[^\s\"',;&]+)",
    re.IGNORECASE,
)


async def write_bundle(file: Path, common: RemoteOptions, findings: Sequence[Finding]) -> list[str]:
    """Write the archive and return the names of its files. Raises ConfigurationError."""
    settings = None if common.server else common.load_settings()
    address = await find_lasting_server(common)
    parts: dict[str, Any] = {
        "findings.json": [asdict(finding) for finding in findings],
        "version.json": {
            "version": get_program_version(),
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
    }
    if settings is not None:
        parts["settings.json"] = [row.model_dump() for row in list_setting_values(settings)]
        parts["commands.log"] = read_log(settings.data_dir / LOG_FILE)
    if address is not None:
        async with open_client(common) as client:
            for name, path in (("system", "/v1/system"), ("stages", "/v1/stages")):
                parts[f"{name}.json"] = await _fetch_or_explain(client.get(path))
            if settings is None:
                parts["settings.json"] = await _fetch_or_explain(client.get("/v1/config"))
        if settings is not None:
            parts["tables.json"] = await _fetch_or_explain(_fetch_table_sizes(settings))
    secrets = {
        *(collect_secrets(settings) if settings else ()),
        *((address[1],) if address and address[1] else ()),
        *((token,) if (token := os.environ.get("ANABRANCH_TOKEN")) else ()),
    }
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"Cannot create {file}: {error.strerror}.", remedy="Give the path of a new file."
        ) from error
    with (
        os.fdopen(descriptor, "wb") as raw,
        zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, body in parts.items():
            archive.writestr(name, format_part(body, secrets))
    return sorted(parts)


def format_part(body: Any, secrets: Collection[str]) -> str:
    """Format a file of the archive. Masks secrets and credentials in URLs, wherever they stand."""
    is_log = isinstance(body, str)
    text = _ASSIGNED.sub(rf"\1{MASK}", body) if is_log else json.dumps(body, indent=1, default=str)
    # A longer secret may contain a shorter one.
    for secret in sorted(secrets, key=len, reverse=True):
        # In JSON, quotes and other letters of a secret are escaped.
        for spelling in (secret, json.dumps(secret)[1:-1]):
            text = text.replace(spelling, MASK)
    return redact_urls(text)


def collect_secrets(settings: Settings) -> set[str]:
    """Return the values of all secret settings, and the passwords of URLs among them."""
    secrets = set(_iter_secrets(settings))
    passwords = {urlsplit(secret).password or "" for secret in secrets if "://" in secret}
    return {
        secret
        for secret in secrets | passwords | set(map(unquote, passwords))
        if len(secret) >= MIN_SECRET
    }


def _iter_secrets(value: object) -> Iterator[str]:
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for name in type(value).model_fields:
                yield from _iter_secrets(getattr(value, name))
        case Mapping():
            for entry in value.values():
                yield from _iter_secrets(entry)
        case list() | tuple():
            for entry in value:
                yield from _iter_secrets(entry)


def read_log(file: Path) -> str:
    """Return the last lines of the log of commands that ran a server; empty without one."""
    if not file.exists():
        return ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, MAX_LOG_LINES))


async def _fetch_table_sizes(settings: Settings) -> list[dict[str, Any]]:
    async with open_command_database(settings) as dsn:
        return await fetch_table_sizes(dsn)


async def _fetch_or_explain(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except AnabranchError as error:
        # A bundle is made when something fails.
        return {"error": error.code, "detail": error.detail}
