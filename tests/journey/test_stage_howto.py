"""The example of 'Add a stage': one file and one line in a copy of the stages."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HOWTO_PAGE = ROOT / "docs/how-to/add-a-stage.md"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a folder that precedes the program's own `processors` on the path."""
    page = HOWTO_PAGE.read_text(encoding="utf-8")
    [source] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [(before, line)] = re.findall(r"^     (\S+)\n\+    (.*)$", page, re.MULTILINE)
    shutil.copytree(ROOT / "processors", tmp_path / "processors")
    (tmp_path / "processors/references.py").write_text(source, encoding="utf-8")
    stages = tmp_path / "processors/__init__.py"
    text = stages.read_text(encoding="utf-8")
    text = text.replace(f"    {before}\n", f"    {before}\n    {line}\n")
    stages.write_text(
        text.replace("    receive,\n", "    receive,\n    references,\n"), encoding="utf-8"
    )
    return tmp_path


async def run_program(program: Path, database: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.program_with_stage"),
        *(str(program / "data"), database, "references", "references"),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{program}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    return dict(json.loads(printed.splitlines()[-1]))


async def test_stage_with_own_event_and_topic_needs_one_file_and_one_line(
    program: Path, database: str
) -> None:
    seen = await run_program(program, database)
    assert [payload["references"] for payload in seen["payloads"]] == [["AM-55871"]]
    assert seen["content_types"] == ["application/octet-stream"], "payloads are encrypted"
    assert seen["feed"] == ["references.found.v1"]
    assert seen["status"]["references"] == "done"
    assert seen["consumers"] == ["anabranch.references.g1"]
    assert list(seen["channel"]["messages"]) == ["references.found.v1"]
    assert seen["channel"]["description"] == "Reference numbers found in chunks."
    assert seen["channel"]["bindings"]["kafka"]["topicConfiguration"]["retention.ms"] == -1
    assert seen["schemas"] == ["events/references.found.v1.json"]
    assert (seen["partitions"], seen["retention_ms"]) == (12, None)
    assert seen["writers"] == ["User:anabranch-worker"]
