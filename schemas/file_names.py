"""Names of files that are no documents: readers of folders skip them."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

_CODE = (
    "py pyi pyc js mjs cjs ts tsx jsx css scss less vue svelte c h cc cpp cxx hpp m mm java kt "
    "scala groovy go rs rb php pl pm lua swift dart cs fs vb r jl sh bash zsh ps1 bat cmd o a so "
    "dll dylib exe class jar wasm map"
)
_TEMPORARY = (
    "lock swp swo bak crdownload part partial filepart aria2 !ut !qb download opdownload tmp temp"
)
_SHORTCUTS = "lnk url webloc"
SKIPPED_EXTENSIONS = frozenset(f"{_CODE} {_TEMPORARY} {_SHORTCUTS}".split())
SKIPPED_NAMES = frozenset(
    ("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "package-lock.json")
)
SKIPPED_FOLDERS = frozenset(
    (
        *("node_modules", "__pycache__", "__macosx", "$recycle.bin", "#recycle", "@eadir"),
        *("lost+found", "system volume information"),
    )
)
_EDITOR_COPY = re.compile(r"~\$.*|.*~|#.*#", re.DOTALL)
"""Locks of Microsoft Office, copies of editors. Those of LibreOffice (`.~lock`) are hidden."""


def is_skipped(path: str, glob: str, include: Collection[str] = ()) -> bool:
    """Return whether the file at this path below its folder is no document.

    A pattern of `include` overrides that, and so does a glob that ends in the extension: `*.py`
    asks for code.
    """
    *folders, name = path.casefold().split("/")
    extension = name.rpartition(".")[2]
    return (
        not SKIPPED_FOLDERS.isdisjoint(folders)
        or name in SKIPPED_NAMES
        or _EDITOR_COPY.fullmatch(name) is not None
        or (
            extension in SKIPPED_EXTENSIONS
            and extension != name
            and not glob.casefold().endswith(f".{extension}")
        )
    ) and not any(fnmatchcase(name, pattern.casefold()) for pattern in include)
