"""`anabranch down`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.exits import FAILED, OK
from anabranch.cli.options import Local
from anabranch.cli.output import say

Flag = Parameter(negative="")
DEFAULT = Local()


def down(*, erase: Annotated[bool, Flag] = False, yes: Annotated[bool, Flag] = False, common: Local = DEFAULT) -> int:
    """Stop the server of a data folder.

    Parameters
    ----------
    erase
        Then delete the data folder, with tables that lie elsewhere, documents and keys.
    yes
        Delete without asking.
    """
    from anabranch.cli.consent import agreed
    from anabranch.process.folder_removal import check_removable, remove_data_folder, stop_server

    settings = common.settings()
    places = check_removable(settings) if erase else []
    if erase and not yes and not agreed(f"Delete {' and '.join(map(str, places))} with everything in it permanently?"):
        return FAILED
    stopped = stop_server(settings)
    if erase:
        remove_data_folder(settings)
    if common.json:
        common.show({"stopped": stopped, "deleted": [str(place) for place in places]})
    else:
        say("stopped" if stopped else f"no server was running in {settings.data_dir}", quiet=common.quiet)
        for place in places:
            print(f"deleted {place}")
    return OK
