"""Write the bytecode of all that a parsing child imports: a confined child writes none, and would compile it at each start.

Run once after installation: `python -m engines.parse.compile`.
"""

from __future__ import annotations

import importlib

MODULES = (
    "engines.ocr.reading",
    "engines.parse.html",
    "engines.parse.image",
    "engines.parse.office",
    "engines.parse.pdf",
    "engines.parse.sheets",
    "engines.parse.worker",
    "engines.sandbox_child",
)

if __name__ == "__main__":
    for module in MODULES:
        importlib.import_module(module)
