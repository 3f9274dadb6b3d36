"""A retrieval channel is one file and one line: the example is added to a copy of the packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/add-a-retrieval-channel.md").read_text(encoding="utf-8")

# Runs with the copies before the packages of the repository.
CHECKS = """
import asyncio
from uuid import UUID

import retrieval, schemas
from anabranch.cli.options import parse_channels
from retrieval.ranking.candidate_retrieval import choose_channels
from schemas.profiles import Profile
from schemas.questions import Route, SearchRequest
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_harness import make_harness


async def main() -> None:
    profile = Profile()
    assert (profile.get_channel("names").k, profile.fusion.get_weight("names")) == (20, 0.3)
    assert Profile.model_validate({"names": {"k": 7}, "fusion": {"names": 2}}).fusion.names == 2
    assert parse_channels("names,lexical") == ["lexical", "names"]
    schema = SearchRequest.model_json_schema()["properties"]["channels"]
    assert schema["anyOf"][0]["items"]["enum"].count("names") == 1

    question = "What does Harbour Estates own?"
    route = Route(mode="vector", decided_by="rules", reason="")
    assert "names" in choose_channels(route, SearchRequest(query=question), profile)
    built = make_harness()
    found = await built.make_retriever().search(
        LOCAL_CALLER, SearchRequest(query=question, explain=True), UUID(int=1)
    )
    assert "names" in found.trace.channels_used
    best = found.results[0]
    assert best.external_id == "lease" and best.channels["names"].rank == 1
    assert "names_z" in best.explanation or "names_rrf" in best.explanation
    alone = SearchRequest(query=question, channels=["names"])
    ranked = await built.make_retriever().rank_documents(LOCAL_CALLER, alone)
    assert ranked[0][1] == "lease"
    print(retrieval.__file__, schemas.__file__)


asyncio.run(main())
"""


def test_channel_of_the_page_takes_part_in_a_query(tmp_path: Path) -> None:
    for package in ("schemas", "retrieval"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    [(file, code)] = re.findall(r"Create `([\w/.]+)`.*?```python\n(.*?)```", PAGE, re.S)
    (tmp_path / file).write_text(code, encoding="utf-8")
    [(previous, line)] = re.findall(r"```diff\n (.*)\n\+(.*)\n \)\n```", PAGE)
    declarations = tmp_path / "schemas/channels.py"
    text = declarations.read_text(encoding="utf-8")
    assert text.count(previous) == 1
    declarations.write_text(text.replace(previous, f"{previous}\n{line}"), encoding="utf-8")

    checked = subprocess.run(
        [sys.executable, "-c", CHECKS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.split() == [
        str(tmp_path / package / "__init__.py") for package in ("retrieval", "schemas")
    ]
