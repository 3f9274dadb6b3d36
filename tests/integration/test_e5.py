"""The local embedding model: weights, prefixes, cache, and queries during a long ingest."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import as_file
from pathlib import Path

import numpy as np
import pytest

from engines.embed.e5 import (
    ASSETS,
    STATE_DIMENSION,
    Background,
    E5Embedder,
    E5TextEncoder,
    StateMeans,
    get_background_file_name,
    get_means_file_name,
)
from engines.embed.e5_file import locate_weights, verify_weights
from engines.embed.e5_session import E5Encoder
from engines.embed.states import take_leading, unpack_states
from schemas.errors import ConfigurationError
from tests.support.forked_process import fork_process


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def encoder(cache_dir: Path) -> E5Encoder:
    return E5Encoder(cache_dir)


def test_tokens_match_the_published_tokenizer(encoder: E5Encoder) -> None:
    """Compare with XLM-RoBERTa's vocabulary.

    `passage: hello world` is ▁passage, :, ▁hell, o, ▁world between sentence marks 0 and 2.
    """
    assert encoder.tokenizer.encode("passage: hello world") == [0, 46692, 12, 33600, 31, 8999, 2]
    assert encoder.tokenizer.encode("passage: hello \n\t world") == encoder.tokenizer.encode(
        "passage: hello world"
    )
    assert len(encoder.tokenizer.encode("word " * 5000)) == 512
    # Unknown characters in a row are one token.
    assert encoder.tokenizer.tokenize("\U00013080\U00013081") == [6, 3]
    assert encoder.tokenizer.tokenize("") == []
    # A text that spells a special token is ordinary text.
    assert not {0, 1, 2} & set(encoder.tokenizer.tokenize("<s> </s> <pad>"))


@pytest.fixture(scope="module")
def embedder(cache_dir: Path) -> Iterator[E5Embedder]:
    engine = E5Embedder(cache_dir, threads=1)
    yield engine
    engine.close()


async def test_token_states_exclude_prefix_and_sentence_marks(embedder: E5Embedder) -> None:
    (passage,), query = (
        await embedder.embed(["hello world"]),
        await embedder.embed_query("hello world"),
    )
    assert passage.states is not None and query.token_ids is not None
    token_ids = unpack_states(passage.states)[1]
    assert token_ids.tolist() == query.token_ids.tolist() == [33600, 31, 8999]


async def test_similarity_follows_meaning_across_languages(embedder: E5Embedder) -> None:
    query = await embedder.embed_query("how much does the bearing cost?")
    found = await embedder.embed(
        [
            "A substituição do rolamento custa 18.740 euros.",
            "How much sleep does a cat need?",
            "Bearing in mind the cost, he left.",
        ]
    )
    scores = [float(query.vector @ item.vector.astype(np.float32)) for item in found]
    assert scores[0] == max(scores)


async def test_vectors_are_equal_alone_and_in_batch(embedder: E5Embedder) -> None:
    texts = [f"Text number {n} " + "about rivers and bridges " * n for n in range(12)]
    together, alone = await embedder.embed(texts), await embedder.embed(texts[:1])
    assert np.allclose(
        together[0].vector.astype(np.float32), alone[0].vector.astype(np.float32), atol=1e-3
    )
    states, states_alone = [unpack_states(items[0].states or b"")[0] for items in (together, alone)]
    assert (states * states_alone).sum(axis=1).min() > 0.999


async def test_query_does_not_wait_for_long_ingest(embedder: E5Embedder) -> None:
    ingest = asyncio.create_task(embedder.embed(["a long passage about many things " * 30] * 16))
    await asyncio.sleep(0)
    await embedder.embed_query("short?")
    small = await embedder.embed(["one small document"])
    assert len(small) == 1 and not ingest.done()
    assert len(await ingest) == 16


async def test_embeddings_include_background_similarity(embedder: E5Embedder) -> None:
    (passage,) = await embedder.embed(
        ["The replacement of the bearing costs 18,740 euros and takes two days."]
    )
    query = await embedder.embed_query("What does replacing the bearing cost?")
    assert passage.background_dense is not None and 0.5 < passage.background_dense < 1
    assert passage.background_maxsim is not None and query.background_maxsim_mean is not None
    assert 0.5 < query.background_maxsim_mean < 1 and 0.5 < passage.background_maxsim < 1


@pytest.mark.parametrize("name", ["questions", pytest.param("passages", marks=pytest.mark.long)])
def test_shipped_background_matches_computed_one(
    cache_dir: Path, encoder: E5Encoder, name: str
) -> None:
    with as_file(ASSETS / get_background_file_name(name, STATE_DIMENSION)) as file:
        shipped = Background.load(file)
    read = E5TextEncoder(cache_dir, STATE_DIMENSION).compute_background(name)
    assert np.array_equal(shipped.starts, read.starts)
    assert (
        np.abs(shipped.vectors - read.vectors).max() < 1e-4
        and np.abs(shipped.states - read.states).max() < 1e-3
    )


async def test_shipped_means_match_computed_ones(cache_dir: Path, embedder: E5Embedder) -> None:
    used = (await embedder.embed_query("How much does it cost?")).language_means
    with as_file(ASSETS / get_means_file_name(STATE_DIMENSION)) as file:
        shipped = StateMeans.load(file)
    computed = E5TextEncoder(cache_dir, STATE_DIMENSION).compute_means()
    assert used.keys() == computed.languages.keys() == {"en", "pt", "es", "fr", "de"}
    for key, mean in computed.languages.items():
        assert np.abs(used[key] - mean).max() < 1e-3
    assert np.abs(shipped.passages.means - computed.passages.means).max() < 1 / 127
    assert np.allclose(shipped.passages.deviations, computed.passages.deviations, rtol=0.01)


async def test_stored_states_keep_the_similarities_of_words(
    cache_dir: Path, embedder: E5Embedder
) -> None:
    text = "The replacement of the bearing costs 18,740 euros and takes two days."
    (passage,) = await embedder.embed([text])
    stored, _ = unpack_states(passage.states or b"")
    encoder = E5TextEncoder(cache_dir, STATE_DIMENSION)
    (exact,) = encoder.encode_batch("passage: ", [encoder.tokenize("passage: ", text)])
    assert np.sum(stored * exact.states, axis=1).mean() > 0.98
    leading = take_leading(stored) * take_leading(exact.states)
    assert leading.sum(axis=1).min() > 0.99


async def test_unshipped_background_is_computed_once(cache_dir: Path, encoder: E5Encoder) -> None:
    cached_files = [
        cache_dir / get_background_file_name(name, 16) for name in ("questions", "passages")
    ]
    cached_files.append(cache_dir / get_means_file_name(16))
    for _ in range(2):
        engine = E5Embedder(cache_dir, state_dimension=16, threads=1)
        await engine.warm()
        engine.close()
    assert all(file.exists() for file in cached_files)


def test_fingerprint_covers_state_dimension_without_loading_model(tmp_path: Path) -> None:
    first, other = (
        E5Embedder(tmp_path, state_dimension=64),
        E5Embedder(tmp_path, state_dimension=32),
    )
    assert first.fingerprint != other.fingerprint and not list(tmp_path.iterdir())
    first.close()
    other.close()
    with pytest.raises(ConfigurationError):
        E5Embedder(tmp_path, state_dimension=385)


def test_unpinned_weights_are_rejected(tmp_path: Path) -> None:
    verify_weights(locate_weights())
    (tmp_path / "weights.bin").write_bytes(b"E5S1 but not these")
    with pytest.raises(ConfigurationError, match="sha256"):
        verify_weights(tmp_path / "weights.bin")


def test_two_processes_can_build_one_cache(tmp_path: Path) -> None:
    cache, log = tmp_path / "cache", tmp_path / "log"
    racers = [fork_process(E5Encoder, cache, log=log, environment={}) for _ in range(2)]
    assert [racer.wait(120) for racer in racers] == [0, 0], log.read_text()
    assert sorted(file.suffix for file in cache.iterdir()) == [".onnx", ".spm", ".weights"]
    next(cache.glob("*.weights")).unlink()
    next(cache.glob("*.spm")).unlink()
    assert E5Encoder(cache).dimension == 384
    assert sorted(file.suffix for file in cache.iterdir()) == [".onnx", ".spm", ".weights"]


EXIT_DURING_INGEST_SCRIPT = """
import asyncio, sys
from pathlib import Path
from engines.embed.e5 import E5Embedder

async def main():
    embedder = E5Embedder(Path(sys.argv[1]))
    await embedder.warm()
    ingest = asyncio.create_task(embedder.embed(["a long passage about many things " * 30] * 32))
    await embedder.embed_query("at work?")
    ingest.cancel()

asyncio.run(main())
"""


def test_process_can_exit_during_ingest(cache_dir: Path, encoder: E5Encoder) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EXIT_DURING_INGEST_SCRIPT, str(cache_dir)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
