"""Tokenizer of multilingual-e5-small: a Unigram model (Kudo 2018) over the file's pieces."""

from __future__ import annotations

import re

from tokenizers import Tokenizer, models, pre_tokenizers

from engines.embed.e5_file import ModelVocabulary

MAX_TOKENS = 512
MAX_USEFUL_CHARACTERS = 20_000
"""Longer texts are cut before tokenizing: in practice later characters cannot be among the first
510 tokens."""
_SPACES = re.compile(" {2,}")


class E5Tokenizer:
    def __init__(self, vocabulary: ModelVocabulary) -> None:
        model = models.Unigram(
            list(zip(vocabulary.pieces, vocabulary.scores.tolist(), strict=True)),
            vocabulary.unk,
            False,
        )
        self._tokenizer = Tokenizer(model)
        self._tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement="▁", prepend_scheme="always", split=False
        )
        self.vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        """Return at most 512 token ids, including the special tokens."""
        return [self.vocabulary.bos, *self.tokenize(text)[: MAX_TOKENS - 2], self.vocabulary.eos]

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids without special tokens and without limit."""
        normalized = text[:MAX_USEFUL_CHARACTERS].translate(self.vocabulary.normalization)
        ids: list[int] = self._tokenizer.encode(
            _SPACES.sub(" ", normalized), add_special_tokens=False
        ).ids
        return ids
