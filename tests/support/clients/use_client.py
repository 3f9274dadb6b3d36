"""Use the generated Python client as a program of a user would: base URL and token as arguments."""

from __future__ import annotations

import sys
import time

from anabranch_client import AuthenticatedClient
from anabranch_client.api.documents import get_document, list_documents
from anabranch_client.api.ingest import ingest, ingest_status
from anabranch_client.api.questions import query, search
from anabranch_client.models import (
    DocumentStatus,
    IngestReceipt,
    IngestRequest,
    JobStatus,
    PageDocument,
    Problem,
    QueryRequest,
    QueryResponse,
    SearchRequest,
    SearchResponse,
)

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)
receipt = ingest.sync(
    client=client,
    body=IngestRequest(
        text="The pump in hall four is oiled each Monday by Clara Weiss.",
        filename="pump.md",
        external_id="pump-python",
    ),
)
assert isinstance(receipt, IngestReceipt), receipt
deadline = time.monotonic() + 60
while True:
    status = ingest_status.sync(receipt.ingestion_job_id, client=client)
    if isinstance(status, JobStatus) and status.state == "searchable":
        break
    assert time.monotonic() < deadline, status
    time.sleep(0.1)
assert [stage.state for stage in status.stages if stage.stage == "index"] == ["done"]

found = search.sync(client=client, body=SearchRequest(query="Who oils the pump?"))
assert isinstance(found, SearchResponse), found
assert any(result.external_id == "pump-python" for result in found.results), found
answer = query.sync(client=client, body=QueryRequest(query="Who oils the pump in hall four?"))
assert isinstance(answer, QueryResponse), answer
assert answer.answer and "Weiss" in answer.answer, answer

document = get_document.sync(receipt.document_id, client=client)
assert isinstance(document, DocumentStatus) and document.filename == "pump.md", document
page = list_documents.sync(client=client, external_id="pump-python")
assert isinstance(page, PageDocument) and len(page.items) == 1, page
unknown = get_document.sync(receipt.ingestion_job_id, client=client)
assert isinstance(unknown, Problem) and unknown.code == "NOT_FOUND", unknown
print("ok")
