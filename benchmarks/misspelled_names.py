"""Count how often a misspelled name is read as the right entity, and a right one as another.

    python -m benchmarks.misspelled_names SET…

SET is a folder in the format of `eval retrieval`. Entities are the names that the rules of
extraction find in its documents. The longest name of a question that is one of them is misspelled
in its longest word: a letter is left out, doubled, replaced, or swapped with the next one.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import print_report
from engines.extract.rules import find_names, split_sentences
from engines.language import FastTextLanguageDetector
from retrieval.question.query_plan import QueryPlan, plan_query
from retrieval.question.stated_filters import fold_document_name
from retrieval.ranking.entity_aliases import (
    choose_similar_names,
    is_misspelled,
    list_correctable_names,
)
from schemas.channels import GraphProfile
from schemas.ports.search import EntityAlias

is_similar = partial(is_misspelled, edits=GraphProfile().fuzzy)


class Corpus:
    """Names and words of the documents of a set."""

    def __init__(self, texts: Iterable[str]) -> None:
        folded: list[str] = []
        self.keys: set[str] = set()
        self._by_prefix: dict[str, list[str]] = {}
        for text in texts:
            folded.append(fold_document_name(text))
            for start, end in split_sentences(text):
                self.keys.update(span.key for span in find_names(text[start:end]))
        for key in self.keys:
            self._by_prefix.setdefault(key[:3], []).append(key)
        self._text = f" {' | '.join(folded)} "
        self._languages = FastTextLanguageDetector()

    def plan(self, question: str) -> QueryPlan:
        return plan_query(question, None, self._languages)

    def read_names(self, question: str) -> list[str]:
        """Return the keys of the entities that names of the question are read as."""
        plan = self.plan(question)
        names = list_correctable_names(plan, [])
        found = [
            EntityAlias(name, name, key, "", key, f" {name} " in self._text)
            for name in names
            for key in self._by_prefix.get(name[:3], ())
            if is_similar(name, key)
        ]
        return [link.entity.entity_key for link in choose_similar_names(plan, names, found)]


def misspell(name: str, random_: random.Random) -> str:
    words = name.split()
    longest = max(range(len(words)), key=lambda place: len(words[place]))
    word = words[longest]
    place = random_.randrange(1, len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    words[longest] = random_.choice(
        [
            before + after,
            before + letter + letter + after,
            before + random_.choice("aeiourstn") + after,
            before + after[0] + letter + after[1:],
        ]
    )
    return " ".join(words)


def measure_set(folder: Path) -> dict[str, Any]:
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").open()]
    corpus = Corpus(f"{one.get('title') or ''}.\n{one['text']}" for one in documents)
    questions = [json.loads(line)["text"] for line in (folder / "queries.jsonl").open()]
    random_ = random.Random(7)
    counts = dict.fromkeys(("misspelled", "read_right", "read_wrong"), 0)
    for question in questions:
        names = {name: fold_document_name(name) for name in corpus.plan(question).written_names}
        known = [name for name, key in names.items() if key in corpus.keys and name.isascii()]
        name = max(known, key=len, default="")
        misspelled = misspell(name, random_) if max(map(len, name.split()), default=0) > 4 else name
        if misspelled == name or question.count(name) != 1:
            continue
        read = set(corpus.read_names(question.replace(name, misspelled)))
        counts["misspelled"] += 1
        counts["read_right"] += names[name] in read
        counts["read_wrong"] += bool(read - {names[name]})
    return {
        "documents": len(documents),
        "names": len(corpus.keys),
        "questions": len(questions),
        "changed_as_written": sum(bool(corpus.read_names(question)) for question in questions),
        **counts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET")
    folders = parser.parse_args().sets
    print_report({"sets": {folder.name: measure_set(folder) for folder in folders}})


if __name__ == "__main__":
    main()
