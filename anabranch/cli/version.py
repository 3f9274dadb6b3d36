"""`anabranch version` and `anabranch completion`."""

from __future__ import annotations

import re
from typing import Literal

from anabranch.cli.options import COMMON, CommonOptions
from anabranch.config.version import get_program_version

_ZSH_CALL = """if [ "$funcstack[1]" = _anabranch ]; then _anabranch "$@"
else compdef _anabranch anabranch; fi"""
"""Completes when zsh loads the file, and registers the function when the script is sourced."""


def version(*, common: CommonOptions = COMMON) -> int:
    """Print the version."""
    program_version = get_program_version()
    return common.show({"version": program_version}, lambda: print(program_version))


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the script that completes commands, options and their values in a shell.

    Args:
        shell: Shell that reads the script.
    """
    from anabranch.cli import build_app

    script = build_app().generate_completion(shell=shell)
    # cyclopts offers files only where nothing but a file is accepted; `ingest` takes URLs too.
    if shell == "bash":
        script = script.replace("complete -F", "complete -o bashdefault -o default -F")
    if shell == "zsh":
        script = re.sub(r"('\*:[^:']+)'", r"\1:_files'", script)
        # The script only defines a function, of another name than the file that zsh loads.
        script = script.replace("_cyclopts_anabranch", "_anabranch") + _ZSH_CALL
    print(script)
    return 0
