"""Application shell: settings, composition, processes, command line, doctor."""

import os
import sys

_SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120
# `python -m` and an empty entry of PYTHONPATH import from the working directory, which may hold
# downloaded files. First of all, because every later import would look there.
if (_folder := os.path.realpath(os.curdir)) not in (os.path.realpath(_SOURCES), _LIBRARY):
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or os.curdir) != _folder]
