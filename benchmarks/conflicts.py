"""Count the answers that report a conflict, by kind of question.

    python -m benchmarks.conflicts [--answers SET…]

Questions of the own set (`benchmarks.refusal_set`) have one answer, so each conflict is a false
alarm. In sets of `--answers`, in the format of `anabranch eval answers`, kind `conflict` has two.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from anabranch.config.settings import Settings
from anabranch.eval.runner import CALLER, ingest_bulk, start_ephemeral_stack
from benchmarks.evidence_model import QuestionSet, load_answers_set, load_own_set
from benchmarks.harness import print_report, silence_logs
from schemas.questions import QueryRequest


async def count_conflicts(question_set: QuestionSet) -> dict[str, Any]:
    """Return, by kind, the numbers of questions, of answers, and of answers with a conflict."""
    questions = [question for question in question_set.questions if not question.hidden]
    asked, answered, conflicting = Counter[str](), Counter[str](), Counter[str]()
    async with start_ephemeral_stack(Settings()) as stack:
        await ingest_bulk(stack, question_set.documents)
        for question in questions:
            response = await stack.retriever.query(
                CALLER, QueryRequest(query=question.text), uuid4()
            )
            asked[question.kind] += 1
            answered[question.kind] += not response.refused
            conflicting[question.kind] += bool(response.conflicts)
    return {
        kind: {
            "questions": asked[kind],
            "answers": answered[kind],
            "conflicts": conflicting[kind],
        }
        for kind in asked
    }


async def main(sets: Sequence[QuestionSet]) -> None:
    print_report({one.name: await count_conflicts(one) for one in sets})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=Path, nargs="*", default=[])
    silence_logs()
    folders: list[Path] = parser.parse_args().answers
    asyncio.run(main([load_own_set(), *map(load_answers_set, folders)]))
