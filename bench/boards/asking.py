"""Ask the questions of a row, in this process or of a server with ``/v1/systemone``."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eliza_ffi import Model
from eliza_ffi.decisions.answers import name_of, systemone_answer
from eliza_ffi.decisions.prompts import AskedQuestion
from eliza_ffi.decisions.questions import Choice, Predicate, text_of
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.evidence.question_plan import is_of_row

Ask = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]
"""Takes a state and questions, and returns the answers in the format of ``/v1/systemone``. Raises
:class:`UnansweredError` if this row has no answers, and other errors if no row would have any."""

UNANSWERABLE = (400, 413, 422, 501)
"""The statuses for a request that the server cannot answer, though it works."""

SECONDS = 600


class UnansweredError(Exception):
    """The row has no answers; the message says why."""


def in_process(model: Model, **settings: Any) -> Ask:
    """Return a function that asks a model with the settings of `Model.decide`."""

    def ask(state: Any, questions: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            decision = model.decide(state, questions, **settings)
        except Exception as error:
            if is_of_row(error):
                raise UnansweredError(str(error)) from error
            raise
        return {
            name_of(each.name, i): systemone_answer(each) for i, each in enumerate(decision.answers)
        }

    return ask


def over_http(url: str, model: str | None = None, key: str | None = None) -> Ask:
    """Return a function that asks a server, such as ``http://127.0.0.1:8080``."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"

    def ask(state: Any, questions: Mapping[str, Any]) -> Mapping[str, Any]:
        body: dict[str, Any] = {"state": state, "questions": questions}
        if model is not None:
            body["model"] = model
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{url.rstrip('/')}/v1/systemone", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                answers: Mapping[str, Any] = json.load(response)["answers"]
                return answers
        except urllib.error.HTTPError as error:
            text = f"{url} answered {error.code}: {error.read().decode(errors='replace')[:300]}"
            if error.code in UNANSWERABLE:
                raise UnansweredError(text) from None
            raise ElizaError(text) from None

    return ask


def probabilities(question: AskedQuestion, answer: Any) -> NDArray[np.float64]:
    """Return the probabilities of a question's options from its answer, true first.

    Raise InvalidArgumentError if an option is missing, or if they do not sum to 1 within 0.02.
    """
    try:
        if isinstance(question, Predicate):
            p = [answer["noul"], 1.0 - answer["noul"]]
        elif isinstance(question, Choice):
            p = [answer["probabilities"][text_of(value)] for value in question.values]
        else:
            p = [answer["probabilities"][str(i)] for i in range(len(question.values))]
        found = np.array(p, dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the question {question.name!r}: expected an answer with a probability for each "
            f"option, got {answer!r:.200} ({error!r})"
        ) from None
    if not (np.isfinite(found).all() and (found >= 0).all() and abs(found.sum() - 1) <= 0.02):
        raise InvalidArgumentError(
            f"the question {question.name!r}: expected probabilities that sum to 1, got {p}"
        )
    normalized: NDArray[np.float64] = found / found.sum()
    return normalized
