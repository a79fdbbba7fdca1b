"""``/v1/labels``: right answers, from which a set of questions learns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import Field, model_validator

from ..decisions.prompts import input_text
from ..errors import InvalidArgumentError
from ..tables.label_file import Label
from .decisions import Input
from .endpoint import Endpoint, RequestContext
from .http_error import HTTPError, invalid
from .learner import SetLearner
from .request_body import Body

T = TypeVar("T")


class LabelRequest(Body):
    model: str = Field(description="the name of a set of questions that learns")
    question: str | None = Field(
        None, description="the name of its question; may be left out if it has only one"
    )
    input: Input | None = None
    id: str | None = Field(
        None,
        description="in place of the input: the x-request-id of the answer to it, or the id of a "
        "line of a batch",
    )
    row: int | None = Field(None, description="in place of the input: a row of the server's table")
    answer: Any = Field(None, description="the right answer; null or left out if no option fits")
    skip: bool = Field(False, description="do not offer the row again")
    kind: Literal["chosen", "random"] = Field(
        "chosen", description="random: the input was drawn at random, and may measure accuracy"
    )

    @model_validator(mode="after")
    def _has_input(self) -> LabelRequest:
        if [self.input, self.id, self.row].count(None) != 2:
            raise ValueError("expected exactly one of input, id and row")
        if self.skip and (self.row is None or self.answer is not None):
            raise ValueError("skip needs a row, and no answer")
        return self


class SetRequest(Body):
    model: str = Field(description="the name of a set of questions that learns")


class UndoRequest(SetRequest):
    row: int = Field(description="the row of the last label")


async def _label(request: LabelRequest, context: RequestContext) -> dict[str, Any]:
    learner = _learner(request.model, context)
    names = [*learner.options]
    name = names[0] if request.question is None and len(names) == 1 else request.question
    if name not in names:
        raise invalid("question", f"expected one of {', '.join(map(repr, names))}, got {name!r}")
    question = names.index(name)
    text: str | None = ""
    if request.row is not None:
        _check_row(request.row, learner)
    elif request.id is None:
        text = input_text(request.input)
    else:
        text = learner.input_of(request.id)
    if text is None:
        raise HTTPError(
            404,
            "id: no recent answer of the set has this id, or several have it: send the input",
            "unknown_id",
            "id",
        )
    if "\0" in text:
        raise invalid("input", "a file of labels cannot have NUL characters")
    answer = None if request.skip else _answer(question, request.answer, learner)
    label = Label(request.row, answer, request.kind, text)
    replaces = await _stored(lambda: learner.add(label, question))
    return {"model": request.model, "labels": len(learner.file.labels), "replaces": replaces}


async def _next(request: SetRequest, context: RequestContext) -> dict[str, Any]:
    learner = _learner(request.model, context)
    if learner.table is None:
        message = "this server has no table to label: start it with --table FILE"
        raise HTTPError(501, message, "not_supported")
    found = await asyncio.to_thread(learner.table.next)
    (question,) = learner.questions
    asked = {"instructions": question.instructions, "options": [*question.values]}
    return {"model": request.model, **asked, **found}


async def _undo(request: UndoRequest, context: RequestContext) -> dict[str, Any]:
    learner = _learner(request.model, context)
    if not await _stored(lambda: learner.take_back(request.row)):
        raise invalid("row", f"the last label is not that of row {request.row}")
    return {"model": request.model, "labels": len(learner.file.labels)}


async def _go_back(request: SetRequest, context: RequestContext) -> dict[str, Any]:
    learner = _learner(request.model, context)
    try:
        version = await asyncio.to_thread(learner.go_back)
    except InvalidArgumentError as error:
        raise invalid("model", str(error)) from None
    return {"model": request.model, "version": version}


def _learner(name: str, context: RequestContext) -> SetLearner:
    """Return the learner of a set, if the request has the right to send labels."""
    learners, allowed = context.learners, context.settings.label_keys
    if not learners:
        raise HTTPError(
            501, "this server does not learn: start it with --learn FILE", "not_supported"
        )
    if allowed and context.record.key not in allowed:
        message = "this API key may not send labels; allow it with the option --label-key"
        raise HTTPError(403, message, "labels_not_allowed")
    if name not in learners:
        names = ", ".join(map(repr, learners))
        raise invalid("model", f"expected a set that learns, {names}; got {name!r}")
    return learners[name]


def _check_row(row: int, learner: SetLearner) -> None:
    rows = learner.rows
    if rows is None or row not in rows:
        raise invalid("row", f"the server's table has no row {row} to label")


def _answer(question: int, answer: Any, learner: SetLearner) -> str:
    try:
        return learner.stored(question, answer)
    except InvalidArgumentError as error:
        raise invalid("answer", str(error)) from None


async def _stored(write: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(write)
    except OSError as error:  # its text may name the file
        message = f"the file of labels cannot be written: {error.strerror}; the label is not stored"
        raise HTTPError(500, message, "labels_not_written") from error


LABELS = Endpoint(
    "/v1/labels",
    LabelRequest,
    _label,
    summary="Store the right answer to a question of a set",
    input_name="input",
    decides=True,
)

NEXT = Endpoint(
    "/v1/labels/next",
    SetRequest,
    _next,
    summary="Return the row of the table to label next",
    input_name="model",
    decides=True,
)

UNDO = Endpoint(
    "/v1/labels/undo",
    UndoRequest,
    _undo,
    summary="Remove the last label of the table",
    input_name="row",
    decides=True,
)

BACK = Endpoint(
    "/v1/labels/back",
    SetRequest,
    _go_back,
    summary="Use the version of a set's calibration before the one in use",
    input_name="model",
    decides=True,
)
