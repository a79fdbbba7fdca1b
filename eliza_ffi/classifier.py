"""A text classifier with the interface of scikit-learn."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import Enum, EnumMeta
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from .checks import check_one_of, check_path, check_several, check_text, wrong
from .decisions.answers import ChoiceAnswer
from .decisions.fingerprint import fingerprint_of
from .decisions.learning.calibration import METHODS, Calibration, CalibrationMethod, replace_file
from .decisions.learning.fitting import calibrate
from .decisions.questions import Choice
from .decisions.scoring import log_softmax
from .decisions.wire import question_to
from .errors import InvalidArgumentError
from .model import Model
from .structured.json_text import json_text, read_json

__all__ = ["LEAST_LABELS", "Classifier"]

LEAST_LABELS = 20
"""The minimum number of labelled texts for a calibration. Fewer texts are shown in the prompt. With
20 labels and SmolLM2, calibrations were more accurate than such prompts on two of three data
sets."""

INSTRUCTIONS = "Which label fits the text best?"

FORMAT, VERSION = "eliza-ffi classifier", 1


class Classifier:
    """Classify texts with a language model, with or without labelled examples.

    The class has scikit-learn's interface, and works in its pipelines and cross-validation. It does
    not need scikit-learn.

    - Before :meth:`fit`, the model answers a :class:`~eliza_ffi.decisions.Choice` among `labels`.
    - With at least 20 labelled texts, :meth:`fit` fits a calibration, which is usually a linear
      head on the model's hidden states. See :func:`eliza_ffi.decisions.calibrate`.
    - With fewer texts, :meth:`fit` puts them into the prompt as examples.

    Parameters
    ----------
    model
        An open :class:`~eliza_ffi.Model`, the path of a model file, or None for the default model.
    labels
        The labels, an enum class, or a mapping from labels to descriptions. None takes the labels
        from the argument of :meth:`fit`.
    instructions
        The question in the prompt.
    method
        As in :func:`eliza_ffi.decisions.calibrate`.

    Attributes
    ----------
    classes_ : array, shape [n_labels]
        The sorted labels, which are the columns of :meth:`predict_proba`.
    method_ : str
        The method of the calibration; ``"examples"`` if the texts are in the prompt, and ``"none"``
        before :meth:`fit`.
    nll_ : dict
        For each method that was tried, the mean of -log p of the right labels, by cross-validation.

    Examples
    --------
    >>> from eliza_ffi import Classifier
    >>> classifier = Classifier(labels=["billing", "technical"])
    >>> classifier.predict(["I was charged twice.", "The app crashes."]).shape
    (2,)
    """

    _estimator_type = "classifier"

    def __init__(
        self,
        model: Any = None,
        labels: Sequence[Any] | Mapping[Any, str | None] | None = None,
        instructions: str = INSTRUCTIONS,
        method: CalibrationMethod | Literal["auto"] = "auto",
    ) -> None:
        self.model = model
        self.labels = labels
        self.instructions = instructions
        self.method = method

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the constructor by name."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Classifier:
        """Set parameters of the constructor, and return the classifier."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidArgumentError(
                    f"Classifier has no parameter {name!r}: expected one of {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Classifier:
        """Return an unfitted classifier with the same parameters. Both use the same open model."""
        return type(self)(**self.get_params())

    def __sklearn_is_fitted__(self) -> bool:
        return self.labels is not None or hasattr(self, "classes_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, one_d_labels=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(string=True, one_d_array=True, two_d_array=False),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without an open model; :meth:`_model` opens it again."""
        return {name: value for name, value in vars(self).items() if name != "_opened"}

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.get_params().items() if value is not None}
        return f"Classifier({', '.join(f'{name}={value!r:.60}' for name, value in shown.items())})"

    def fit(self, X: Any, y: Any) -> Classifier:  # noqa: N803 - scikit-learn's name
        """Learn from labelled texts, and return the classifier.

        Parameters
        ----------
        X
            The texts: a list, a numpy array, or a column of pandas or polars.
        y
            The label of each text.

        Raises
        ------
        InvalidArgumentError
            If the numbers of texts and labels differ, if a text is not a string, if a label is not
            one of `labels`, or if there are fewer than two labels.
        """
        texts, right = _texts_and_labels(X, y)
        labels = self._labels(right)
        question, values = self._question(labels), list(labels)
        for i, label in enumerate(right):
            if not isinstance(label, Hashable) or label not in labels:
                raise InvalidArgumentError(
                    f"y[{i}]: expected one of {values!r:.200}, got {label!r}"
                )
        text_of = {value: _text(value) for value in labels}  # labels of 0 and 1 match 1.0 and True
        examples = [(text, text_of[label]) for text, label in zip(texts, right, strict=True)]
        check_one_of("method", self.method, (*METHODS, "auto"))
        if len(texts) < LEAST_LABELS and self.method == "auto":
            self._set(labels, None, examples)
        else:
            calibration = calibrate(self._model(), [question], examples, method=self.method)
            self._set(labels, calibration, [])
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable label of each text, shape [n]."""
        most_probable = self.predict_log_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[most_probable]
        return labels

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the logarithm of :meth:`predict_proba`."""
        texts = _texts(X)
        if not (hasattr(self, "classes_") and (self._calibration or self._examples)):
            self._set(self._labels(()), None, [])  # again each time, because `labels` may change
        n_labels = len(self.classes_)
        if not texts:
            return np.empty((0, n_labels))
        decisions = self._model().decide_many(
            texts, [self._asked], examples=self._examples or None, calibration=self._calibration
        )
        columns: dict[Any, int] = {_text(v): i for i, v in enumerate(_in_order(self._shown))}
        log_p = np.empty((len(texts), n_labels))
        for row, decision in zip(log_p, decisions, strict=True):
            answer = cast(ChoiceAnswer, decision[0])
            row[:] = _log(answer.rest / max(1, n_labels - len(answer.options)))
            for value, p in answer.options:
                row[columns[value]] = _log(p)
        return log_softmax(log_p)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each label for each text, shape [n, n_labels]."""
        return np.exp(self.predict_log_proba(X))

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the share of texts whose most probable label is the right one."""
        texts, right = _texts_and_labels(X, y)
        found = self.predict(texts).tolist()
        return float(np.mean([a == b for a, b in zip(found, right, strict=True)]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted classifier to a JSON file, without the model.

        Raises
        ------
        InvalidArgumentError
            If the classifier is not fitted.
        OSError
            If the file cannot be written.
        """
        target = Path(check_path("path", path))
        if not hasattr(self, "classes_"):
            raise InvalidArgumentError("the classifier is not fitted: call fit() first")
        calibration = self._calibration
        content = {
            "format": FORMAT,
            "version": VERSION,
            "model": fingerprint_of(self._model()),
            "instructions": self._asked.instructions,
            "labels": list(map(list, self._shown.items())),
            "examples": [list(pair) for pair in self._examples],
            "calibration": None if calibration is None else calibration.to_text(),
        }
        replace_file(target, json_text(content) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any = None) -> Classifier:
        """Read a classifier from a file of :meth:`save`. The model must be the same.

        Raises
        ------
        InvalidArgumentError
            If the file is not a classifier, is damaged, or was fitted on another model.
        OSError
            If the file cannot be read.
        """
        source = Path(check_path("path", path))
        try:
            content = read_json(source.read_text(encoding="utf-8"))
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise InvalidArgumentError(f"expected version {VERSION} of {FORMAT!r}")
            labels = dict(content["labels"])
            loaded = cls(model, labels, content["instructions"])
            fitted_on, own = content["model"], fingerprint_of(loaded._model())
            if fitted_on != own:
                raise InvalidArgumentError(f"it is for the model {fitted_on}, not {own}")
            calibration = None
            if content["calibration"] is not None:
                calibration = Calibration.from_text(content["calibration"])
                asked = [each.question for each in calibration.questions]
                if asked != [question_to(loaded._question(labels))]:
                    raise InvalidArgumentError("its calibration is for other labels")
            loaded._set(labels, calibration, [(text, label) for text, label in content["examples"]])
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise InvalidArgumentError(f"{source} is not a usable classifier: {reason}") from error
        return loaded

    def _model(self) -> Model:
        if isinstance(self.model, Model):
            return self.model
        opened: tuple[Any, Model] | None = getattr(self, "_opened", None)
        if opened is None or opened[0] != self.model:
            opened = self._opened = self.model, Model(self.model)
        return opened[1]

    def _labels(self, right: Sequence[Any]) -> dict[Any, str | None]:
        """Return the labels with descriptions: the constructor's, or else those in `right`."""
        labels = self.labels
        if labels is None:
            for i, label in enumerate(right):
                _check_label(f"y[{i}]", label)
            labels = _in_order(set(right))
            if len(labels) < 2:
                raise InvalidArgumentError(
                    f"expected at least two labels, got {labels}: pass labels to the constructor, "
                    "or fit the classifier"
                )
        members = list(labels) if isinstance(labels, EnumMeta | Mapping) else labels
        values = _values(members, "labels")
        for i, label in enumerate(values):
            _check_label(f"labels[{i}]", label)
        return dict(labels) if isinstance(labels, Mapping) else dict.fromkeys(values)

    def _question(self, labels: Mapping[Any, str | None]) -> Choice:
        options = {_text(value): description for value, description in labels.items()}
        if len(options) < len(labels):
            raise InvalidArgumentError(f"labels: expected different texts: {list(labels)!r:.200}")
        return Choice(check_text("instructions", self.instructions), options, "label")

    def _set(
        self,
        labels: dict[Any, str | None],
        calibration: Calibration | None,
        examples: list[tuple[str, str]],
    ) -> None:
        self._asked, self._shown = self._question(labels), labels
        self._calibration, self._examples = calibration, examples
        is_plain = {type(value) for value in labels} in ({str}, {bool}, {int}, {float})
        self.classes_ = np.array(_in_order(labels), dtype=None if is_plain else object)
        self.method_, self.nll_ = "examples" if examples else "none", {}
        if calibration is not None:
            (fitted,) = calibration.questions
            self.method_, self.nll_ = fitted.method, dict(fitted.nll)


def _texts_and_labels(X: Any, y: Any) -> tuple[list[str], list[Any]]:  # noqa: N803
    texts, labels = _texts(X), _values(y)
    if len(texts) != len(labels):
        raise InvalidArgumentError(
            f"expected as many labels as texts, got {len(labels)} and {len(texts)}"
        )
    return texts, labels


def _texts(column: Any) -> list[str]:
    texts = _values(column, "X")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise wrong(f"X[{i}]", "a string", text)
    return texts


def _values(column: Any, name: str = "y") -> list[Any]:
    """Return the values of a list, an array, or a column of pandas or polars."""
    check_several(name, column, "a list, an array or a column")
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise wrong(name, "one dimension", f"an array of {column.ndim} dimensions")
    if hasattr(column, "to_list"):
        column = column.to_list()
    values = [value.item() if isinstance(value, np.generic) else value for value in column]
    for i, value in enumerate(values):
        if _is_missing(value):
            raise wrong(f"{name}[{i}]", "a value", value)
    return values


def _check_label(name: str, label: Any) -> None:
    if not isinstance(label, str | int | float | Enum):
        raise wrong(name, "a string, a number or an enum's member", label)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' NA, whose comparisons are neither."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _text(label: Any) -> str:
    """Return the text of a label in the prompt; for the member of an enum as in `choose`."""
    if isinstance(label, Enum):
        return label.value if isinstance(label.value, str) else label.name
    return str(label)


def _in_order(labels: Iterable[Any]) -> list[Any]:
    """Sort labels. scikit-learn's metrics expect the columns of probabilities in this order."""
    plain = str | int | float
    keys = {each: each if isinstance(each, plain) else str(each) for each in labels}
    return sorted(keys, key=lambda each: (type(each).__name__, keys[each]))


def _log(probability: float) -> float:
    return math.log(max(probability, 1e-300))
