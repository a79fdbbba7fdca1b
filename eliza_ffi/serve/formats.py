"""Read requests and write responses in the two wire formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..decisions.answers import Decision, decisions_answer, name_of, systemone_answer
from ..decisions.prompts import as_one_input, input_text
from ..decisions.questions import Question
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from .fields import UnfitField, check_fields
from .refusals import Refusal
from .schemas import DECISIONS_REQUEST, SYSTEMONE_MEDIA, SYSTEMONE_REQUEST, Schema

__all__ = ["DECISIONS", "SYSTEMONE", "DecisionRequest", "WireFormat"]


@dataclass(frozen=True)
class WireFormat:
    """A format of requests and responses.

    Attributes
    ----------
    path : str
        The endpoint's path.
    input_name : str
        The field that holds the input.
    schema : dict
        The JSON Schema of requests.
    media_fields : tuple of str
        Unsupported fields for images and files.
    media_status : int
        The HTTP status for requests with images, sound or files.
    write : callable
        Returns the response fields for the answers and the usage of a decision.
    """

    path: str
    input_name: str
    schema: Schema
    media_fields: tuple[str, ...]
    media_status: int
    write: Callable[[Decision], dict[str, Any]]

    def read(self, given: Mapping[str, Any]) -> DecisionRequest:
        """Read a request.

        Raises
        ------
        Refusal
            If the request is malformed or has an unsupported field.
        """
        try:
            self._check_media(given)
            check_fields(given, self.schema)
            questions = as_questions(given["questions"])
        except UnfitField as error:
            code = "unknown_parameter" if error.is_unknown else "invalid_value"
            raise Refusal(400, str(error), code, error.param) from None
        except InvalidArgumentError as error:
            raise Refusal(400, str(error), "invalid_value", "questions") from None
        included = frozenset(given.get("include") or ())
        return DecisionRequest(as_one_input(given[self.input_name]), questions, included)

    def _check_media(self, given: Mapping[str, Any]) -> None:
        """Reject images, sound and files."""
        for name in self.media_fields:
            if isinstance(given.get(name), list) and given[name]:
                raise self._media(f"{name}: only text is supported", name)
        if given.get(self.input_name) is None:
            return
        try:
            input_text(given[self.input_name])
        except InvalidArgumentError as error:
            raise self._media(str(error), self.input_name) from None

    def _media(self, message: str, param: str) -> Refusal:
        code = "not_supported" if self.media_status == 501 else "invalid_value"
        return Refusal(self.media_status, message, code, param)


@dataclass(frozen=True)
class DecisionRequest:
    """The contents of a request.

    Attributes
    ----------
    input
    questions : tuple of Question
    include : frozenset of str
        The requested extra fields of the response.
    """

    input: Any
    questions: tuple[Question, ...]
    include: frozenset[str]


def _write_decisions(decision: Decision) -> dict[str, Any]:
    n_input, n_cached = decision.usage.input_tokens, decision.usage.cached_tokens
    return {
        "answers": [decisions_answer(answer) for answer in decision.answers],
        "usage": {
            "input_tokens": n_input,
            # Every input token that was not in the KV cache has been written to it.
            "input_tokens_details": {
                "cached_tokens": n_cached,
                "cache_write_tokens": n_input - n_cached,
            },
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n_input,
        },
    }


def _write_systemone(decision: Decision) -> dict[str, Any]:
    return {
        "answers": {
            name_of(answer.name, i): systemone_answer(answer)
            for i, answer in enumerate(decision.answers)
        },
        "usage": {"input_tokens": decision.usage.input_tokens, "output_tokens": 0},
    }


DECISIONS = WireFormat(
    path="/v1/decisions",
    input_name="input",
    schema=DECISIONS_REQUEST,
    media_fields=(),
    media_status=400,  # OpenAI's status for unsupported input
    write=_write_decisions,
)
"""OpenAI's format, extended by questions of the type `labels`."""

SYSTEMONE = WireFormat(
    path="/v1/systemone",
    input_name="state",
    schema=SYSTEMONE_REQUEST,
    media_fields=SYSTEMONE_MEDIA,
    media_status=501,  # llama-server's status if the model reads only text
    write=_write_systemone,
)
"""The format of llama-server and other servers."""
