"""`anabranch contract`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from anabranch.cli.options import CommonOptions
from anabranch.cli.output import print_stderr

app = App(name="contract", help="OpenAPI, AsyncAPI and JSON Schemas, generated.", result_action="return_value")
Flag = Parameter(negative="")
DEFAULT = CommonOptions()


@app.command
def openapi(*, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT) -> int:
    """The HTTP interface.

    Parameters
    ----------
    check
        Write nothing; exit 1 where the committed file differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.cli.contract_files import build_openapi_files

    return _write_or_check(build_openapi_files(), check, to, common)


@app.command
def asyncapi(*, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT) -> int:
    """The events on the log.

    Parameters
    ----------
    check
        Write nothing; exit 1 where the committed file differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.cli.contract_files import build_asyncapi_files

    return _write_or_check(build_asyncapi_files(), check, to, common)


@app.command
def schemas(*, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT) -> int:
    """JSON Schemas of each event, of the settings and of a profile.

    Parameters
    ----------
    check
        Write nothing; exit 1 where a committed file differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.cli.contract_files import build_schema_files

    return _write_or_check(build_schema_files(), check, to, common)


def _write_or_check(files: Mapping[str, str], check: bool, to: Path | None, common: CommonOptions) -> int:
    from anabranch.cli.contract_files import REFERENCE_DIR, find_drift, write_changed

    folder = to or REFERENCE_DIR
    changed = find_drift(files, folder) if check else write_changed(files, folder)
    if common.is_json:
        common.print_result({"drifted" if check else "written": changed, "files": sorted(files)})
    else:
        print("\n".join(map(str, changed)) if changed else "nothing changed")
    if check and changed:
        print_stderr("these differ from the code: run the command without --check", quiet=common.quiet)
    return 1 if check and changed else 0
