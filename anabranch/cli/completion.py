"""`anabranch completion`."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the script that completes commands, options and their values in a shell.

    Parameters
    ----------
    shell
        Shell that reads the script.
    """
    from anabranch.cli import build_app

    print(build_app().generate_completion(shell=shell))
    return 0
