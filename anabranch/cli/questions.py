"""`anabranch questions`."""

from __future__ import annotations

from typing import Any

from anabranch.cli.api_calls import get, post
from anabranch.cli.names import QUESTIONS, QuestionName, call_by_name, get_by_name, post_by_name
from anabranch.cli.options import (
    FIRST_PAGE,
    JUDGEMENT_STAGES,
    REMOTE,
    PageOptions,
    RemoteOptions,
    make_group,
)
from anabranch.cli.output import to_single_line
from anabranch.cli.query import join_question

app = make_group("questions")


@app.command
def add(
    *text: str,
    hook: str | None = None,
    profile: str | None = None,
    collection: tuple[str, ...] = (),
    common: RemoteOptions = REMOTE,
) -> int:
    """Save a question, to be asked again when a document could change its answer.

    Args:
        text: The question, quoted or as several words.
        hook: Address that receives a signed POST for each changed answer.
        profile: Workflow profile.
        collection: Only documents of this collection. Repeatable.
    """
    body = {
        "query": join_question(text),
        "hook_url": hook,
        "profile": profile,
        "filters": {"collections": list(collection)},
    }
    saved = post("/v1/questions", body, common, stages=JUDGEMENT_STAGES)
    secret = saved["hook_secret"]
    if secret and not common.is_json:
        common.print_note(f"secret of the web hook, shown once: {secret}")
    return common.show(saved, lambda: print(f"saved: {saved['question_id']}"))


@app.command(name="list")
def list_questions(*, page: PageOptions = FIRST_PAGE, common: RemoteOptions = REMOTE) -> int:
    """List saved questions, the newest first."""
    return common.show_page(
        get("/v1/questions", common, **page.to_query()),
        "question_id",
        ("question", lambda item: item["request"]["query"]),
        *("answered_at", "changed_at", "is_due"),
        ("problem", lambda item: (item["problem"] or {}).get("code")),
        optional=("is_due", "answered_at", "problem", "changed_at"),
    )


@app.command
def changes(question: QuestionName, /, *, common: RemoteOptions = REMOTE) -> int:
    """List the changes of an answer, the newest first. `anabranch runs diff` compares the two
    runs of one.
    """
    return _show_changes(get_by_name(QUESTIONS, question, "/changes", common), common)


def _show_changes(found: dict[str, Any], common: RemoteOptions) -> int:
    return common.show_page(
        found,
        *(
            (name, lambda item, name=name: _format(item["change"][name]))
            for name in ("changed_at", "changes", "causes", "previous_run_id", "run_id")
        ),
        "delivery",
        ("error", lambda item: item["delivery_error"]),
        optional=("causes", "changed_at", "delivery"),
    )


@app.command
def redeliver(question: QuestionName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Deliver the changes again whose web hook failed."""
    found = post_by_name(QUESTIONS, question, "/redeliver", {}, common, stages=JUDGEMENT_STAGES)
    return _show_changes(found, common)


@app.command
def delete(question: QuestionName, /, *, common: RemoteOptions = REMOTE) -> int:
    """Delete a saved question."""
    deleted = call_by_name(
        QUESTIONS,
        question,
        common,
        lambda client, found_id: client.call("DELETE", f"/v1/questions/{found_id}"),
        stages=JUDGEMENT_STAGES,
    )
    text = to_single_line(deleted["request"]["query"])
    return common.show(deleted, lambda: print(f"deleted: {text}"))


def _format(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
