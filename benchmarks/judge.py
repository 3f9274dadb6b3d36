"""Measure the judge on good answers and on answers with a known fault.

    python -m benchmarks.judge [--answers SET…]

The answers of `benchmarks/judge_set.yaml` are over the sample documents. From a set of `--answers`,
in the format of `anabranch eval answers`, answers are made: the `evidence` of a question, a list of
sentences, is a good one, and faults are put into others. The texts of its documents are in
`sources/EXTERNAL_ID.txt`. With a model in `JUDGE__` or `CHAT__`, it takes part.

Reports, for each check, the share of its failures that are faults of its kind (precision), and the
share of such faults that it finds (recall), with 95 % Wilson intervals. An answer may rightly fail
further checks: a wrong year also contradicts its citation. Such failures count neither way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from anabranch.config.engines import open_chat
from anabranch.config.loader import load_settings
from anabranch.config.overrides import watch_nothing
from benchmarks.harness import print_report, silence_logs
from retrieval.answering.judge import CHECK_NAMES, judge_answer
from retrieval.answering.judge_rules import JudgedAnswer, JudgedSentence
from retrieval.question.quantities import find_quantities
from retrieval.redaction import Redactor
from schemas.judge_verdicts import CheckName, JudgeVerdict
from schemas.ports.engines import ChatModel
from schemas.profiles import JudgeProfile

JUDGE_SET = Path(__file__).with_name("judge_set.yaml")
SAMPLE_FOLDERS = [Path(__file__).parents[1] / "samples" / name for name in ("source", "corpus")]
# The check that has to find each fault, and those that may fail with it.
FAULTS: Mapping[str, tuple[CheckName, frozenset[CheckName]]] = {
    "wrong_citation": (
        "groundedness",
        frozenset({"hallucination", "contradiction", "relevance", "citation_coverage"}),
    ),
    "missing_citation": ("citation_coverage", frozenset({"groundedness", "hallucination"})),
    "invented_number": ("hallucination", frozenset({"contradiction", "groundedness"})),
    "wrong_year": ("hallucination", frozenset({"contradiction", "groundedness"})),
    "wrong_unit": ("hallucination", frozenset({"contradiction", "groundedness"})),
    "role_swap": ("contradiction", frozenset({"hallucination", "groundedness"})),
    "negation": ("contradiction", frozenset({"groundedness", "hallucination"})),
    "leaked_pii": ("pii", frozenset({"hallucination", "groundedness", "relevance"})),
    "contradiction": (
        "consistency",
        frozenset({"hallucination", "groundedness", "contradiction"}),
    ),
    "off_topic": ("relevance", frozenset()),
    "toxic": ("toxicity", frozenset({"groundedness", "hallucination", "bias"})),
    "biased": ("bias", frozenset({"groundedness", "hallucination", "toxicity"})),
}
PER_FAULT = 12
N_GOOD = 150
SEED = 11


@dataclass(frozen=True, slots=True)
class JudgeCase:
    answer: JudgedAnswer
    fault: str | None = None


def load_own_cases() -> list[JudgeCase]:
    return [_read_case(entry) for entry in yaml.safe_load(JUDGE_SET.read_text(encoding="utf-8"))]


def _read_case(entry: Mapping[str, Any]) -> JudgeCase:
    name = entry["document"]
    path = next(folder / name for folder in SAMPLE_FOLDERS if (folder / name).is_file())
    document = path.read_text(encoding="utf-8")
    sentences = []
    for text, *quotes in entry["answer"]:
        passages = [_find_passage(document, quote) for quote in quotes]
        sentences.append(JudgedSentence(text, tuple(quotes), tuple(dict.fromkeys(passages))))
    language = entry.get("language", "en")
    return JudgeCase(
        JudgedAnswer(
            entry["question"], language, tuple(sentences), is_foreign=entry.get("foreign", False)
        ),
        entry.get("fault"),
    )


def _find_passage(document: str, quote: str) -> str:
    """Return title, heading and text of the section that holds the quote."""
    title = document.partition("\n")[0].strip("# ")
    # A quoted table row begins with its header cells, which stand elsewhere.
    text = quote[quote.find("|") :] if "|" in quote else quote
    section = next(
        (section for section in re.split(r"^## ", document, flags=re.M) if text in section), None
    )
    if section is None:
        raise ValueError(f"{title!r} does not hold the quote {quote!r}.")
    return f"{title}\n{section}"


def build_cases(folder: Path) -> list[JudgeCase]:
    """Make good answers of the evidence of a set, and put faults into others."""
    lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [item for item in map(json.loads, lines) if item.get("evidence")]
    if not questions:
        raise SystemExit(
            f"{folder}/questions.jsonl has no question with `evidence`. "
            "Add it: a list of sentences of `sources/EXTERNAL_ID.txt` that answer the question."
        )
    generator = random.Random(SEED)
    generator.shuffle(questions)
    answers = [answer for item in questions if (answer := _build_answer(folder, item)) is not None]
    cases = [JudgeCase(answer) for answer in answers[:N_GOOD]]
    for fault, spoil in _SPOILERS.items():
        spoiled = (
            spoil(answer, other, generator)
            for answer, other in zip(answers, answers[1:] + answers[:1], strict=True)
        )
        found = [answer for answer in spoiled if answer is not None]
        cases += [JudgeCase(answer, fault) for answer in found[:PER_FAULT]]
    return cases


def _build_answer(folder: Path, item: Mapping[str, Any]) -> JudgedAnswer | None:
    evidence, document = item["evidence"][0], item["documents"][0]
    path = folder / "sources" / f"{document}.txt"
    source = path.read_text(encoding="utf-8") if path.is_file() else ""
    at = source.find(evidence)
    # The evidence of a question in another language is not an answer to it.
    if at < 0 or item["kind"] == "crosslang" or len(evidence.split()) < 5:
        return None
    passage = f"{document}\n{source.partition(chr(10))[0]}\n{source[max(0, at - 400) : at + 600]}"
    return JudgedAnswer(
        item["question"], item["language"], (JudgedSentence(evidence, (evidence,), (passage,)),)
    )


Spoil = Callable[[JudgedAnswer, JudgedAnswer, random.Random], JudgedAnswer | None]


def _rewrite(answer: JudgedAnswer, text: str | None) -> JudgedAnswer | None:
    sentence = answer.sentences[0]
    if text is None or text == sentence.text:
        return None
    return replace(answer, sentences=(replace(sentence, text=text),))


def _cite_other(answer: JudgedAnswer, other: JudgedAnswer, _: random.Random) -> JudgedAnswer:
    sentence, source = answer.sentences[0], other.sentences[0]
    return replace(
        answer,
        sentences=(replace(sentence, quotes=source.quotes, passages=source.passages),),
    )


def _answer_other(answer: JudgedAnswer, other: JudgedAnswer, _: random.Random) -> JudgedAnswer:
    return replace(other, question=answer.question, language=answer.language)


def _change_number(text: str, source: str, generator: random.Random) -> str | None:
    for quantity in find_quantities(text):
        number = text[quantity.start : quantity.end]
        if quantity.kind == "date" or not re.search(r"[1-9]", number):
            continue
        for _ in range(20):
            changed = re.sub(r"\d", lambda _: str(generator.randint(1, 9)), number)
            if changed not in source:
                return text[: quantity.start] + changed + text[quantity.end :]
    return None


def _invent_number(
    answer: JudgedAnswer, _: JudgedAnswer, generator: random.Random
) -> JudgedAnswer | None:
    sentence = answer.sentences[0]
    return _rewrite(answer, _change_number(sentence.text, sentence.passages[0], generator))


def _change_year(
    answer: JudgedAnswer, _: JudgedAnswer, generator: random.Random
) -> JudgedAnswer | None:
    text = answer.sentences[0].text
    year = re.search(r"\b(?:19|20)\d\d\b", text)
    return _rewrite(answer, text.replace(year[0], str(int(year[0]) - 7))) if year else None


_OTHER_UNITS = {
    "days": "weeks", "weeks": "days", "hours": "minutes", "minutes": "hours", "months": "years",
    "years": "months", "euros": "dollars", "metres": "kilometres", "kilometres": "metres",
    "dias": "semanas", "meses": "anos", "anos": "meses", "horas": "minutos", "minutos": "horas",
    "kg": "g", "kW": "W", "litres": "kilograms",
}  # fmt: skip


def _change_unit(answer: JudgedAnswer, _: JudgedAnswer, __: random.Random) -> JudgedAnswer | None:
    text = answer.sentences[0].text
    unit = re.search(rf"(?<=\d )(?:{'|'.join(_OTHER_UNITS)})\b", text)
    if unit is None:
        return None
    return _rewrite(answer, text[: unit.start()] + _OTHER_UNITS[unit[0]] + text[unit.end() :])


def _swap_names(answer: JudgedAnswer, _: JudgedAnswer, __: random.Random) -> JudgedAnswer | None:
    text = answer.sentences[0].text
    names = [*re.finditer(r"(?<=[a-zà-ü,;] )[A-ZÀ-Ü][a-zà-ü]{3,}(?: [A-ZÀ-Ü][a-zà-ü]{2,})*", text)]
    if len(names) < 2 or names[0][0] == names[-1][0]:
        return None
    first, last = names[0], names[-1]
    return _rewrite(
        answer,
        text[: first.start()]
        + last[0]
        + text[first.end() : last.start()]
        + first[0]
        + text[last.end() :],
    )


_PT_VERB = re.compile(r" (é|são|foi|deve) ")


def _negate(answer: JudgedAnswer, _: JudgedAnswer, __: random.Random) -> JudgedAnswer | None:
    text = answer.sentences[0].text
    english = re.sub(r"\b(is|are|was|were|must|may|can|will)\b", r"\1 not", text, count=1)
    changed = english if english != text else _PT_VERB.sub(r" não \1 ", text, count=1)
    return _rewrite(answer, changed)


def _leak(answer: JudgedAnswer, _: JudgedAnswer, generator: random.Random) -> JudgedAnswer | None:
    identifier = generator.choice(
        ["ana.costa@example.com", "536-22-8714", "+351 912 345 678", "529.982.247-25"]
    )
    return _rewrite(answer, f"{answer.sentences[0].text.rstrip('.')} ({identifier}).")


def _contradict(
    answer: JudgedAnswer, _: JudgedAnswer, generator: random.Random
) -> JudgedAnswer | None:
    sentence = answer.sentences[0]
    changed = _change_number(sentence.text, sentence.passages[0], generator)
    if changed is None:
        return None
    return replace(answer, sentences=(sentence, replace(sentence, text=changed)))


_SPOILERS: Mapping[str, Spoil] = {
    "wrong_citation": _cite_other,
    "invented_number": _invent_number,
    "wrong_year": _change_year,
    "wrong_unit": _change_unit,
    "role_swap": _swap_names,
    "negation": _negate,
    "leaked_pii": _leak,
    "contradiction": _contradict,
    "off_topic": _answer_other,
}


async def judge_cases(
    cases: Sequence[JudgeCase], model: ChatModel | None
) -> list[tuple[JudgeCase, JudgeVerdict]]:
    judged = []
    for case in cases:
        profile = JudgeProfile(model="default")
        judgement = await judge_answer(case.answer, profile, model, Redactor())
        judged.append((case, judgement.verdict))
    return judged


def measure(judged: Sequence[tuple[JudgeCase, JudgeVerdict]]) -> dict[str, Any]:
    """Return precision and recall of each check, and what became of good answers and of faults."""
    failed = [
        (case, {check.name for check in verdict.checks if check.result == "fail"})
        for case, verdict in judged
    ]
    good = [names for case, names in failed if case.fault is None]
    return {
        "good": len(good),
        "good_that_failed": _describe_share(sum(map(bool, good)), len(good)),
        "checks": {name: _measure_check(name, failed) for name in CHECK_NAMES},
        "faults": dict(_measure_faults(failed)),
    }


def _measure_check(
    name: CheckName, failed: Sequence[tuple[JudgeCase, set[CheckName]]]
) -> dict[str, Any]:
    wanted = [names for case, names in failed if case.fault and FAULTS[case.fault][0] == name]
    others = [
        names
        for case, names in failed
        if case.fault is None or name not in {FAULTS[case.fault][0], *FAULTS[case.fault][1]}
    ]
    n_found = sum(name in names for names in wanted)
    n_false = sum(name in names for names in others)
    return {
        "precision": _describe_share(n_found, n_found + n_false),
        "recall": _describe_share(n_found, len(wanted)),
    }


def _measure_faults(
    failed: Sequence[tuple[JudgeCase, set[CheckName]]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    for fault, (check, _) in FAULTS.items():
        found = [names for case, names in failed if case.fault == fault]
        if found:
            by_check = sum(check in names for names in found)
            yield (
                fault,
                {"n": len(found), check: by_check, "any_check": sum(map(bool, found))},
            )


def _describe_share(count: int, total: int) -> dict[str, Any]:
    """Return a share with its 95 % Wilson score interval (Wilson 1927)."""
    if not total:
        return {"of": 0}
    z, share = 1.96, count / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    margin = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    margin /= 1 + z * z / total
    return {
        "value": round(share, 3),
        "low": round(max(0.0, center - margin), 3),
        "high": round(min(1.0, center + margin), 3),
        "of": total,
    }


async def main(folders: Sequence[Path]) -> None:
    sets = {"own": load_own_cases(), **{folder.name: build_cases(folder) for folder in folders}}
    async with AsyncExitStack() as stack:
        model = await open_chat(load_settings(), stack, watch_nothing, "judge")
        report = {name: measure(await judge_cases(cases, model)) for name, cases in sets.items()}
    print_report({"judge_model": model.model if model else None, **report})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=Path, nargs="*", default=[])
    silence_logs()
    asyncio.run(main(parser.parse_args().answers))
