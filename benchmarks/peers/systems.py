"""The systems that are compared, and their environments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parents[1]
ENVIRONMENTS = PROJECT / "build" / "peers"
NO_TELEMETRY = {"COCOINDEX_DISABLE_USAGE_TRACKING": "1"}
"""Pathway has telemetry only with a license key that enables it."""


@dataclass(frozen=True)
class System:
    name: str
    table: str
    """Table or view with doc, chunk_no, txt, embedding and xmin."""
    is_locked: bool = True
    """Has an environment of its own, with the versions in `NAME.lock`."""
    is_incremental: bool = True
    tolerance: float = 1e-5
    """Accepted difference in each dimension of a vector."""

    @property
    def python(self) -> Path:
        return (
            ENVIRONMENTS / self.name / "bin" / "python" if self.is_locked else Path(sys.executable)
        )

    def build_command(self, *options: str) -> Sequence[str]:
        return [str(self.python), "-m", f"benchmarks.peers.adapters.{self.name}_adapter", *options]


SYSTEMS = {
    system.name: system
    for system in (
        System("floor", "floor_chunks", is_locked=False, is_incremental=False),
        System("cocoindex", "coco_chunks"),
        System("pathway", "pathway_chunks"),
        # Vectors are stored in half precision.
        System("anabranch", "peer_chunks", is_locked=False, tolerance=1e-3),
    )
}


def install_environments(names: Sequence[str]) -> None:
    """Create the environments below build/peers, with pinned versions and checked hashes."""
    for system in (SYSTEMS[name] for name in names if SYSTEMS[name].is_locked):
        folder = system.python.parents[1]
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        lock = FOLDER / f"{system.name}.lock"
        pip = [
            str(system.python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
        ]
        subprocess.run([*pip, "-r", str(lock)], check=True)
