"""The tutorial: its commands work when pasted, and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server_process import make_environment, run_up

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
BLOCK = re.compile(r"```(sh|text)\n(.*?)```", re.DOTALL)


def test_commands_of_the_tutorial_print_what_it_says(tmp_path: Path) -> None:
    environment = make_environment() | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    output = ""
    with run_up(tmp_path / "anabranch-data"):
        for language, block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if language == "text":
                expect_lines(output, block)
                continue
            done = subprocess.run(
                ["sh", "-ec", block],
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                # What a command does goes to stderr, its result to stdout; a terminal shows both.
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=180,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}"
            output = done.stdout


def expect_lines(output: str, block: str) -> None:
    """Expect the lines of a block in the output, in their order; `…` stands for anything."""
    printed = iter(output.splitlines())
    for line in block.splitlines():
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        assert any(pattern.fullmatch(one) for one in printed), f"{line!r} is missing in\n{output}"


@pytest.mark.parametrize("block", ["two", "one\ntwo\nfour", "on"])
def test_other_lines_are_found_missing(block: str) -> None:
    with pytest.raises(AssertionError):
        expect_lines("one\nthree\nfour", block)
