"""Make `assets/e5-background-*.npz`: the background texts as the model reads them, so that a new data folder need not wait for it.

    python -m engines.embed.make_backgrounds CACHE_DIR

To be done anew when the model's file, the basis or the texts change: their hashes are in the files' names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engines.embed.e5 import BACKGROUNDS, STATE_DIMENSION, E5Reader, background_file

TARGET = Path(__file__).parent / "assets"


def main() -> None:
    reader = E5Reader(Path(sys.argv[1]), STATE_DIMENSION)
    for old in TARGET.glob("e5-background-*.npz"):
        old.unlink()
    for name in BACKGROUNDS:
        reader.background(name).save(TARGET / background_file(name, STATE_DIMENSION))


if __name__ == "__main__":
    main()
