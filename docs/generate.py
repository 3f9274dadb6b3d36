"""Write the generated sections of the docs: `python -m docs.generate [--check]`.

A section stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`; the rest of a file is
written by hand.
"""

from __future__ import annotations

import re
import sys

from docs.sizes import ROOT
from docs.tables import GENERATED_SECTIONS


def replace_section(text: str, name: str, content: str) -> str:
    """Replace one generated section. Raises ValueError if its markers are missing."""
    pattern = re.compile(rf"(<!-- generated: {name} -->\n).*?(\n?<!-- end: {name} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"Expected the markers of {name} exactly once.")
    return pattern.sub(lambda found: f"{found[1]}{content}\n{found[2].lstrip()}", text)


def find_outdated_files() -> dict[str, str]:
    """Return the up-to-date text of each file whose generated sections differ from the code."""
    wanted = {}
    for path, parts in GENERATED_SECTIONS.items():
        before = text = (ROOT / path).read_text(encoding="utf-8")
        for name, render in parts.items():
            text = replace_section(text, name, render())
        if text != before:
            wanted[path] = text
    return wanted


def main() -> int:
    found = find_outdated_files()
    if "--check" in sys.argv[1:]:
        print(
            "\n".join(f"{path} differs from the code: run `make contracts`" for path in found)
            or "the docs agree with the code"
        )
        return int(bool(found))
    for path, text in found.items():
        (ROOT / path).write_text(text, encoding="utf-8")
    print("\n".join(found) or "nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
