"""`anabranch down`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.exit_codes import FAILED, OK
from anabranch.cli.options import LocalOptions
from anabranch.cli.output import print_stderr

Flag = Parameter(negative="")
DEFAULT = LocalOptions()


def down(
    *,
    erase: Annotated[bool, Flag] = False,
    yes: Annotated[bool, Flag] = False,
    common: LocalOptions = DEFAULT,
) -> int:
    """Stop the server of a data folder.

    Parameters
    ----------
    erase
        Delete the data folder afterwards: tables (also those outside it), documents and keys.
    yes
        Skip the confirmation prompt.
    """
    from anabranch.cli.confirmation import confirm
    from anabranch.process.folder_removal import (
        list_removable_folders,
        remove_data_folder,
        stop_server,
    )

    settings = common.load_settings()
    paths = list_removable_folders(settings) if erase else []
    if (
        erase
        and not yes
        and not confirm(f"Delete {' and '.join(map(str, paths))} with all contents permanently?")
    ):
        return FAILED
    was_running = stop_server(settings)
    if erase:
        remove_data_folder(settings)
    if common.is_json:
        common.print_result({"stopped": was_running, "deleted": [str(path) for path in paths]})
    else:
        print_stderr(
            "stopped" if was_running else f"no server was running in {settings.data_dir}",
            quiet=common.quiet,
        )
        for path in paths:
            print(f"deleted {path}")
    return OK
