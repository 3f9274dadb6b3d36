"""Learn the weights of evidence and confidence, and measure them on questions left out.

    python -m benchmarks.evidence_model [--answers SET…] [--retrieval SET…] [--write]

Always uses the own questions of `benchmarks.refusal_set`. Sets of `--answers` have the format of
`anabranch eval answers`, those of `--retrieval` that of `eval retrieval` with `answers` in
queries.jsonl; of their documents every second one is left out. `benchmarks/answers_set` stays out,
as the questions that nothing was learned from.

Unanswerable questions are made from answerable ones, as the corpus lets: by leaving out their
documents, and by changing a code or a name to one that no document has. All figures are by
six-fold cross-validation: no document is in the training data of a question about it. `--write`
stores the weights that all questions give in `retrieval/evidence_model.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.config.settings import Settings
from anabranch.eval.runner import (
    CALLER,
    BulkDocument,
    EphemeralStack,
    ingest_bulk,
    start_ephemeral_stack,
)
from benchmarks.harness import print_report, silence_logs
from benchmarks.refusal import compute_auc, compute_false_answers
from benchmarks.refusal_set import list_documents, load_questions
from evaluation.answers_eval import contains, normalize_text, read_answers_set
from evaluation.retrieval_eval import read_retrieval_set
from retrieval.answering.confidence import (
    SURE_PROBABILITY,
    compute_confidence_features,
    find_missing_terms,
    list_quoted_documents,
)
from retrieval.answering.evidence import Evidence, compute_selection_features
from retrieval.answering.extractive_answer import select_quotes
from retrieval.question.query_plan import QueryPlan
from retrieval.question.question_terms import find_question_terms
from retrieval.ranking.retrieval_result import RetrievalResult
from schemas.questions import Filters, QueryRequest

FloatArray = NDArray[np.float64]

FOLDS = 6
SEED = 3
SELECTION_PENALTY, CONFIDENCE_PENALTY = 0.05, 0.01
# The label of an answerable question with the wrong quotes; right ones have 1, unanswerable ones 0.
# With 0, paraphrases are refused; with 1, the estimate does not tell right quotes from wrong ones.
WRONG_QUOTES_LABEL = 0.25
REFUSE_BELOW, MEDIUM_FROM, HIGH_FROM = 0.092, 0.4, 0.7
FOREIGN_NAMES = ("Corvina", "Halberd", "Ostrava", "Pellinor", "Tamsin", "Wexcombe", "Quarrel")


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question with the texts of which one per group answers it; none if it is unanswerable.

    `source` is the document that it was written for, by which the folds are made. `hidden` are
    documents to leave out, and `languages` those of the documents to search, all if empty.
    """

    text: str
    source: str
    kind: str
    groups: tuple[tuple[str, ...], ...] = ()
    hidden: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()

    @property
    def is_answerable(self) -> bool:
        return bool(self.groups)


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """`weight` is that of each of its questions in the training of confidence."""

    name: str
    documents: Sequence[BulkDocument]
    questions: Sequence[LabelledQuestion]
    weight: float


@dataclass(slots=True)
class Sample:
    """A question with its evidence, and the features of each candidate by name.

    Its scores are first those of the shipped model, then of one that has not seen the source.
    """

    set_name: str
    weight: float
    question: LabelledQuestion
    plan: QueryPlan
    retrieval: RetrievalResult
    evidence: Evidence
    features: Mapping[str, FloatArray]
    holds_answer: NDArray[np.bool_]

    @property
    def selection(self) -> FloatArray:
        return np.stack(list(self.features.values()), axis=1)


def load_own_set() -> QuestionSet:
    questions = []
    for question in load_questions():
        groups = (question.expected_quotes,) if question.is_answerable else ()
        kind = "answerable" if question.is_answerable else "near miss"
        labelled = LabelledQuestion(question.text, question.document, kind, groups)
        questions.append(labelled)
        if question.language != question.document_language:
            languages = (question.document_language,)
            questions.append(replace(labelled, kind=f"foreign {kind}", languages=languages))
    documents = [
        BulkDocument(path.name, None, path.read_bytes(), path.name) for path in list_documents()
    ]
    return QuestionSet("own", documents, [*questions, *_hide_sources(questions)], 0.35)


