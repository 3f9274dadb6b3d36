"""Generate `assets/e5-background-*.npz`, the encoded background texts.

    python -m engines.embed.make_backgrounds CACHE_DIR

Run it again when the weights, the basis or the texts change; the file names contain their hashes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engines.embed.e5 import (
    BACKGROUND_PREFIXES,
    STATE_DIMENSION,
    E5TextEncoder,
    get_background_file_name,
)

TARGET = Path(__file__).parent / "assets"


def main() -> None:
    encoder = E5TextEncoder(Path(sys.argv[1]), STATE_DIMENSION)
    for stale_file in TARGET.glob("e5-background-*.npz"):
        stale_file.unlink()
    for name in BACKGROUND_PREFIXES:
        encoder.compute_background(name).save(
            TARGET / get_background_file_name(name, STATE_DIMENSION)
        )


if __name__ == "__main__":
    main()
