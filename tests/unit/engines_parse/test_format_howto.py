"""The example of 'Add a file format', copied from the page and run in a sandbox child."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/add-a-format.md").read_text(encoding="utf-8")
PARSE_FILE = """
import asyncio, sys
from pathlib import Path
from engines.ocr.rapidocr import RapidOcr
from engines.parse import LocalParser
from schemas.ports.engines import LocalFile

async def main(path):
    async with LocalParser(RapidOcr()) as parser:
        file = LocalFile(path, path.name, None, path.stat().st_size)
        plan = await parser.plan(file)
        parts = [await parser.parse(file, plan, part) for part in plan.parts]
        print(plan.media_type, parser.assemble(file, plan, parts).markdown, sep="\\n", end="")

asyncio.run(main(Path(sys.argv[1])))
"""


def find_code(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(code)


def run_parser(program_folder: Path, document: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PARSE_FILE, str(document)],
        cwd=program_folder,
        env={"PYTHONPATH": str(program_folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def program_folder(tmp_path: Path) -> Path:
    for package in ("engines", "schemas"):
        shutil.copytree(ROOT / package, tmp_path / package)
    return tmp_path


def test_format_of_howto_takes_one_file_and_one_line(program_folder: Path) -> None:
    document = program_folder / "song.lrc"
    document.write_text(find_code("lrc"))
    assert "text/plain" in run_parser(program_folder, document).stdout

    (program_folder / "engines/parse/lyrics.py").write_text(find_code("python"))
    before, added, _ = find_code("diff").splitlines(keepends=True)
    formats = program_folder / "engines/parse/formats.py"
    source = formats.read_text()
    assert added.startswith("+")
    assert source.count(before[1:]) == 1, (
        f"{formats.name} lacks the line {before[1:]!r} of the page"
    )
    formats.write_text(source.replace(before[1:], before[1:] + added[1:]))

    done = run_parser(program_folder, document)
    assert done.stdout == "application/x-lrc\n" + find_code("markdown").rstrip(), done.stderr
