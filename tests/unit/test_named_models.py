"""Models by name: tiny ones that the tests make, errors with a way out, and attacks on the name."""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import numpy as np
import onnx
import pytest
from fastembed.common.model_management import ModelManagement
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from anabranch.config.engines import open_embedder, open_reranker
from anabranch.config.index_config import build_index_config
from anabranch.config.loader import load_settings
from anabranch.config.overrides import watch_nothing
from engines.named_models import NamedEmbedder, NamedReranker, locate_model
from schemas.errors import ConfigurationError, PermanentError
from schemas.generations import Generation, IndexConfig
from schemas.ports.engines import RerankPassage

WORDS = ["[PAD]", "[UNK]", "[CLS]", "query", "passage", ":", "heron", "weir", "fish"]
DIMENSION = 4


def make_model(folder: Path, *, is_reranker: bool = False, pools_first: bool = False) -> None:
    """Make a model that maps each word to a row, or counts the tokens 'heron' of a pair."""
    (folder / "onnx").mkdir(parents=True)
    rows = np.random.default_rng(3).normal(size=(len(WORDS), DIMENSION)).astype(np.float32)
    if is_reranker:
        rows = np.zeros((len(WORDS), 1), np.float32)
        rows[WORDS.index("heron")] = 2.0
    nodes = [helper.make_node("Gather", ["rows", "input_ids"], ["states"], axis=0)]
    if is_reranker:
        nodes.append(helper.make_node("ReduceSum", ["states", "axes"], ["logits"], keepdims=0))
    output = helper.make_tensor_value_info(
        "logits" if is_reranker else "states", TensorProto.FLOAT, None
    )
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])
    constants = [numpy_helper.from_array(rows, "rows")]
    constants += [numpy_helper.from_array(np.array([1], np.int64), "axes")] * is_reranker
    graph = helper.make_graph(nodes, "tiny", [ids], [output], constants)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, str(folder / "onnx" / "model.onnx"))
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"model_max_length": 32, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    if pools_first:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')


async def test_model_of_a_folder_makes_unit_vectors_with_its_prompts(tmp_path: Path) -> None:
    make_model(tmp_path / "models/tiny/mean")
    make_model(tmp_path / "models/tiny/e5-first", pools_first=True)
    settings = load_settings(
        data_dir=tmp_path, sets=["embed.model=tiny/mean", f"embed.dimension={DIMENSION}"]
    )
    config = build_index_config(settings).embed
    assert (config.engine, config.model, config.state_dimension) == ("named", "tiny/mean", 0)
    async with AsyncExitStack() as stack:
        embedder = await open_embedder(settings, config, stack, watch_nothing)
        texts = ["heron", "heron weir", "fish"] * 9
        vectors = [embedding.vector for embedding in await embedder.embed(texts)]
        question = await embedder.embed_query("heron")
        assert len(vectors) == 27 and all(vector.shape == (DIMENSION,) for vector in vectors)
        assert np.allclose([np.linalg.norm(vector) for vector in vectors], 1, atol=1e-3)
        assert np.allclose(vectors[0], question.vector, atol=1e-3)
        assert np.allclose(vectors[1], vectors[4]) and not np.allclose(vectors[0], vectors[1])
        first = NamedEmbedder(tmp_path / "models", "tiny/e5-first", dimension=DIMENSION, threads=1)
        stack.callback(first.close)
        # The row of [CLS] whatever the words; and E5's prompts are part of the fingerprint.
        [one, other] = await first.embed(["heron", "fish"])
        assert np.allclose(one.vector, other.vector)
        assert first.fingerprint != embedder.fingerprint
        wrong = NamedEmbedder(tmp_path / "models", "tiny/mean", dimension=3, threads=1)
        stack.callback(wrong.close)
        with pytest.raises(PermanentError, match="this index has 3 dimensions"):
            await wrong.embed(["heron"])


async def test_cross_encoder_of_a_folder_replaces_the_order(tmp_path: Path) -> None:
    make_model(tmp_path / "models/tiny/cross", is_reranker=True)
    settings = load_settings(data_dir=tmp_path, sets=["rerank.model=tiny/cross"])
    generation = Generation(name="g1", config=IndexConfig(), how={}, topics={})
    async with AsyncExitStack() as stack:
        reranker = await open_reranker(settings, generation, stack, watch_nothing)
        assert isinstance(reranker, NamedReranker) and reranker.role == "replaces"
        passages = [
            RerankPassage(UUID(int=index), text) for index, text in enumerate(("fish", "heron"))
        ]
        scores = await reranker.rerank("weir", None, passages)
    assert [round(score.score, 3) for score in scores] == [0.5, 0.881]


def test_missing_model_or_package_names_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> ConfigurationError:
        with pytest.raises(ConfigurationError) as failed:
            NamedEmbedder(tmp_path, name, dimension=4, threads=1)
        return failed.value

    def refuse_download(*names: object, **options: object) -> Path:
        raise ValueError("no network")

    monkeypatch.setattr(ModelManagement, "download_model", refuse_download)
    # Only a name that fastembed knows would be downloaded.
    assert "no network" in (error := fail("BAAI/bge-small-en-v1.5")).detail
    assert str(tmp_path / "BAAI/bge-small-en-v1.5") in error.remedy
    assert (error := fail("nobody/nothing")).code == "NO_MODEL"
    assert "nobody/nothing/onnx/model.onnx" in error.remedy
    monkeypatch.undo()
    make_model(tmp_path / "tiny/broken")
    (tmp_path / "tiny/broken/onnx/model.onnx").write_bytes(b"not a model")
    assert "could not be loaded" in fail("tiny/broken").detail
    make_model(tmp_path / "tiny/odd")
    for text in ("[1]", "{", '{"prompts": ["query: "]}', '{"prompts": {"query": 1}}', "\udcff"):
        data = text.encode(errors="surrogateescape")
        (tmp_path / "tiny/odd/config_sentence_transformers.json").write_bytes(data)
        assert "config_sentence_transformers.json" in (error := fail("tiny/odd")).detail, text
    (tmp_path / "tiny/broken/tokenizer.json").unlink()
    assert fail("tiny/broken").code == "NO_MODEL"
    with pytest.raises(ConfigurationError, match=r"embed\.dimension is not"):
        build_index_config(load_settings(data_dir=tmp_path, sets=["embed.model=tiny/broken"]))
    monkeypatch.setitem(sys.modules, "fastembed", None)
    assert "EXTRAS=models" in fail("tiny/broken").remedy


@pytest.mark.parametrize(
    "name",
    [
        *("../secret", "/", "a/../../secret", ".", "", "link", "in/a", "\0", "\0../secret"),
        *("a" * 300, "a/" * 3000, "loop", "in/c"),
    ],
)
def test_name_does_not_lead_out_of_the_folder_of_models(tmp_path: Path, name: str) -> None:
    root, secret = tmp_path / "models", tmp_path / "secret"
    make_model(secret)
    (root / "in/a").mkdir(parents=True)
    (root / "link").symlink_to(secret)
    (root / "in/a/model.onnx").symlink_to(secret / "onnx/model.onnx")
    (root / "loop").symlink_to(root / "loop")
    (root / "in/c").mkdir()
    (root / "in/c/loop").symlink_to(root / "in/c/loop")
    with pytest.raises(ConfigurationError, match="is not below") as refused:
        locate_model(root, name)
    assert refused.value.code == "FORBIDDEN_MODEL"
    (root / "in/b").mkdir()
    assert locate_model(root, "in/b") == root / "in/b" and locate_model(root, "in/d") is None
