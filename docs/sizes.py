"""Print the size of the product per package, and fail above the budget: `python -m docs.sizes`.

The product is the packages that a user runs. Tests, benchmarks, samples, documents and `web/` are
not part of it. The budget is the last row of the table in `docs/development.md`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
OTHER_FOLDERS = ("tests", "benchmarks", "samples", "docs", "web", ".ci")
# | date | lines | files | lines of tests a line | what was bought |
BUDGET_ROW = re.compile(
    r"^\| \d{4}-\d\d-\d\d \| ([\d,]+) \| (\d+) \| (\.\d+|\d\.\d+) \|", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Sizes:
    lines: dict[str, int]
    """By package."""
    files: dict[str, int]
    """By package."""
    test_lines: int

    @property
    def total(self) -> int:
        return sum(self.lines.values())

    @property
    def total_files(self) -> int:
        return sum(self.files.values())

    @property
    def test_share(self) -> float:
        """Lines of tests for each line of the product."""
        return self.test_lines / self.total


def count() -> Sizes:
    """Count the lines of Python files that git does not ignore, without those of protoc."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", "*.py", ":!*_pb2*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lines, files, test_lines = Counter[str](), Counter[str](), 0
    # A deleted file is listed until its deletion is staged.
    for name in [name for name in listed.stdout.split() if (ROOT / name).exists()]:
        folder, separator, _ = name.partition("/")
        size = (ROOT / name).read_bytes().count(b"\n")
        if folder == "tests":
            test_lines += size
        elif separator and folder not in OTHER_FOLDERS:
            lines[folder] += size
            files[folder] += 1
    return Sizes(dict(lines.most_common()), files, test_lines)


def read_budget() -> tuple[int, int, float]:
    """Return the lines, files and share of tests that are allowed."""
    page = (ROOT / "docs/development.md").read_text(encoding="utf-8")
    lines, files, share = BUDGET_ROW.findall(page)[-1]
    return int(lines.replace(",", "")), int(files), float(share)


def main() -> int:
    sizes, (lines, files, share) = count(), read_budget()
    for package, size in sizes.lines.items():
        print(f"{package:12} {size:7,}")
    print(
        f"{'product':12} {sizes.total:7,} of {lines:,} lines, {sizes.total_files} of {files} files"
    )
    print(f"{'tests':12} {sizes.test_lines:7,}, {sizes.test_share:.2f} of {share:.2f} a line")
    if sizes.total > lines or sizes.total_files > files or sizes.test_share >= share + 0.005:
        print(
            "The code is above its budget. Say a shape once, or add a row to the table in "
            "docs/development.md that says what was bought.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
