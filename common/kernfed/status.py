"""Errors across gRPC: one table from exception to status, the stable reason in trailing metadata, and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio
import structlog

from kernfed import errors
from kernfed.errors import KernfedError

log = structlog.get_logger(__name__)

REASON_KEY: Final = "kernfed-reason"
INTERNAL_TEXT: Final = "internal error; the coordinator's log has the details"
_MAX_TEXT_BYTES: Final = 4096
"""A status travels in HTTP headers, whose default limit is 8 KiB."""

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]

_FROM_CORE = "Internal error from Core"
_STATUS_COMES_S, _LOOK_S = 5.0, 0.01
"""The peer's status comes in the same moment as the write that fails by it."""

_S = grpc.StatusCode
STATUS: Final[dict[type[KernfedError], grpc.StatusCode]] = {
    KernfedError: _S.INTERNAL,
    errors.ConfigError: _S.INVALID_ARGUMENT,
    errors.DataError: _S.INVALID_ARGUMENT,
    errors.WireError: _S.INVALID_ARGUMENT,
    errors.InvalidTensorError: _S.INVALID_ARGUMENT,
    errors.UnknownStepError: _S.INVALID_ARGUMENT,
    errors.PayloadTooLargeError: _S.RESOURCE_EXHAUSTED,
    errors.VersionMismatchError: _S.FAILED_PRECONDITION,
    errors.AuthError: _S.UNAUTHENTICATED,
    errors.IdentityError: _S.UNAUTHENTICATED,
    errors.CertificateError: _S.UNAUTHENTICATED,
    errors.RevokedError: _S.UNAUTHENTICATED,
    errors.TokenError: _S.UNAUTHENTICATED,
    errors.PermissionDeniedError: _S.PERMISSION_DENIED,
    errors.PolicyError: _S.PERMISSION_DENIED,
    errors.SubmissionError: _S.PERMISSION_DENIED,
    errors.ApprovalError: _S.PERMISSION_DENIED,
    errors.SiteRefusedError: _S.PERMISSION_DENIED,
    errors.AlreadyConnectedError: _S.ALREADY_EXISTS,
    errors.UnavailableError: _S.UNAVAILABLE,
    errors.DiskFullError: _S.UNAVAILABLE,
    errors.BusyError: _S.RESOURCE_EXHAUSTED,
    errors.JobError: _S.FAILED_PRECONDITION,
    errors.UnknownJobError: _S.NOT_FOUND,
    errors.UnknownArtifactError: _S.NOT_FOUND,
    errors.UnknownClientError: _S.NOT_FOUND,
    errors.QuorumNotMetError: _S.FAILED_PRECONDITION,
    errors.JobCancelledError: _S.FAILED_PRECONDITION,
    errors.JobStateMissingError: _S.FAILED_PRECONDITION,
    errors.InvalidReplyError: _S.INVALID_ARGUMENT,
    errors.StepFailedError: _S.FAILED_PRECONDITION,
    errors.PluginError: _S.FAILED_PRECONDITION,
    errors.SecureSumError: _S.FAILED_PRECONDITION,
    errors.NumericalError: _S.FAILED_PRECONDITION,
    errors.OutOfRangeError: _S.FAILED_PRECONDITION,
    errors.NotPositiveDefiniteError: _S.FAILED_PRECONDITION,
    errors.NotConvergedError: _S.FAILED_PRECONDITION,
    errors.DivergedError: _S.FAILED_PRECONDITION,
}
"""The one table. A new leaf in `kernfed.errors` needs its line here; a test says so."""

_WITHOUT_REASON: Final[dict[grpc.StatusCode, type[KernfedError]]] = {
    _S.UNAVAILABLE: errors.UnavailableError,
    _S.DEADLINE_EXCEEDED: errors.UnavailableError,
    _S.CANCELLED: errors.UnavailableError,
    _S.UNAUTHENTICATED: errors.AuthError,
    _S.PERMISSION_DENIED: errors.PermissionDeniedError,
    _S.RESOURCE_EXHAUSTED: errors.BusyError,
    _S.UNIMPLEMENTED: errors.VersionMismatchError,
    _S.INVALID_ARGUMENT: errors.WireError,
}


def status_of(err: KernfedError) -> grpc.StatusCode:
    """Status of an error, by its class or the nearest base class in the table."""
    return next(STATUS[cls] for cls in type(err).__mro__ if cls in STATUS)


async def abort(context: Context, err: KernfedError) -> NoReturn:
    """End a call with an error's status, text and reason."""
    await context.abort(status_of(err), _cut(str(err)), ((REASON_KEY, err.reason),))
    raise AssertionError("abort returns never")


def error_from_rpc(err: grpc.aio.AioRpcError) -> KernfedError:
    """Turn a failed call back into the error that the peer raised, or that the failed line stands for."""
    details = err.details() or err.code().name
    reason = next((value for key, value in err.trailing_metadata() or () if key == REASON_KEY), None)
    if reason is not None:
        return errors.error_from_reason(reason.decode() if isinstance(reason, bytes) else reason, details)
    code = err.code()
    if code is _S.DEADLINE_EXCEEDED:
        details = f"no answer in time ({details})"
    elif code is _S.UNIMPLEMENTED:
        details = f"the peer does not know this call ({details}): both ends need the same release of kernfed"
    return _WITHOUT_REASON.get(code, KernfedError)(details)


