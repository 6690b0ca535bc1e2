"""The service: `/predict` for a row or many, `/schema` for what it takes, `/health` for probes.

Every answer is JSON. Rows that the model refuses are no fault of the service: the answer is 422 and says which cell.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, cast

import pandas as pd
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kernfed.errors import KernfedError
from kernfed.models.estimator import Classifier, Estimator
from kernfed.serving.schema import columns, schema

log = structlog.get_logger(__name__)

MAX_BODY: Final = 16 << 20
"""Bytes of a request."""
MAX_ROWS: Final = 100_000
"""Rows of a request."""
_BODY_S: Final = 60.0
"""How long a request may take to arrive."""
_CLOSE: Final = {"Connection": "close"}
_AT_ONCE: Final = 2
"""Requests that are computed beside each other; others wait."""
_BUSY: Final = 64
"""Requests that may wait; more are told to come again."""


def make_app(model: Estimator, version: str) -> Starlette:
    """The service of a model.

    Args:
        model: As `kernfed.load_model` gives it.
        version: Of the model, for who asks; its SHA-256.
    """
    service = _Service(model, version)
    return Starlette(
        routes=[
            Route("/predict", service.predict, methods=["POST"]),
            Route("/schema", service.schema),
            Route("/health", service.health),
        ],
        exception_handlers={HTTPException: _refusal, KernfedError: _cannot, ClientDisconnect: _gone, Exception: _fault},
    )


class _Service:
    def __init__(self, model: Estimator, version: str) -> None:
        self._model, self._version = model, version
        self._columns = columns(model)
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def health(self, request: Request) -> JSONResponse:
        """For probes."""
        return JSONResponse({"status": "ok", "model": self._version})

    async def schema(self, request: Request) -> JSONResponse:
        """What it takes and gives."""
        return JSONResponse(schema(self._model, self._version))

    async def predict(self, request: Request) -> JSONResponse:
        """One row, or many."""
        try:
            async with asyncio.timeout(_BODY_S):
                body = await _body(request)
        except TimeoutError as err:
            raise HTTPException(408, f"the request did not end within {_BODY_S:g} s; send it again", _CLOSE) from err
        asked = _parsed(body)
        alone = "row" in asked
        frame = self._frame([asked["row"]] if alone else asked["rows"])
        if self._waiting >= _BUSY:
            raise HTTPException(503, "too many requests wait; come again in a second", {"Retry-After": "1"})
        self._waiting += 1
        try:
            async with self._turn:
                answers = await asyncio.to_thread(self._answers, frame)
        finally:
            self._waiting -= 1
        return JSONResponse({"model": self._version, **(answers[0] if alone else {"rows": answers})})

    def _frame(self, rows: list[Any]) -> pd.DataFrame:
        for place, row in enumerate(rows, start=1):
            if not isinstance(row, dict):
                raise HTTPException(422, f"row {place} is no object of columns and cells")
            if lacking := [name for name in self._columns if name not in row]:
                raise HTTPException(422, f"row {place} lacks the column {lacking[0]!r}; null says that it is a gap")
            for name in self._columns:
                if isinstance(row[name], dict | list):
                    raise HTTPException(422, f"row {place}, column {name!r}: the cell is no number, text or null")
        cells = {name: pd.Series([row[name] for row in rows], dtype=object) for name in self._columns}
        return pd.DataFrame(cells)

    def _answers(self, frame: pd.DataFrame) -> list[dict[str, Any]]:
        if not isinstance(self._model, Classifier):
            return [{"prediction": value} for value in self._model.predict(frame).tolist()]
        names = [str(name) for name in self._model.classes_.tolist()]
        found = zip(self._model.predict(frame).tolist(), self._model.predict_proba(frame).tolist(), strict=True)
        return [{"prediction": name, "probabilities": dict(zip(names, shares, strict=True))} for name, shares in found]


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise HTTPException(413, f"a request has {MAX_BODY >> 20} MiB at most; send the rows in several")
        parts.append(part)
    return b"".join(parts)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as err:
        raise HTTPException(400, f"the request is not JSON: {str(err)[:200]}") from err
    if not isinstance(asked, dict) or sorted(asked) not in (["row"], ["rows"]):
        raise HTTPException(400, 'the request wants {"row": {...}} or {"rows": [{...}, ...]}')
    if "rows" in asked:
        rows = asked["rows"]
        if not isinstance(rows, list) or not 0 < len(rows) <= MAX_ROWS:
            raise HTTPException(422, f"rows is no list of 1 to {MAX_ROWS:,} rows")
    return asked


async def _refusal(request: Request, error: Exception) -> JSONResponse:
    refused = cast("HTTPException", error)
    return JSONResponse({"error": refused.detail}, refused.status_code, refused.headers)


async def _cannot(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 422)


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


async def _fault(request: Request, error: Exception) -> JSONResponse:
    log.error("a fault in kernfed while a request was answered", path=request.url.path, exc_info=error)
    return JSONResponse({"error": f"a fault in kernfed ({type(error).__name__}); the service's log has more"}, 500)
