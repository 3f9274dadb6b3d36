"""Make `assets/e5-background-*.npz`: the background texts as the model reads them, so that a new data folder need not wait for it.

    python -m engines.embed.make_backgrounds CACHE_DIR

To be done anew when the model's file, the basis or the texts change: their hashes are in the files' names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engines.embed.e5 import BACKGROUND_PREFIXES, STATE_DIMENSION, E5TextEncoder, get_background_file_name

TARGET = Path(__file__).parent / "assets"


def main() -> None:
    reader = E5TextEncoder(Path(sys.argv[1]), STATE_DIMENSION)
    for stale_file in TARGET.glob("e5-background-*.npz"):
        stale_file.unlink()
    for name in BACKGROUND_PREFIXES:
        reader.compute_background(name).save(TARGET / get_background_file_name(name, STATE_DIMENSION))


if __name__ == "__main__":
    main()
