"""The program `anabranch`."""

from __future__ import annotations

from anabranch.cli import main
from anabranch.process.stopping import leave


def program() -> None:
    """Leaves at once when the command is done: taking native threads apart at exit is slow, and at times fatal."""
    leave(main())


if __name__ == "__main__":
    program()
