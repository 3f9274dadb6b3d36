"""Serve the methods of `anabranch.proto` by calling the HTTP application, which checks credential,
role, tenant, readers and limits, and records the audit trail.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar
from urllib.parse import unquote
from uuid import UUID, uuid4

import grpc
import httpx2
import structlog
from google.protobuf.json_format import MessageToDict, ParseDict, SerializeToJsonError
from google.protobuf.message import DecodeError, Message
from starlette.types import ASGIApp

from api.agents.route import ApplicationTransport
from api.grpc import anabranch_pb2 as pb
from api.middleware import MAX_JSON_BYTES
from api.problems import get_status
from api.sse import iterate_events
from schemas.errors import AnabranchError, ConfigurationError, InvalidRequest, join_sentences

SERVICE = pb.DESCRIPTOR.services_by_name["Anabranch"]
MAX_CALLS = 256
MESSAGE_TIMEOUT_S = 60.0
"""Limit for the message of a call to arrive."""
STOP_GRACE_S = 1.0
FORWARDED_METADATA = ("authorization", "x-anabranch-tenant", "idempotency-key", "x-request-id")
CODE_BY_STATUS = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""Other statuses are an invalid argument below 500, else an internal error."""

MessageT = TypeVar("MessageT", bound=Message)
Messages: TypeAlias = AsyncIterator[Any]
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@dataclass(frozen=True, slots=True)
class AnabranchService:
    """The methods. Each takes its one message as a stream, which is the same on the wire: so the
    credential is checked before a message is held in memory.
    """

    app: ASGIApp
    base_url: str

    async def ingest(self, messages: Messages, context: Context) -> pb.IngestReceipt:
        async with self._open_call(messages, context) as (http, request):
            content = request.WhichOneof("content")
            if content is None:
                raise InvalidRequest(
                    "The request has neither data nor text.", remedy="Set one of them."
                )
            data: bytes = request.text.encode() if content == "text" else request.data
            if content == "text" and not request.filename and not request.media_type:
                request.media_type = "text/markdown"
            # As JSON, bytes would be in base64.
            request.ClearField(content)
            fields = {
                name: value if isinstance(value, str) else json.dumps(value)
                for name, value in _to_json(request).items()
            }
            response = await http.post("/v1/ingest", data=fields, files={"file": (None, data)})
            return await _read_message(response, context, pb.IngestReceipt())

    async def get_ingest_status(self, messages: Messages, context: Context) -> pb.JobStatus:
        async with self._open_call(messages, context) as (http, request):
            try:
                job = UUID(request.ingestion_job_id)
            except ValueError:
                raise InvalidRequest(
                    f"{request.ingestion_job_id[:100]!r} is not an id of an ingestion job.",
                    remedy="Use the `ingestion_job_id` that Ingest returned.",
                ) from None
            response = await http.get(f"/v1/ingest/status/{job}")
            return await _read_message(response, context, pb.JobStatus())

    async def search(self, messages: Messages, context: Context) -> pb.SearchResponse:
        async with self._open_call(messages, context) as (http, request):
            response = await http.post("/v1/search", json=_to_json(request))
            return await _read_message(response, context, pb.SearchResponse())

    async def query(self, messages: Messages, context: Context) -> None:
        body = {"stream": True}
        async with (
            self._open_call(messages, context) as (http, request),
            http.stream("POST", "/v1/query", json=_to_json(request) | body) as response,
        ):
            if response.is_error:
                await _read_json(response, context)
            async for name, data in iterate_events(response):
                if name == "error":
                    await _abort_by_problem(data, context)
                if name in pb.QueryEvent.DESCRIPTOR.fields_by_name:
                    event = ParseDict({name: data}, pb.QueryEvent(), ignore_unknown_fields=True)
                    await context.write(event)

    @asynccontextmanager
    async def _open_call(
        self, messages: Messages, context: Context
    ) -> AsyncIterator[tuple[httpx2.AsyncClient, Any]]:
        """Check the credential, then read the message.

        Leaving the block, as a cancelled call does, ends the requests of the client.
        """
        headers = {"accept-encoding": "identity", "x-request-id": uuid4().hex}
        sent = [
            (name, str(value))
            for name, value in context.invocation_metadata() or ()
            if name in FORWARDED_METADATA
        ]
        # A pair each: what the application refuses to read twice must not be reduced to one.
        defaults = [pair for pair in headers.items() if pair[0] not in dict(sent)]
        async with httpx2.AsyncClient(
            transport=ApplicationTransport(self.app, parse_peer(context.peer())),
            base_url=self.base_url,
            headers=[*defaults, *sent],
            timeout=None,
        ) as http:
            await _read_json(await http.get("/v1/whoami"), context)
            try:
                async with asyncio.timeout(MESSAGE_TIMEOUT_S) as limit:
                    message = await anext(messages, None)
                if message is None:
                    raise InvalidRequest("The call has no message.", remedy="Send one.")
                yield http, message
            except TimeoutError:
                if not limit.expired():
                    raise
                await _abort(
                    context,
                    408,
                    "REQUEST_TIMEOUT",
                    f"The message took more than {MESSAGE_TIMEOUT_S:g} s to arrive.",
                    "Send a smaller one.",
                    http.headers["x-request-id"],
                )
            except (AnabranchError, DecodeError, SerializeToJsonError) as error:
                if not isinstance(error, AnabranchError):
                    error = InvalidRequest(
                        f"The message cannot be read: {error}",
                        remedy="Compare it with anabranch.proto. JSON has no NaN and no infinity.",
                    )
                refusal = (get_status(error), error.code, error.detail, error.remedy)
                await _abort(context, *refusal, http.headers["x-request-id"])