def load_answers_set(folder: Path) -> QuestionSet:
    set_files, read_questions = read_answers_set(folder)
    questions = [
        LabelledQuestion(
            question.question,
            question.documents[0] if question.documents else "",
            question.kind,
            tuple(map(tuple, question.groups)) if question.answerable else (),
            tuple(question.documents),
        )
        for question in read_questions
    ]
    documents = [
        BulkDocument(file.external_id, None, file.path.read_bytes(), file.path.name)
        for file in set_files
    ]
    hidden = [
        replace(question, kind="hidden", groups=())
        for question in questions
        if question.is_answerable
    ]
    shown = [replace(question, hidden=()) for question in questions]
    return QuestionSet(folder.name, documents, [*shown, *hidden, *alter_terms(shown)], 1.0)


def load_retrieval_set(folder: Path) -> QuestionSet:
    retrieval_set = read_retrieval_set(folder)
    documents = retrieval_set.documents[::2]
    ids = {document.id for document in documents}
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    answers = {entry["id"]: entry["answers"] for entry in map(json.loads, lines)}
    questions = []
    for query in retrieval_set.queries[::3]:
        relevant = sorted(retrieval_set.relevant.get(query.id, ()))
        if relevant:
            groups = (tuple(answers[query.id]),) if ids.intersection(relevant) else ()
            questions.append(LabelledQuestion(query.text, relevant[0], "all", groups))
    return QuestionSet(
        folder.name,
        [BulkDocument(document.id, document.title, document.text) for document in documents],
        questions,
        0.15,
    )


def _hide_sources(questions: Sequence[LabelledQuestion]) -> list[LabelledQuestion]:
    return [
        replace(
            question,
            kind="foreign hidden" if question.languages else "hidden",
            groups=(),
            hidden=(question.source,),
        )
        for question in questions
        if question.is_answerable
    ]


def alter_terms(questions: Sequence[LabelledQuestion]) -> list[LabelledQuestion]:
    """Change a code, else a name, of each answerable question that has one."""
    generator = random.Random(SEED)
    altered = []
    for question in questions:
        terms = find_question_terms(question.text, None)
        if not question.is_answerable or not (terms.codes or terms.names):
            continue
        if terms.codes:
            term = generator.choice(terms.codes)
            new_term = re.sub(r"\d", lambda _: str(generator.randint(1, 9)), term)
        else:
            term, new_term = generator.choice(terms.names), generator.choice(FOREIGN_NAMES)
        if new_term != term:
            text = question.text.replace(term, new_term)
            altered.append(replace(question, text=text, kind="altered", groups=()))
    return altered


async def collect_samples(question_set: QuestionSet) -> list[Sample]:
    """Ingest the documents, and weigh the evidence of every question."""
    ids = [document.id for document in question_set.documents]
    async with start_ephemeral_stack(Settings()) as stack:
        await ingest_bulk(stack, question_set.documents)
        samples = [
            await _weigh_question(stack, question_set, ids, question)
            for question in question_set.questions
        ]
    return [sample for sample in samples if sample is not None]


async def _weigh_question(
    stack: EphemeralStack, question_set: QuestionSet, ids: Sequence[str], question: LabelledQuestion
) -> Sample | None:
    filters = Filters(
        languages=list(question.languages),
        external_ids=[document for document in ids if document not in question.hidden]
        if question.hidden
        else [],
    )
    plan, retrieval, evidence = await stack.retriever.weigh_evidence(
        CALLER, QueryRequest(query=question.text, filters=filters)
    )
    if evidence.similarities is None:
        return None
    features = compute_selection_features(evidence.candidates, plan, evidence.similarities)
    texts = [normalize_text(f"{item.text}\n{item.readable_text}") for item in evidence.candidates]
    holds_answer = np.array(
        [
            [any(contains(text, gold) for gold in group) for group in question.groups]
            for text in texts
        ]
    )
    return Sample(
        question_set.name,
        question_set.weight,
        question,
        plan,
        retrieval,
        evidence,
        features,
        holds_answer,
    )


