"""Questions for encoders and rerankers, which compare an input with the options' descriptions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._lazy import once_for_each
from ..decisions.models.session_models import decision_model_of
from ..decisions.prompts import AskedQuestion, options_of
from ..decisions.questions import Choice, Predicate, Score, text_of
from ..errors import InvalidArgumentError, NotSupportedError
from .sources import Compared, ComparedOption, source_of

if TYPE_CHECKING:
    from ..session.session import Session

logger = logging.getLogger("eliza_ffi")


def compared(question: AskedQuestion) -> Compared | None:
    """Return a question as sources read it.

    None for a predicate without a description of true and of false: the difference between a
    statement and its opposite does not change what a text is about.
    """
    asked = question.instructions
    if isinstance(question, Predicate):
        if question.label is not None:
            label = text_of(question.label.value)
            option = ComparedOption(label, question.label.description)
            return Compared(asked, (option,), needs_threshold=True)
        described = tuple(ComparedOption(None, each) for _, each in options_of(question))
        return Compared(asked, described) if all(each.texts for each in described) else None
    options = tuple(ComparedOption(*each) for each in options_of(question))
    return Compared(asked, options, are_levels=isinstance(question, Score))


def only_compares(session: Session) -> bool:
    """Return whether a model has no prompts: it is an encoder or a reranker.

    Some decision models are encoders, too, but answer with their own scores.
    """
    kind = getattr(session, "kind", "decoder")
    return kind != "decoder" and decision_model_of(session) is None


def has_source(session: Session) -> bool:
    """Return whether a model compares inputs with options, alone or in addition to scoring."""
    return only_compares(session) or getattr(session, "encoder", None) is not None


def check_comparable(session: Session, question: AskedQuestion) -> None:
    """Check that a model which only compares texts can answer a question without a calibration."""
    if not only_compares(session):
        return
    if needs_threshold(question):
        raise InvalidArgumentError(
            f"{_called(question)}: an encoder or a reranker needs a threshold for each label: use "
            'decide_many() with prior="inputs", or a calibration'
        )
    check_described(question)


def check_described(question: AskedQuestion) -> None:
    if compared(question) is None:
        raise InvalidArgumentError(
            f"{_called(question)}: an encoder or a reranker compares the input with descriptions: "
            "give the predicate if_true and if_false"
        )


def needs_threshold(question: AskedQuestion) -> bool:
    return isinstance(question, Predicate) and question.label is not None


def _called(question: AskedQuestion) -> str:
    shown = question.instructions.partition("\n")[0]
    return f"the question {(question.name or shown)!r:.80}"


@once_for_each
def _warned(session: Session) -> list[str]:
    return []


def warn_of_names(session: Session, questions: Sequence[AskedQuestion]) -> None:
    """Warn once for each model of options that have only names for an encoder to compare."""
    warned = _warned(session)
    for question in () if warned else questions:
        if needs_threshold(question) and not only_compares(session):
            continue  # it is not compared without a calibration
        bare = [text for text, description in _described(question) if not description]
        if bare:
            warned.append(bare[0])
            logger.warning(
                "%s: the option %r has no description. The input is compared with its name "
                "alone, which says little: describe every option",
                _called(question),
                bare[0],
            )
            return


def _described(question: AskedQuestion) -> list[tuple[str, str | None]]:
    if isinstance(question, Choice):  # the option `none` cannot have a description
        return options_of(question)[: len(question.choices)]
    if isinstance(question, Score):
        return options_of(question)
    label = question.label
    return [] if label is None else [(text_of(label.value), label.description)]


def evidence_source(session: Session) -> Any:
    """Return the source of a session; None if its model answers alone."""
    model = decision_model_of(session)
    if model is None:
        if getattr(session, "is_encoder_decoder", False):
            raise NotSupportedError(
                f"the model {session.path} is an encoder-decoder, which cannot decide"
            )
        return source_of(session)
    if session.encoder is not None:
        raise InvalidArgumentError(
            f"a decision model of type {model.type} answers alone: open it without an encoder"
        )
    return None
