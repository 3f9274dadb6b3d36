"""Approvals of folders to watch and of settings with addresses or keys.

Only the owner of the data folder (mode 0700) can approve, from the command line; callers of the API
cannot, whatever their credential.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from engines.disk import write_private
from schemas.errors import InvalidRequest

APPROVALS_FILE = "approvals.json"
ApprovalKind = Literal["folders", "settings"]
UNRESTRICTED_SETTINGS = frozenset(
    {
        "embed.model",
        "embed.dimension",
        "embed.state_dimension",
        "extract.engine",
        "extract.model",
        "chat.model",
        "rerank.model",
        "ocr.model",
    }
)
UNRESTRICTED_SECTIONS = ("chunk.", "hnsw.", "lexical.")


def approve(data_dir: Path, kind: ApprovalKind, values: Iterable[str]) -> None:
    """Add values to the approvals of the data folder."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    existing = _read_approvals(data_dir)
    merged = {**existing, kind: list(dict.fromkeys([*existing.get(kind, []), *values]))}
    write_private(data_dir / APPROVALS_FILE, json.dumps(merged, indent=1) + "\n")


def load_approved(data_dir: Path, kind: ApprovalKind) -> list[str]:
    return _read_approvals(data_dir).get(kind, [])


def find_restricted_settings(assignments: Iterable[str]) -> list[str]:
    """Return the settings that need approval: all but index parameters and model names."""
    return [
        assignment
        for assignment in assignments
        if not (key := assignment.partition("=")[0].strip()).startswith(UNRESTRICTED_SECTIONS)
        and key not in UNRESTRICTED_SETTINGS
    ]


def check_settings_approved(data_dir: Path, assignments: Sequence[str]) -> None:
    """Raise InvalidRequest with code SETTING_NOT_APPROVED unless all settings are approved.

    The error omits values, since they may be keys.
    """
    if unapproved := sorted(
        {
            assignment.partition("=")[0].strip()
            # Whole assignments are compared: approving one address approves no other.
            for assignment in set(find_restricted_settings(assignments))
            - set(load_approved(data_dir, "settings"))
        }
    ):
        raise InvalidRequest(
            f"Settings {', '.join(unapproved)} cannot be set over HTTP.",
            code="SETTING_NOT_APPROVED",
            remedy="Run `anabranch reindex --set …` on the server's machine, with --data instead "
            "of --server.",
        )


def load_allowed_folders(configured: Iterable[str], data_dir: Path) -> list[Path]:
    """Return the folders that sources may watch, with their subfolders."""
    return [Path(folder).resolve() for folder in (*configured, *load_approved(data_dir, "folders"))]


def _read_approvals(data_dir: Path) -> dict[str, list[str]]:
    try:
        return dict(json.loads((data_dir / APPROVALS_FILE).read_text()))
    except FileNotFoundError:
        return {}
