"""Generate the files in `engines/embed/assets` that are computed from the weights.

    python -m benchmarks.embedding_assets basis CACHE_DIR
    python -m benchmarks.embedding_assets backgrounds CACHE_DIR
    python -m benchmarks.embedding_assets means CACHE_DIR

`e5_basis.npy` has the directions in which token states vary most: the right singular vectors of
the token states, not centered, of the background texts and of random words from the model's
vocabulary. Each block of 64 is rotated at random, so that its columns vary alike. The basis is part
of the engine's fingerprint: a new one requires a reindex.

`e5-background-*.npz` are the encoded background texts. Generate them again when the weights, the
basis or the texts change; the file names contain their hashes.

`e5-means-*.npz` has the mean token state of the questions of `languages.tsv` in each language, and
the scale by which states are stored. Generate it again in the same cases.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

from engines.embed.e5 import (
    BACKGROUND_PREFIXES,
    STATE_DIMENSION,
    E5TextEncoder,
    get_background_file_name,
    get_means_file_name,
    load_texts,
)
from engines.embed.e5_file import E5File, locate_weights
from engines.embed.e5_session import E5Encoder
from engines.embed.states import BLOCK, normalize_rows

TARGET = Path(__file__).parents[1] / "engines/embed/assets"
SALADS, SALAD_WORDS, COMMON_WORDS = 120, 40, 20_000


def make_backgrounds(cache_dir: Path) -> None:
    encoder = E5TextEncoder(cache_dir, STATE_DIMENSION)
    for stale_file in TARGET.glob("e5-background-*.npz"):
        stale_file.unlink()
    for name in BACKGROUND_PREFIXES:
        encoder.compute_background(name).save(
            TARGET / get_background_file_name(name, STATE_DIMENSION)
        )


def make_means(cache_dir: Path) -> None:
    for stale_file in TARGET.glob("e5-means-*.npz"):
        stale_file.unlink()
    means = E5TextEncoder(cache_dir, STATE_DIMENSION).compute_means()
    means.save(TARGET / get_means_file_name(STATE_DIMENSION))


def make_basis(cache_dir: Path) -> None:
    encoder = E5Encoder(cache_dir)
    sources = [
        f"passage: {text}" for text in [*load_texts("passages"), *generate_word_salads()]
    ] + [f"query: {text}" for text in load_texts("questions")]
    rows = np.concatenate(
        [
            normalize_rows(encoder.compute_states([encoder.tokenizer.encode(text)])[0])
            for text in sources
        ]
    )
    _, _, directions = np.linalg.svd(rows, full_matrices=False)
    basis, draw = directions.T.copy(), np.random.default_rng(0)
    for start in range(0, len(basis), BLOCK):
        rotation, _ = np.linalg.qr(draw.standard_normal((BLOCK, BLOCK)))
        basis[:, start : start + BLOCK] @= rotation
    np.save(TARGET / "e5_basis.npy", np.ascontiguousarray(basis, np.float16))


def generate_word_salads() -> list[str]:
    """Generate texts of random common words in Latin script, with a fixed seed."""
    words = [
        word
        for piece, _ in E5File(locate_weights()).read_pieces()
        if piece.startswith("▁")
        and len(word := piece[1:]) > 2
        and word.isalpha()
        and max(word) < "\u0250"
    ]
    rng = random.Random(0)
    return [" ".join(rng.choices(words[:COMMON_WORDS], k=SALAD_WORDS)) for _ in range(SALADS)]


if __name__ == "__main__":
    makers = {"basis": make_basis, "backgrounds": make_backgrounds, "means": make_means}
    makers[sys.argv[1]](Path(sys.argv[2]))
