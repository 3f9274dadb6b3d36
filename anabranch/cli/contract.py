"""`anabranch contract`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from anabranch.cli.options import CommonOptions
from anabranch.cli.output import print_stderr

app = App(
    name="contract",
    help="Generate OpenAPI, AsyncAPI and JSON Schemas.",
    result_action="return_value",
)
Flag = Parameter(negative="")
DEFAULT = CommonOptions()


@app.command
def openapi(
    *, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT
) -> int:
    """Generate the OpenAPI document of the HTTP API.

    Parameters
    ----------
    check
        Compare with the committed file instead of writing it; exit 1 if it differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.cli.contract_files import build_openapi_files

    return _write_or_check(build_openapi_files(), check, to, common)


@app.command
def asyncapi(
    *, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT
) -> int:
    """Generate the AsyncAPI document of the events on the log.

    Parameters
    ----------
    check
        Compare with the committed file instead of writing it; exit 1 if it differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.cli.contract_files import build_asyncapi_files

    return _write_or_check(build_asyncapi_files(), check, to, common)


@app.command
def schemas(
    *, check: Annotated[bool, Flag] = False, to: Path | None = None, common: CommonOptions = DEFAULT
) -> int:
    """Generate JSON Schemas of each event, of the settings and of a profile.

    Parameters
    ----------
    check
        Compare with the committed files instead of writing them; exit 1 if one differs.
    to
        Folder to write to. [default: docs/reference]
    """
    from anabranch.cli.contract_files import build_schema_files

    return _write_or_check(build_schema_files(), check, to, common)


def _write_or_check(
    files: Mapping[str, str], check: bool, to: Path | None, common: CommonOptions
) -> int:
    from anabranch.cli.contract_files import REFERENCE_DIR, find_drift, write_changed

    folder = to or REFERENCE_DIR
    changed = find_drift(files, folder) if check else write_changed(files, folder)
    if common.is_json:
        common.print_result({"drifted" if check else "written": changed, "files": sorted(files)})
    else:
        print("\n".join(map(str, changed)) if changed else "nothing changed")
    if check and changed:
        print_stderr(
            "these files differ from the code; run the command without --check to update them",
            quiet=common.quiet,
        )
    return 1 if check and changed else 0
