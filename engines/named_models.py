"""Embedding models and cross-encoders by name, run by fastembed on ONNX Runtime (extra `models`).

A model is a folder below the folder of models, such as `BAAI/bge-m3`, with its ONNX file and its
tokenizer. Only names that fastembed knows are downloaded: callers of the API may choose a name, and
no file of a repository of their own is opened.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, TypeAdapter, ValidationError

from engines.embed.e5_session import PriorityThreadPool
from engines.embed.states import Floats, normalize_rows
from schemas.errors import ConfigurationError, PermanentError
from schemas.ids import fingerprint, sha256_hex
from schemas.ports.engines import (
    QueryEmbedding,
    RerankPassage,
    RerankScore,
    TextEmbedding,
    TokenSpans,
    TokenWeighting,
)
from schemas.ports.metering import count_local_call

VERSION = 1
BATCH = 16
MODEL_FILES = ("onnx/model.onnx", "model.onnx")
POOLING_FILE, PROMPT_FILE = "1_Pooling/config.json", "config_sentence_transformers.json"
E5_PROMPTS = {"query": "query: ", "passage": "passage: "}
THRESHOLD = 0.5


def locate_model(models_folder: Path, name: str) -> Path | None:
    """Return the folder of a model, or None if there is none.

    Raises ConfigurationError for a name that leads out of the folder, and for links that do.
    """
    root = models_folder.resolve()
    try:
        folder = (root / name.replace("\0", "")).resolve()
        # In this order: no other folder is listed.
        is_below = folder.is_relative_to(root) and folder != root
        is_below = is_below and all(
            file.resolve().is_relative_to(root) for file in folder.rglob("*")
        )
    except (OSError, RuntimeError):  # a name that is too long, a loop of links
        is_below = False
    if not is_below:
        raise ConfigurationError(
            f"Model {name!r} is not below {root}.",
            code="FORBIDDEN_MODEL",
            remedy="Name a folder of models there, such as BAAI/bge-m3, whose files are no links.",
        )
    return folder if folder.is_dir() else None


def _load(
    kind: Literal["embed", "rerank"], models_folder: Path, name: str, threads: int, dimension: int
) -> tuple[Any, Path, list[object]]:
    """Return the model, its folder and what identifies its weights.

    Raises ConfigurationError if fastembed is not installed, or if there is no such model.
    """
    folder = locate_model(models_folder, name)
    try:
        from fastembed import TextEmbedding as Dense
        from fastembed.common.model_description import ModelSource, PoolingType
        from fastembed.rerank.cross_encoder import TextCrossEncoder
    except ImportError as error:
        raise ConfigurationError(
            f"{kind}.model {name!r} needs the package fastembed.",
            code="NO_FASTEMBED",
            remedy="In the clone, run `make install EXTRAS=models`.",
        ) from error
    model_class: Any = Dense if kind == "embed" else TextCrossEncoder
    known = {model["model"].lower() for model in model_class.list_supported_models()}
    files = [file for file in MODEL_FILES if folder is not None and (folder / file).is_file()]
    if name.lower() not in known:
        if folder is None or not files:
            raise ConfigurationError(
                f"There is no model {name!r} in {models_folder.resolve()}, and fastembed does not "
                "know this name.",
                code="NO_MODEL",
                remedy=f"Copy its ONNX model there as {name}/{MODEL_FILES[0]}, with tokenizer.json "
                "and tokenizer_config.json.",
            )
        options: dict[str, Any] = {"sources": ModelSource(hf=name), "model_file": files[0]}
        if kind == "embed":
            pooled = _read_json(folder / POOLING_FILE)
            by_first = pooled.get("pooling_mode_cls_token", False)
            options["pooling"] = PoolingType.CLS if by_first else PoolingType.MEAN
            options |= {"normalization": True, "dim": dimension}
        model_class.add_custom_model(name, **options)
    local = {} if folder is None else {"specific_model_path": str(folder)}
    cache = str(models_folder / "hub")
    try:
        model = model_class(name, cache_dir=cache, threads=threads, **local).model
        location = Path(model._model_dir)
        return model, location, _identify_weights(name, location)
    # Of the network, of files, and of ONNX Runtime, whose errors have no class in common.
    except Exception as error:
        raise ConfigurationError(
            f"Model {name!r} could not be loaded: {error}",
            code="NO_MODEL",
            remedy=f"Copy its files to {models_folder.resolve() / name}, or allow the network.",
        ) from error


class _SentenceConfig(BaseModel):
    prompts: dict[str, str] | None = None


def _read_json(path: Path, kind: Any = dict[str, Any]) -> Any:
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes() if path.is_file() else b"{}")
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigurationError(
            f"{path}, {'.'.join(map(str, problem['loc'])) or 'JSON'}: {problem['msg']}.",
            code="NO_MODEL",
            remedy="Copy the files of the model again.",
        ) from error


def _identify_weights(name: str, folder: Path) -> list[object]:
    """Return sizes and the tokenizer: to hash gigabytes would delay each start."""
    sizes = [file.stat().st_size for file in sorted(folder.rglob("*.onnx*"))]
    tokenizer = sha256_hex((folder / "tokenizer.json").read_bytes())
    return [VERSION, name, sizes, tokenizer, _read_json(folder / POOLING_FILE)]


class NamedEmbedder:
    """Dense vectors of a model, without token states. Questions overtake passages."""

    state_dimension = 0

    def __init__(self, models_folder: Path, name: str, *, dimension: int, threads: int) -> None:
        self.model, self.dimension = name, dimension
        self._model, folder, weights = _load("embed", models_folder, name, threads, dimension)
        default = E5_PROMPTS if "e5-" in name.lower() else {}
        config = _read_json(folder / PROMPT_FILE, _SentenceConfig)
        self._prompts = {**default, **(config.prompts or {})}
        self.fingerprint = fingerprint("named", *weights, self._prompts)
        self._pool = PriorityThreadPool(1, "named-embedder")

    async def embed(self, texts: Sequence[str]) -> list[TextEmbedding]:
        rows: list[Floats] = []
        for start in range(0, len(texts), BATCH):
            rows += await self._encode("passage", texts[start : start + BATCH], priority=1.0)
        return [TextEmbedding(row.astype(np.float16)) for row in rows]

    async def embed_query(self, text: str) -> QueryEmbedding:
        return QueryEmbedding((await self._encode("query", [text], priority=0.0))[0])

    async def locate_tokens(self, texts: Sequence[str]) -> list[TokenSpans]:
        return [np.zeros((0, 2), np.int64) for _ in texts]

    async def _encode(self, role: str, texts: Sequence[str], priority: float) -> list[Floats]:
        count_local_call("embed", self.model)
        prompt = self._prompts.get(role, "")
        inputs = [prompt + text for text in texts]
        rows = await self._pool.run(
            lambda: np.asarray(list(self._model.embed(inputs, batch_size=BATCH)), np.float32),
            priority,
        )
        if rows.shape != (len(texts), self.dimension) or not np.isfinite(rows).all():
            raise PermanentError(
                f"{self.model} made vectors of shape {rows.shape[1:]}, or none; this index has "
                f"{self.dimension} dimensions.",
                code="ENGINE_WRONG_DIMENSION",
                remedy="Set ANABRANCH_EMBED__DIMENSION to the length of the model's vectors.",
            )
        return list(normalize_rows(rows))

    def close(self) -> None:
        self._pool.close()


class NamedReranker:
    """Cross-encoder in this process. Its scores are between 0 and 1, and replace the fused ones."""

    role: Literal["added", "replaces"] = "replaces"
    threshold = THRESHOLD

    def __init__(self, models_folder: Path, name: str, *, threads: int) -> None:
        self.name = name
        self._model, _, weights = _load("rerank", models_folder, name, threads, 0)
        self.fingerprint = fingerprint("named-rerank", *weights)

    def count_requests(self, passages_count: int) -> int:
        return 0

    async def rerank(
        self,
        question: str,
        query: QueryEmbedding | None,
        passages: Sequence[RerankPassage],
        weighting: TokenWeighting | None = None,
    ) -> list[RerankScore]:
        count_local_call("rerank", self.name)
        texts = [passage.text for passage in passages]
        logits = await asyncio.to_thread(
            lambda: list(self._model.rerank(question, texts, batch_size=BATCH))
        )
        scores = [1 / (1 + math.exp(-max(-50.0, min(50.0, float(logit))))) for logit in logits]
        return [RerankScore(score, score) for score in scores]
