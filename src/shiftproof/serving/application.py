"""The application: POST SMILES or rows, JSON comes back; requests that arrive together are answered in one batch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from shiftproof.data.predictions import Predictions
from shiftproof.errors import ShiftproofError, kind_of, optional
from shiftproof.ranges import Count, NonNegative, checked
from shiftproof.training.run import Run

MOST_BATCHED = 4096  # rows that are predicted at once, whoever asked for them


@checked
def app_for(
    run: Any, *, most_rows: Count = 1000, most_bytes: Count = 5_000_000, batch_wait: NonNegative = 0.005
) -> Any:
    """A FastAPI application of a run (or its folder), with its OpenAPI description at /openapi.json, a page at /docs.

    `POST /predict` takes `{"smiles": [...]}` of a run that learned from molecules, `{"rows": [{column: value}]}` of
    one that learned from a table, `{"x": [[...]]}` of one that learned from numbers. A row that cannot be used is
    answered in its place with the reason. More than `most_rows` rows are refused with 422, more than `most_bytes` bytes
    with 413.
    """
    fastapi: Any = optional("fastapi", "serve", "serving a run")
    optional("fastapi.responses", "serve", "serving a run")
    pydantic: Any = optional("pydantic", "serve", "serving a run")
    run = run if isinstance(run, Run) else Run.load(run)
    if run.method.shape.kind == "graphs" and _kind(run) != "molecules":
        raise ShiftproofError("a run is served that takes molecules or rows of numbers; this one takes other graphs")
    rows = _Rows(run, batch_wait)

    @asynccontextmanager
    async def living(_: Any) -> AsyncIterator[None]:
        rows.begin()
        yield
        await rows.end()

    app = fastapi.FastAPI(
        title="shiftproof",
        description=f"Predictions of {run.name} trained on {Path(str(run.config.get('data')).partition(':')[0]).name}.",
        lifespan=living,
    )
    asked, answered = _models(pydantic, run, most_rows)

    @app.middleware("http")
    async def limited(request: Any, go_on: Any) -> Any:
        """Refuse a body that is too long before it is read whole, whatever its header says."""
        size = 0
        told = request.headers.get("content-length", "")
        if told.isdigit() and int(told) > most_bytes:
            return _refused(most_bytes)
        parts = []
        async for part in request.stream():
            size += len(part)
            if size > most_bytes:
                return _refused(most_bytes)
            parts.append(part)
        body = b"".join(parts)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        request._receive = receive
        request._body = body
        return await go_on(request)

    @app.exception_handler(fastapi.exceptions.RequestValidationError)
    async def malformed(_: Any, error: Any) -> Any:
        """Say what is wrong and where; what was sent is not sent back, it may hold what JSON has no word for."""
        told = [{"loc": [_plain(part) for part in one["loc"]], "msg": _plain(one["msg"]), "type": one["type"]}
                for one in error.errors()]  # fmt: skip
        return fastapi.responses.JSONResponse({"detail": told}, status_code=422)

    @app.get("/health", summary="Whether the run is there, and what it takes")
    async def health() -> dict[str, Any]:
        shape = run.method.shape
        return {
            "method": run.name,
            "task": shape.task,
            "takes": _field(run),
            "classes": [str(c) for c in _classes(run)],
        }

    responses = {413: {"description": "The request is larger than the server reads."}}

    async def predict(given: Any) -> Any:
        try:
            return {"predictions": await rows.ask(getattr(given, _field(run)))}
        except ShiftproofError as error:
            told = [{"loc": ["body"], "msg": str(error), "type": "value_error"}]
            raise fastapi.HTTPException(422, detail=told) from None

    predict.__annotations__["given"] = asked  # a model that is made for this run, so no name stands for it
    said = {"response_model": answered, "responses": responses, "summary": "Predictions, one for each row given"}
    app.post("/predict", **said)(predict)
    return app


class _Rows:
    """Waits a moment for rows of several requests and predicts them together."""

    def __init__(self, run: Run, wait: float) -> None:
        self.run, self.wait = run, wait
        self.waiting: asyncio.Queue[tuple[list[Any], asyncio.Future[list[dict[str, Any]]]]] | None = None
        self.worker: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.waiting = asyncio.Queue()
        self.worker = asyncio.create_task(self._work())

    async def end(self) -> None:
        if self.worker is not None:
            self.worker.cancel()

    async def ask(self, rows: list[Any]) -> list[dict[str, Any]]:
        assert self.waiting is not None
        future: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        await self.waiting.put((rows, future))
        return await future

    async def _work(self) -> None:
        assert self.waiting is not None
        while True:
            batch = [await self.waiting.get()]
            await asyncio.sleep(self.wait)
            while not self.waiting.empty() and sum(len(rows) for rows, _ in batch) < MOST_BATCHED:
                batch.append(self.waiting.get_nowait())
            for group in _alike([(rows, future) for rows, future in batch]):
                await self._answer(group)

    async def _answer(self, group: list[tuple[list[Any], asyncio.Future[list[dict[str, Any]]]]]) -> None:
        together = [row for rows, _ in group for row in rows]
        try:
            found = await asyncio.to_thread(_predicted, self.run, together)
        except Exception as error:
            if len(group) > 1:  # somebody's rows are wrong: each for itself
                for one in group:
                    await self._answer([one])
                return
            rows, future = group[0]
            if not future.done():
                future.set_exception(error)
            return
        start = 0
        for rows, future in group:
            if not future.done():
                future.set_result(found[start : start + len(rows)])
            start += len(rows)


def _alike(batch: list[Any]) -> list[list[Any]]:
    """Requests whose rows have the same columns, which alone can be predicted as one table."""
    groups: dict[Any, list[Any]] = {}
    for rows, future in batch:
        first = rows[0]
        key = tuple(sorted(first)) if isinstance(first, dict) else len(first) if isinstance(first, list) else None
        groups.setdefault(key, []).append((rows, future))
    return list(groups.values())


def _predicted(run: Run, rows: list[Any]) -> list[dict[str, Any]]:
    """A row each as plain values: prediction, probabilities or the value, and what is wrong with the row."""
    given: Any = rows
    if _field(run) == "rows":
        import pandas as pd

        given = pd.DataFrame(rows, dtype=object)
    elif _field(run) == "x":
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise ShiftproofError("the rows of 'x' have different lengths")
        import numpy as np

        given = np.array(rows, dtype=np.float32)
    predictions: Predictions = run.predict(given)
    columns = predictions.to_dict()
    names = [name for name in columns if name not in ("index", "row")]
    return [{name: _plain(columns[name][row]) for name in names} for row in range(len(predictions))]


def _models(pydantic: Any, run: Run, most_rows: int) -> tuple[Any, Any]:
    """What is asked and what is answered, as models that OpenAPI describes."""
    of_rows = {
        "smiles": (str, "SMILES, one a molecule."),
        "rows": (dict[str, str | float | int | bool | None], "Rows of the table by column name; no label is needed."),
        "x": (list[float], "Rows of numbers, as long as those trained on."),
    }
    field = _field(run)
    kind, said = of_rows[field]
    if field == "smiles":
        kind = Annotated[str, pydantic.Field(max_length=4000)]
    if field == "x" and len(run.method.shape.in_shape) == 1:
        width = run.method.shape.in_shape[0]
        finite = Annotated[float, pydantic.Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
        kind = Annotated[list[finite], pydantic.Field(min_length=width, max_length=width)]
    several = Annotated[list[kind], pydantic.Field(min_length=1, max_length=most_rows, description=said)]
    asked = pydantic.create_model(
        "Asked", __config__=pydantic.ConfigDict(extra="forbid", strict=field != "x"), **{field: (several, ...)}
    )
    answered = pydantic.create_model("Answered", predictions=(list[dict[str, Any]], ...))
    return asked, answered


def _field(run: Run) -> str:
    """What a request calls its rows."""
    return {"molecules": "smiles", "tabular": "rows"}.get(_kind(run), "x")


def _kind(run: Run) -> str:
    return str((run.config.get("reading") or {}).get("kind", ""))


def _classes(run: Run) -> tuple[Any, ...]:
    from shiftproof.training.predicting import classes_of

    return classes_of(run)


def _refused(most: int) -> Any:
    from fastapi.responses import JSONResponse

    return JSONResponse({"detail": f"the request is larger than {most} bytes"}, status_code=413)


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()  # half a character has no place in an answer
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool) or value is None else kind_of(value)
