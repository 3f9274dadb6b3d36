"""`anabranch doctor`: run the checks, print their findings, and archive them for a bug report."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import zipfile
from collections import deque
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from anabranch.cli.options import REMOTE, RemoteOptions
from schemas.errors import AnabranchError, ConfigurationError, PermanentError
from schemas.findings import Finding
from schemas.urls import redact_urls

if TYPE_CHECKING:
    from anabranch.config.settings import Settings


async def run_server_checks(url: str, common: RemoteOptions) -> Sequence[Finding]:
    """Run the checks of a remote server, or read its readiness report without the permission."""
    from anabranch.cli.server_connection import open_client
    from anabranch.config.loader import suggest_scheme
    from anabranch.doctor import connections
    from anabranch.doctor.check_runner import run_check

    url = url.rstrip("/")
    readiness = await run_check(
        "server",
        partial(
            connections.check_server_at,
            url,
            url,
            f"Start it with `anabranch up`, or check --server. {suggest_scheme(url)}".strip(),
        ),
    )
    if any(finding.state == "fail" for finding in readiness):
        return readiness
    try:
        async with open_client(common) as client:
            found = await client.get("/v1/doctor")
    # Without the role, and from a server of an earlier version.
    except PermanentError as error:
        return [*readiness, Finding("other checks", "warn", error.detail, error.remedy)]
    return [*readiness, *(Finding(**finding) for finding in found["items"])]


STATE_LABELS = {"pass": "ok  ", "warn": "warn", "fail": "FAIL"}


def doctor(*, bundle: Path | None = None, common: RemoteOptions = REMOTE) -> int:
    """Check this machine and its connections, or those of --server, without changing anything.

    The checks of a server need the role of an operator; others get its readiness. Exits 1 if a
    check fails.

    Args:
        bundle: Also write an archive (.zip) for a bug report: versions, settings, findings,
            consumer lag, sizes of tables and the last lines of the logs. Secrets are masked.
    """
    from anabranch.process.logs import configure_logs

    if common.server:
        findings = asyncio.run(run_server_checks(common.server, common))
    else:
        from anabranch.doctor.checks import run_checks

        settings = common.load_settings()
        configure_logs(settings.logging)  # to stderr: unconfigured, structlog prints to stdout
        findings = asyncio.run(run_checks(settings))
    if bundle is not None:
        names = asyncio.run(write_bundle(bundle, common, findings))
        common.print_note(f"{bundle}: {', '.join(names)}")
    has_failed = any(finding.state == "fail" for finding in findings)
    checks = [asdict(finding) for finding in findings]
    if common.print_if_json({"ok": not has_failed, "checks": checks}):
        return int(has_failed)
    for finding in findings:
        print(f"{STATE_LABELS[finding.state]}  {finding.check}: {finding.detail}")
        if finding.remedy:
            print(f"      → {finding.remedy}")
    return int(has_failed)


MAX_LOG_LINES = 1000
MIN_SECRET = 4
"""Shorter values, such as an empty password, are parts of ordinary words."""
MASK = "**********"
# Credentials of other programs that a log may quote: assignments, headers, JSON, private keys.
_ASSIGNED = re.compile(
    r"((?:(?<![a-z])pass|passw(?:or)?d|passphrase|(?:access_|api[-_]?|secret_)key|secret|token"
    r"|authorization|(cookie))[\"\\]{0,2}\s?[=:]\s?(?:bearer |basic )?)"
    r"(?!\*)(?:\\{0,2}\"[^\"\n]*|'[^'\n]*|(?(2)[^\"'\\\n]+|[^\s\"',;&]+))"
    r"|(-----begin [a-z ]{0,20}private key-----)[^-]*",
    re.IGNORECASE,
)


async def write_bundle(file: Path, common: RemoteOptions, findings: Sequence[Finding]) -> list[str]:
    """Write the archive and return the names of its files. Raises ConfigurationError."""
    from anabranch.cli.server_connection import find_lasting_server, open_client
    from anabranch.config.index_config import list_setting_values
    from anabranch.config.version import get_program_version
    from anabranch.process.data_folder import COMMANDS_LOG_FILE, UP_LOG_FILE

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
        for name in (COMMANDS_LOG_FILE, UP_LOG_FILE):
            parts[name] = read_log(settings.data_dir / name)
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
    mask = rf"\1\3{MASK}"
    text = _ASSIGNED.sub(mask, body) if is_log else json.dumps(body, indent=1, default=str)
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
    from pydantic import BaseModel, SecretStr

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
    """Return the last lines of a log; empty without one."""
    if not file.exists():
        return ""
    with file.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, MAX_LOG_LINES))


async def _fetch_table_sizes(settings: Settings) -> list[dict[str, Any]]:
    from anabranch.cli.database import open_command_database
    from sql.operations.monitoring import fetch_table_sizes

    async with open_command_database(settings) as dsn:
        return await fetch_table_sizes(dsn)


async def _fetch_or_explain(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except AnabranchError as error:
        # A bundle is made when something fails.
        return {"error": error.code, "detail": error.detail}
