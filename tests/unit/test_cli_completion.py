from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from anabranch.cli import main

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
"$(complete -p anabranch | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_and_values(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "anabranch"
    script.write_text(capsys.readouterr().out)
    for words, expected in (
        (["docu"], "documents"),
        (["documents", "del"], "delete"),
        (["documents", "list", "--coll"], "--collection"),
        (["documents", "list", "--state", "fa"], "failed"),
    ):
        completed = subprocess.run(
            ["bash", "-c", COMPLETE, "bash", str(script), "anabranch", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        assert completed.stdout.split() == [expected], completed.stderr


@pytest.mark.parametrize(("shell", "start"), [("zsh", "#compdef anabranch"), ("fish", "# Fish")])
def test_script_of_other_shells_names_every_command(
    shell: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script.startswith(start) and "collections" in script and "\\x" not in script[:200]
