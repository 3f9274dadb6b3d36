from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from retrieval.ranking.token_weights import weigh_tokens

QUESTION = "What does the bearing cost in Lisbon?"
IDF = {"english": {"bear": 3.0, "cost": 1.0, "lisbon": 6.0}}


def make_spans(*texts: str) -> NDArray[np.int64]:
    starts = [QUESTION.index(text) for text in texts]
    return np.array(
        [(start, start + len(text)) for start, text in zip(starts, texts, strict=True)], np.int64
    )


def test_tokens_weigh_as_much_as_their_word() -> None:
    spans = make_spans("bear", "ing", "cost", "Lis", "bon")
    weights = weigh_tokens(QUESTION, spans, "en", IDF)
    assert weights is not None and weights.tolist() == [3.0, 3.0, 1.0, 6.0, 6.0]


def test_function_words_and_punctuation_have_no_weight() -> None:
    weights = weigh_tokens(QUESTION, make_spans("What", "the", "cost", "?"), "en", IDF)
    assert weights is not None and weights.tolist() == [0.0, 0.0, 1.0, 0.0]


def test_word_without_lexeme_weighs_the_mean_of_the_others() -> None:
    idf = {"english": {"bear": 3.0, "cost": 1.0}}
    weights = weigh_tokens(QUESTION, make_spans("cost", "Lis", "bon"), "en", idf)
    assert weights is not None and weights.tolist() == [1.0, 2.0, 2.0]


def test_first_configuration_decides() -> None:
    other = {"portuguese": {"bearing": 9.0, "cost": 9.0, "lisbon": 9.0}}
    weights = weigh_tokens(QUESTION, make_spans("cost"), "en", {**IDF, **other})
    assert weights is not None and weights.tolist() == [1.0]


@pytest.mark.parametrize(
    ("idf", "tokens"),
    [({}, ["cost"]), ({"english": {}}, ["cost"]), (IDF, ["What", "?"]), (IDF, [])],
)
def test_question_without_weighed_tokens_has_no_weights(
    idf: dict[str, dict[str, float]], tokens: list[str]
) -> None:
    spans = make_spans(*tokens).reshape(-1, 2)
    assert weigh_tokens(QUESTION, spans, "en", idf) is None