class PeerStatus:
    """With what the peer ended a call of ours that sends a stream.

    A write that comes when the peer has ended the call fails, and grpc then sets an INTERNAL of its own, over the
    peer's status or before it comes (https://github.com/grpc/grpc/issues/36066). So the first status is taken down when
    it is set, and where that is grpc's own, the second is waited for.
    """

    def __init__(self, call: Any) -> None:
        """Watch a call from its beginning; it is one of grpc.aio."""
        self._call = call
        self._first: asyncio.Future[grpc.aio.AioRpcError] = asyncio.get_running_loop().create_future()
        call.add_done_callback(functools.partial(_take_down, self._first))  # and not a method: no cycle keeps the call

    async def end(self) -> grpc.aio.AioRpcError:
        """Wait for the end of the call; how the peer ended it, also where it did so with OK."""
        status = await asyncio.shield(self._first)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_COMES_S):
                while _is_from_core(status):
                    await asyncio.sleep(_LOOK_S)  # grpc tells nobody of a second status
                    status = _present(self._call)
        return status

    async def behind(self, err: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
        """How the peer ended the call, where an error only says that a write failed by it; else the error."""
        return await self.end() if _is_from_core(err) else err


def _take_down(first: asyncio.Future[grpc.aio.AioRpcError], call: Any) -> None:
    if not first.done():
        first.set_result(_present(call))


def _present(call: Any) -> grpc.aio.AioRpcError:
    parts = (call.code, call.initial_metadata, call.trailing_metadata, call.details)
    return grpc.aio.AioRpcError(*(_at_once(part()) for part in parts))


def _is_from_core(err: grpc.aio.AioRpcError) -> bool:
    return err.code() is _S.INTERNAL and err.details() == _FROM_CORE


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Result of a coroutine that has nothing to wait for, as those about a status that is set."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise AssertionError("a part of a call's status was not there yet")


class StatusInterceptor(grpc.aio.ServerInterceptor):
    """For every call of a grpc.aio server: admit the caller, also before each answer of many, and map what is raised.

    A KernfedError ends the call with its status and reason. Anything else ends it as INTERNAL with a fixed text, and
    its trace goes to our own log.
    """

    def __init__(self, admit: Callable[[Context], None] | None = None) -> None:
        """Make the interceptor.

        Args:
            admit: Raises a KernfedError for a caller who must stay out; see `kernfed.pki.identity.admission`.
        """
        self._admit = admit

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of a call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        make = {
            (False, False): (grpc.unary_unary_rpc_method_handler, handler.unary_unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, handler.unary_stream),
            (True, False): (grpc.stream_unary_rpc_method_handler, handler.stream_unary),
            (True, True): (grpc.stream_stream_rpc_method_handler, handler.stream_stream),
        }
        build, behaviour = make[handler.request_streaming, handler.response_streaming]
        wrapped = self._coroutine(self._writing(behaviour) if _is_generator(behaviour) else behaviour, method)
        return build(wrapped, handler.request_deserializer, handler.response_serializer)

    def _coroutine(self, behaviour: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
        async def run(request: Any, context: Context) -> Any:
            try:
                if self._admit:
                    self._admit(context)
                return await behaviour(request, context)
            except Exception as err:
                await _fail(context, err, method)

        return run

    def _writing(self, behaviour: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Awaitable[None]]:
        """A generator's answers written by a coroutine: grpc does not close the generator of a call that is cancelled.

        Who must stay out by now, as its certificate was revoked or has ended, gets no more of them.
        """

        async def run(request: Any, context: Context) -> None:
            async with contextlib.aclosing(behaviour(request, context)) as responses:
                async for response in responses:
                    if self._admit:
                        self._admit(context)
                    await context.write(response)

        return run


async def _fail(context: Context, err: Exception, method: str) -> NoReturn:
    if isinstance(err, grpc.aio.BaseError):
        raise err  # the handler ended the call itself
    if isinstance(err, KernfedError) and status_of(err) is not _S.INTERNAL:
        log.info("call refused", method=method, peer=context.peer(), reason=err.reason, error=str(err))
        await abort(context, err)
    log.error("call failed", method=method, peer=context.peer(), exc_info=err)
    await context.abort(_S.INTERNAL, INTERNAL_TEXT, ((REASON_KEY, KernfedError.reason),))
    raise AssertionError("abort returns never")


def _is_generator(behaviour: Callable[..., Any]) -> bool:
    return inspect.isasyncgenfunction(inspect.unwrap(behaviour))


def _cut(text: str) -> str:
    raw = text.encode()
    # Percent-encoding makes three bytes of each that is not printable ASCII.
    size = 0
    for i, byte in enumerate(raw):
        size += 1 if 0x20 <= byte < 0x7F else 3
        if size > _MAX_TEXT_BYTES:
            return raw[:i].decode(errors="ignore") + " …"
    return text
