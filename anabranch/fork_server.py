"""Program of the fork server: imports the modules that `api` and `worker` share, and forks them."""

from __future__ import annotations

import gc
import importlib

from anabranch.__main__ import prepare_process
from anabranch.cli import main
from anabranch.process.fork_server import serve_forks

SHARED_MODULES = (
    "anabranch.cli.up",
    "anabranch.config.loader",
    "anabranch.process.logs",
    "anabranch.process.worker_process",
)

if __name__ == "__main__":
    prepare_process()
    for name in SHARED_MODULES:
        importlib.import_module(name)
    # A collection in a child would write to every object, and so copy the shared pages.
    gc.freeze()
    serve_forks(main)