def _to_json(message: Message) -> dict[str, Any]:
    """Leave out what the client did not set: the HTTP API and its profiles have the defaults."""
    return MessageToDict(message, preserving_proto_field_name=True)


def parse_peer(peer: str) -> tuple[str, int]:
    """Return address and port of `ipv4:ADDRESS:PORT` or `ipv6:[ADDRESS]:PORT`."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.strip("[]"), int(port)


async def _read_json(response: httpx2.Response, context: Context) -> dict[str, Any]:
    """Return the body, or abort the call with the problem that it is."""
    body: dict[str, Any] = json.loads(await response.aread())
    if response.is_error:
        await _abort_by_problem(body, context)
    return body


async def _read_message(response: httpx2.Response, context: Context, message: MessageT) -> MessageT:
    return ParseDict(await _read_json(response, context), message, ignore_unknown_fields=True)


async def _abort_by_problem(problem: dict[str, Any], context: Context) -> NoReturn:
    await _abort(
        context,
        *(problem[name] for name in ("status", "code", "detail", "remedy", "request_id")),
    )


async def _abort(
    context: Context, status: int, code: str, detail: str, remedy: str, request_id: str
) -> NoReturn:
    other = grpc.StatusCode.INTERNAL if status >= 500 else grpc.StatusCode.INVALID_ARGUMENT
    # Metadata is ASCII, except where its name ends in `-bin`.
    metadata = (("code", code), ("remedy-bin", remedy.encode()), ("request-id", request_id))
    await context.abort(CODE_BY_STATUS.get(status, other), join_sentences(detail, remedy), metadata)


def build_handler(service: AnabranchService) -> grpc.GenericRpcHandler:
    methods = {
        "Ingest": service.ingest,
        "IngestStatus": service.get_ingest_status,
        "Search": service.search,
        "Query": service.query,
    }
    handlers = {}
    for name, method in methods.items():
        declared = SERVICE.methods_by_name[name]
        create = (
            grpc.stream_stream_rpc_method_handler
            if declared.server_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        handlers[name] = create(
            method,
            request_deserializer=getattr(pb, declared.input_type.name).FromString,
            response_serializer=getattr(pb, declared.output_type.name).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)


@asynccontextmanager
async def serve_grpc(app: ASGIApp, base_url: str, host: str, port: int) -> AsyncIterator[int]:
    """Serve inside the block, without TLS, and yield the port. Raises ConfigurationError."""
    server = grpc.aio.server(
        # With the option, a second server on the port would be no error.
        options=[("grpc.max_receive_message_length", MAX_JSON_BYTES), ("grpc.so_reuseport", 0)],
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    server.add_generic_rpc_handlers((build_handler(AnabranchService(app, base_url)),))
    try:
        port = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except RuntimeError as error:
        raise ConfigurationError(
            f"Cannot listen on {host}:{port} for gRPC: {error}.",
            code="BAD_ADDRESS",
            remedy="Set api.grpc_port to a free port.",
        ) from error
    await server.start()
    structlog.get_logger("api").info("grpc_started", host=host, port=port)
    try:
        yield port
    finally:
        await server.stop(STOP_GRACE_S)
