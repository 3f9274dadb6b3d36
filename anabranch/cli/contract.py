"""`anabranch contract`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from anabranch.cli.options import Common
from anabranch.cli.output import say

app = App(name="contract", help="OpenAPI, AsyncAPI and JSON Schemas, generated.", result_action="return_value")
Flag = Parameter(negative="")
DEFAULT = Common()


@app.command
def openapi(*, check: Annotated[bool, Flag] = False, to: Path | None = None, common: Common = DEFAULT) -> int:
    """The HTTP interface.

    Parameters
    ----------
    check
        Write nothing; exit 1 where the committed file differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.contracts import openapi_files

    return _report(openapi_files(), check, to, common)


@app.command
def asyncapi(*, check: Annotated[bool, Flag] = False, to: Path | None = None, common: Common = DEFAULT) -> int:
    """The events on the log.

    Parameters
    ----------
    check
        Write nothing; exit 1 where the committed file differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.contracts import asyncapi_files

    return _report(asyncapi_files(), check, to, common)


@app.command
def schemas(*, check: Annotated[bool, Flag] = False, to: Path | None = None, common: Common = DEFAULT) -> int:
    """JSON Schemas of each event, of the settings and of a profile.

    Parameters
    ----------
    check
        Write nothing; exit 1 where a committed file differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.contracts import schema_files

    return _report(schema_files(), check, to, common)


def _report(files: Mapping[str, str], check: bool, to: Path | None, common: Common) -> int:
    from anabranch.contracts import REFERENCE, drift, write

    folder = to or REFERENCE
    changed = drift(files, folder) if check else write(files, folder)
    if common.json:
        common.show({"drifted" if check else "written": changed, "files": sorted(files)})
    else:
        print("\n".join(map(str, changed)) if changed else "nothing changed")
    if check and changed:
        say("these differ from the code: run the command without --check", quiet=common.quiet)
    return 1 if check and changed else 0
