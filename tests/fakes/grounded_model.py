"""Answer as a careful model would: quote the best context sentence, or refuse."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

_CONTEXT = re.compile(r"^\[(\d+)\] ", re.M)
_QUESTION = re.compile(r"^(?:question|pergunta)\s*:\s*(.+)$", re.I | re.M)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"\w+")
_STOPWORDS = frozenset(
    [
        "what",
        "when",
        "where",
        "which",
        "who",
        "how",
        "much",
        "many",
        "does",
        "the",
        "and",
        "for",
        "with",
        "from",
        "that",
        "this",
        "are",
        "was",
        "were",
        "qual",
        "quais",
        "quando",
        "onde",
        "quem",
        "como",
        "quanto",
        "para",
        "com",
        "que",
        "uma",
        "dos",
        "das",
        "por",
        "foi",
        "são",
        "está",
    ]
)


def answer_from_context(prompt: str) -> dict[str, Any]:
    """Return the answer step's shape: sufficient, sentences, assumptions, limitations."""
    contexts, question = parse_prompt(prompt)
    question_words = _stem_words(question)
    scored = [
        (len(question_words & _stem_words(text)), -number, text.strip())
        for number, body in contexts.items()
        for text in _SENTENCE.split(body)
    ]
    best = max(scored, default=(0, 0, ""))
    if not best[0]:
        return {
            "sufficient": False,
            "sentences": [],
            "assumptions": [],
            "limitations": ["The context does not say."],
        }
    return {
        "sufficient": True,
        "sentences": [{"text": best[2], "citations": [-best[1]]}],
        "assumptions": [],
        "limitations": [],
    }


def judge_from_quotes(prompt: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the judge step's shape: each sentence is compared with the words of its quotes."""
    request, _ = json.JSONDecoder().raw_decode(prompt)
    shares = [
        compute_word_overlap(sentence["text"], " ".join(sentence["quotes"]))
        for sentence in request["answer"]
    ]
    words = _stem_words(" ".join(sentence["text"] for sentence in request["answer"]))
    scores = {
        "citation_coverage": float(all(sentence["quotes"] for sentence in request["answer"])),
        "groundedness": min(shares, default=0.0),
        "relevance": compute_word_overlap(request["question"], " ".join(words)),
        "toxicity": float(not words & _stem_words("idiot stupid worthless")),
    }
    return {
        name: {"score": scores.get(name, 1.0), "evidence": f"compared {len(shares)} sentences"}
        for name in names
    }


def parse_prompt(prompt: str) -> tuple[dict[int, str], str]:
    """Numbered contexts and the question: the line that is marked so, else what stands before the
    first context, else after the last. A prompt of the answer step is one JSON object.
    """
    if prompt.startswith("{"):
        request, _ = json.JSONDecoder().raw_decode(
            prompt
        )  # a second try adds what was wrong with the first
        return {
            passage["n"]: f"{passage['title']} {passage['section']}: {passage['text']}"
            for passage in request["passages"]
        }, request["question"]
    marked = _QUESTION.search(prompt)
    body = prompt[: marked.start()] + prompt[marked.end() :] if marked else prompt
    pieces = _CONTEXT.split(body)
    contexts = {int(number): text for number, text in zip(pieces[1::2], pieces[2::2], strict=True)}
    return contexts, marked[1] if marked else pieces[0] or body


def compute_word_overlap(question: str, text: str) -> float:
    """Return the share of the question's words that the text contains."""
    question_words = _stem_words(question)
    return len(question_words & _stem_words(text)) / len(question_words) if question_words else 0.0


def _stem_words(text: str) -> set[str]:
    plain = unicodedata.normalize("NFKD", text).casefold()
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return {
        word[:6]
        for word in _WORD.findall(plain)
        if (len(word) > 2 or word.isdigit()) and word not in _STOPWORDS
    }


def build_minimal_value(schema: dict[str, Any]) -> Any:
    """Build the smallest value that satisfies a JSON Schema of structured output."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {
                name: build_minimal_value(schema["properties"][name])
                for name in schema.get("required", [])
            }
        case "array":
            return []
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return ""