def fit_selection(samples: Sequence[Sample]) -> FloatArray:
    """Maximize the log-probability (softmax over the candidates) of those that hold the answer."""
    useful = [
        sample
        for sample in samples
        if sample.question.is_answerable and sample.holds_answer.any(axis=1).sum() > 0
    ]
    deviations = np.concatenate([sample.selection for sample in useful]).std(axis=0) + 1e-9
    weights = np.zeros(len(deviations))
    first_moment, second_moment = np.zeros_like(weights), np.zeros_like(weights)
    # Adam (Kingma and Ba 2015); the problem is small, and nearly convex.
    for step in range(1, 401):
        gradient = -2 * SELECTION_PENALTY * weights
        for sample in useful:
            features = sample.selection / deviations
            probabilities = _softmax(features @ weights)
            is_held = sample.holds_answer.any(axis=1)
            wanted = np.where(is_held, probabilities, 0.0) / probabilities[is_held].sum()
            gradient += (wanted - probabilities) @ features / len(useful)
        first_moment = 0.9 * first_moment + 0.1 * gradient
        second_moment = 0.99 * second_moment + 0.01 * gradient**2
        weights += (
            0.05
            * (first_moment / (1 - 0.9**step))
            / (np.sqrt(second_moment / (1 - 0.99**step)) + 1e-8)
        )
    return np.asarray(weights / deviations)


def _softmax(scores: FloatArray) -> FloatArray:
    exponentials = np.exp(scores - scores.max())
    return np.asarray(exponentials / exponentials.sum())


def fit_confidence(
    features: FloatArray, labels: FloatArray, weights: FloatArray
) -> tuple[FloatArray, float]:
    """Fit a logistic regression with an L2 penalty by Newton's method; return raw weights and the
    intercept.
    """
    means, deviations = features.mean(axis=0), features.std(axis=0) + 1e-9
    rows = np.column_stack([(features - means) / deviations, np.ones(len(features))])
    penalty = 2 * np.append(np.full(features.shape[1], CONFIDENCE_PENALTY), 0.0)
    shares = weights / weights.sum()
    coefficients = np.zeros(rows.shape[1])
    for _ in range(30):
        probabilities = 1 / (1 + np.exp(-rows @ coefficients))
        gradient = rows.T @ (shares * (probabilities - labels)) + penalty * coefficients
        curvature = shares * probabilities * (1 - probabilities)
        hessian = (rows * curvature[:, None]).T @ rows + np.diag(penalty + 1e-9)
        coefficients -= np.linalg.solve(hessian, gradient)
    raw = coefficients[:-1] / deviations
    return raw, float(coefficients[-1] - raw @ means)


def set_scores(sample: Sample, scores: FloatArray) -> None:
    sample.evidence = replace(sample.evidence, scores=tuple(scores.tolist()))


def describe(sample: Sample) -> dict[str, float]:
    """Return the features of confidence, at the scores of the sample."""
    evidence = sample.evidence
    assert evidence.similarities is not None and evidence.scores is not None
    return compute_confidence_features(
        evidence,
        evidence.similarities,
        evidence.scores,
        list_quoted_documents(evidence.candidates, evidence.scores, sample.retrieval.contexts),
        sample.plan,
    )


def lacks_terms(sample: Sample, probability: float, *, is_foreign: bool) -> bool:
    """Tell whether the question is refused for a code, name or phrase."""
    evidence = sample.evidence
    assert evidence.scores is not None
    documents = list_quoted_documents(
        evidence.candidates, evidence.scores, sample.retrieval.contexts
    )
    with_names = probability < SURE_PROBABILITY and not is_foreign
    return bool(find_missing_terms(documents, sample.plan, with_names=with_names))


def is_right(sample: Sample) -> bool:
    """Tell whether the quotes hold all that the question wants."""
    quotes = [quote for _, quote in select_quotes(sample.evidence, sample.plan)]
    text = normalize_text("\n".join(f"{quote.text}\n{quote.readable_text}" for quote in quotes))
    return sample.question.is_answerable and all(
        any(contains(text, gold) for gold in group) for group in sample.question.groups
    )


def assign_folds(samples: Sequence[Sample]) -> list[int]:
    """Return a fold for each sample, the same for all that were written for one document."""
    sources = sorted({(sample.set_name, sample.question.source) for sample in samples})
    random.Random(SEED).shuffle(sources)
    fold_by_source = {source: index % FOLDS for index, source in enumerate(sources)}
    return [fold_by_source[sample.set_name, sample.question.source] for sample in samples]


