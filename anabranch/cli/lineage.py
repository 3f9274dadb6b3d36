"""`anabranch lineage`: where an answer, or a document, came from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Annotated, Any
from uuid import UUID

from cyclopts import Parameter

from anabranch.cli.exits import FAILED, OK
from anabranch.cli.options import Remote
from anabranch.cli.output import one_line, say
from schemas.errors import InvalidRequest

Flag = Parameter(negative="")
MARKS = {True: "ok  ", False: "FAIL", None: " -  "}


def lineage(run: str, /, *, citation: int | None = None, prov: Annotated[bool, Flag] = False, common: Remote = Remote()) -> int:  # noqa: B008
    """Walk an answer's citations back to the uploaded bytes. Exits 1 where something does not fit.

    Parameters
    ----------
    run
        Its id, with `#2` for the second sentence of the answer only.
    citation
        Only of the citation with this number.
    prov
        As PROV-JSON of the W3C.
    """
    identity, sentence = run_and_sentence(run)
    path = f"/v1/runs/{identity}/lineage"
    found = asyncio.run(_get(path, common, sentence=sentence, citation=citation, format="prov" if prov else None))
    return report(found, prov, common, _told_of_run)


def document_lineage(document: UUID, /, *, prov: Annotated[bool, Flag] = False, common: Remote = Remote()) -> int:  # noqa: B008
    """Every event that a document came by, from its bytes on, verified. Exits 1 where something does not fit.

    Parameters
    ----------
    document
        Its id.
    prov
        As PROV-JSON of the W3C.
    """
    found = asyncio.run(_get(f"/v1/documents/{document}/lineage", common, format="prov" if prov else None))
    return report(found, prov, common, _told_of_document)


def run_and_sentence(text: str) -> tuple[UUID, int | None]:
    """`RUN` or `RUN#2`. Raises InvalidRequest."""
    identity, mark, number = text.partition("#")
    try:
        return UUID(identity), int(number) if mark else None
    except ValueError:
        raise InvalidRequest(f"{text!r} is no run", remedy="Give its id, or its id and a sentence: RUN#2. `anabranch runs list` shows the ids.") from None


def report(found: dict[str, Any], prov: bool, common: Remote, tell: Any) -> int:
    if prov:
        print(json.dumps(found, ensure_ascii=False, indent=1))
        return FAILED if any(entity.get("anabranch:verified") == "false" for entity in found["entity"].values()) else OK
    if common.json:
        common.show(found)
    else:
        for line in tell(found):
            print(line)
    for fault in found["broken"]:
        say(f"does not fit: {fault}", quiet=common.json)
    return OK if found["verified"] else FAILED


def _told_of_run(found: dict[str, Any]) -> Iterable[str]:
    yield f"{found['question']}\n{found['answer'] or 'refused'}"
    for one in found["citations"]:
        pages = f" · p. {', '.join(map(str, one['pages']))}" if one["pages"] else ""
        yield f"\n[{one['n']}] {one_line(one['title'] or one['external_id'] or one['document_id'])} · revision {one['revision']}{pages}"
        yield f"    “{one['quote']}”  [{one['char_start']}, {one['char_end']})"
        yield from (f"    box {span['box']} on page {span['page']}" for span in one["spans"] if span.get("box"))
        yield from map(_hop, one["hops"])


def _told_of_document(found: dict[str, Any]) -> Iterable[str]:
    yield f"{one_line(found['title'] or found['external_id'] or found['document_id'])} · revision {found['revision']} · sha256 {found['content_sha256']}"
    yield from map(_hop, found["hops"])


def _hop(hop: dict[str, Any]) -> str:
    event = hop["event"]
    by = f"\n          {event['type']} by {event['author']}" + (f", how {event['how']}" if event["how"] else "") if event else ""
    return f"    {MARKS[hop['verified']]}  {hop['name']:12} {hop['place']}: {hop['detail']}{by}"


async def _get(path: str, common: Remote, **parameters: Any) -> dict[str, Any]:
    from anabranch.cli.serving import api_client

    async with api_client(common) as client:
        return await client.get(path, **parameters)
