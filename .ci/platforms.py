"""Print the packages of requirements.lock that have no wheel on a supported platform.

Exits 1 for a package that KNOWN does not list, and for one listed that has its wheel by now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LOCK = Path(__file__).parent.parent / "requirements.lock"
PLATFORMS = ["x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "aarch64-apple-darwin"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
KNOWN = {("aarch64-manylinux_2_28", python): {"faust-streaming"} for python in PYTHONS} | {
    ("aarch64-manylinux_2_28", "3.14"): {"faust-streaming", "chardetng-py"},
    ("aarch64-apple-darwin", "3.14"): {"chardetng-py"},
}
"""The README says what has to be there to build them."""
MACOS = "14.0"
"""The oldest that ONNX Runtime has wheels for."""


def list_missing_wheels(uv: str, platform: str, python: str) -> set[str]:
    """Resolve the lock without the packages found so far, until nothing is missing."""
    requirements = re.split(r"\n(?=[a-zA-Z0-9])", LOCK.read_text(encoding="utf-8"))
    missing: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "requirements.txt"
        while True:
            kept.write_text(
                "\n".join(entry for entry in requirements if entry.split("==")[0] not in missing),
                encoding="utf-8",
            )
            # Into an empty folder: what is installed here says nothing about another platform.
            resolution = subprocess.run(
                f"{uv} pip install --dry-run --no-deps --require-hashes --only-binary :all:".split()
                + f"--python-platform {platform} --python-version {python}".split()
                + ["--target", f"{folder}/target", "-r", str(kept)],
                env=os.environ | {"MACOSX_DEPLOYMENT_TARGET": MACOS},
                capture_output=True,
                text=True,
            )
            if resolution.returncode == 0:
                return missing
            explanation = " ".join(resolution.stderr.split())
            found = set(re.findall(r"([\w.-]+)==\S+ has no (?:usable )?wheels", explanation))
            if not found - missing:
                sys.exit(f"{platform}, Python {python}: {resolution.stderr.strip()}")
            missing |= found


def main(uv: str) -> int:
    places = [(platform, python) for platform in PLATFORMS for python in PYTHONS]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda place: list_missing_wheels(uv, *place), places))
    failed = False
    for (platform, python), missing in zip(places, results, strict=True):
        known = KNOWN.get((platform, python), set())
        notes = [f"no wheel: {name}" for name in sorted(missing & known)]
        notes += [f"NEW, no wheel: {name}" for name in sorted(missing - known)]
        notes += [f"has a wheel now, remove from KNOWN: {name}" for name in sorted(known - missing)]
        print(f"{platform}, Python {python}: {'; '.join(notes) or 'wheels only'}")
        failed |= missing != known
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