def learn(samples: Sequence[Sample]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the model that all samples give, and the cross-validated figures by set."""
    folds = np.array(assign_folds(samples))
    for fold in range(FOLDS):
        weights = fit_selection([s for s, n in zip(samples, folds, strict=True) if n != fold])
        for sample, n in zip(samples, folds, strict=True):
            if n == fold:
                set_scores(sample, sample.selection @ weights)
    described = [describe(sample) for sample in samples]
    names = list(described[0])
    features = np.array([[row[name] for name in names] for row in described])
    right = np.array([is_right(sample) for sample in samples])
    answerable = np.array([sample.question.is_answerable for sample in samples])
    labels = np.where(right, 1.0, np.where(answerable, WRONG_QUOTES_LABEL, 0.0))
    sample_weights = np.array([weigh_sample(sample) for sample in samples])
    probabilities = np.zeros(len(samples))
    for fold in range(FOLDS):
        is_training = folds != fold
        raw, intercept = fit_confidence(
            features[is_training], labels[is_training], sample_weights[is_training]
        )
        rest = ~is_training
        probabilities[rest] = 1 / (1 + np.exp(-(features[rest] @ raw + intercept)))
    refused = (probabilities < REFUSE_BELOW) | np.array(
        [
            lacks_terms(sample, probability, is_foreign=row["is_foreign"] > 0)
            for sample, row, probability in zip(samples, described, probabilities, strict=True)
        ]
    )
    raw, intercept = fit_confidence(features, labels, sample_weights)
    model = {
        "selection": _round(samples[0].features, fit_selection(samples)),
        "confidence": _round(names, raw),
        "intercept": round(intercept, 4),
        "refuse_below": REFUSE_BELOW,
        "medium_from": MEDIUM_FROM,
        "high_from": HIGH_FROM,
    }
    return model, _measure(samples, probabilities, right, refused)


def weigh_sample(sample: Sample) -> float:
    """Return the weight in the training of confidence: half for questions of which there are many
    more than people ask, as those made from others and those about another language's documents.
    """
    question = sample.question
    is_common = question.kind not in ("hidden", "altered") and not question.languages
    return sample.weight * (1.0 if is_common else 0.5)


def _round(names: Iterable[str], weights: FloatArray) -> dict[str, float]:
    return {name: round(float(weight), 4) for name, weight in zip(names, weights, strict=True)}


def _measure(
    samples: Sequence[Sample],
    probabilities: FloatArray,
    right: NDArray[np.bool_],
    refused: NDArray[np.bool_],
) -> dict[str, Any]:
    answerable = np.array([sample.question.is_answerable for sample in samples])
    # Refused questions come last, whatever their probability.
    scores = probabilities - refused
    groups: dict[str, Callable[[Sample], str]] = {
        "sets": lambda sample: sample.set_name,
        "kinds": lambda sample: f"{sample.set_name}: {sample.question.kind}",
    }
    figures: dict[str, Any] = {}
    for group, get_name in groups.items():
        labels = np.array([get_name(sample) for sample in samples])
        figures[group] = {}
        for label in dict.fromkeys(labels.tolist()):
            chosen = labels == label
            able, unable = chosen & answerable, chosen & ~answerable
            given = chosen & ~refused
            figures[group][label] = {
                "answerable": int(able.sum()),
                "unanswerable": int(unable.sum()),
                "right": _share(right & ~refused, able),
                "false_refusals": _share(refused, able),
                "refused": _share(refused, unable),
                "high_right": _share(right, given & (probabilities >= HIGH_FROM)),
                "low_right": _share(right, given & (probabilities < MEDIUM_FROM)),
                "auc_answerable": compute_auc(scores[able].tolist(), scores[unable].tolist()),
                "false_answers_at_5_percent": compute_false_answers(
                    scores[able].tolist(), scores[unable].tolist()
                ),
                "auc_right": compute_auc(
                    probabilities[given & right].tolist(), probabilities[given & ~right].tolist()
                ),
            }
    return figures


def _share(values: NDArray[np.bool_], chosen: NDArray[np.bool_]) -> float | None:
    return round(float(values[chosen].mean()), 3) if chosen.any() else None


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=Path, nargs="*", default=[])
    parser.add_argument("--retrieval", type=Path, nargs="*", default=[])
    parser.add_argument("--write", action="store_true", help="Store the weights.")
    arguments = parser.parse_args()
    silence_logs()
    sets = [
        load_own_set(),
        *map(load_answers_set, arguments.answers),
        *map(load_retrieval_set, arguments.retrieval),
    ]
    samples = [sample for one in sets for sample in await collect_samples(one)]
    model, figures = learn(samples)
    print_report({"benchmark": "evidence_model", "model": model, **figures})
    if arguments.write:
        target = Path(str(files("retrieval") / "evidence_model.json"))
        target.write_text(json.dumps(model, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
