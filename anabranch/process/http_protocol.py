"""HTTP as the server reads and writes it. What is none at all is refused before any route sees it: with a problem document too, as every other mistake."""

from __future__ import annotations

import json
import sys
from uuid import uuid4

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.problems import MEDIA_TYPE

REMEDY = "Send well-formed HTTP/1.1: Content-Length is a number of bytes, and header names and values are plain text."


class Protocol(HttpToolsProtocol):
    emptied = 0
    """How often the caller has taken enough of what was written for more to be written."""

    def resume_writing(self) -> None:
        self.emptied += 1
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Called while the parser's error is being handled; the connection cannot be used any more."""
        why = str(sys.exception() or msg).rstrip(".")
        self.transport.write(refusal(f"this request cannot be read: {why}", uuid4().hex))
        self.transport.close()


def refusal(detail: str, request_id: str) -> bytes:
    fields = {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": detail, "code": "BAD_REQUEST", "remedy": REMEDY}
    body = json.dumps(fields | {"request_id": request_id}).encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\nX-Request-ID: {request_id}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
