"""Application shell: settings, composition, processes, command line, doctor, client."""

import os
import sys
from importlib.util import find_spec

_SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120
_PROGRAM = sys.argv[0]
if "-m" in sys.orig_argv:
    _PROGRAM = sys.orig_argv[sys.orig_argv.index("-m") + 1].partition(".")[0]
_folder = os.path.realpath(os.curdir)
if os.path.basename(_PROGRAM) == "anabranch":  # noqa: PTH119
    # `python -m` and an empty entry of PYTHONPATH import from the working directory, which may hold
    # downloaded files. First of all, because every later import would look there.
    if _folder not in (os.path.realpath(_SOURCES), _LIBRARY):
        sys.path[:] = [path for path in sys.path if os.path.realpath(path or os.curdir) != _folder]
# A program of a user that imports `anabranch.client` keeps its own folder.
elif (_spec := find_spec("schemas")) and not os.path.exists(  # noqa: PTH110
    os.path.join(os.path.dirname(str(_spec.origin)), "run_records.py")  # noqa: PTH118, PTH120
):
    raise ImportError(
        f"{_spec.origin} hides the package `schemas` of Anabranch. Rename it, or move it into a "
        "package of your program."
    )
