"""A text classifier with the interface of scikit-learn."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, EnumMeta
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from .checks import (
    check_file,
    check_number,
    check_one_of,
    check_path,
    check_several,
    check_text,
    wrong,
)
from .decisions.answers import ChoiceAnswer, Decision
from .decisions.fingerprint import fingerprint_of
from .decisions.questions import Choice
from .decisions.wire import question_to
from .errors import InvalidArgumentError
from .evidence.calibration import METHODS, Calibration, CalibrationMethod
from .evidence.json_fields import replace_file
from .evidence.question_plan import is_of_row
from .evidence.self_training import MIN_ROWS
from .learning.fitting import calibrate
from .model import Model
from .structured.json_text import json_text, read_json
from .terminal import counted

__all__ = ["MIN_LABELS", "Classifier"]

logger = logging.getLogger("eliza_ffi")

MIN_LABELS = 20
"""The minimum number of labelled texts for a calibration. With fewer, the prompt shows the texts as
examples. With 20 labels and SmolLM2, calibrations were more accurate than such prompts on two of
three data sets."""

INSTRUCTIONS = "Which label fits the text best?"

FORMAT, VERSION = "eliza-ffi classifier", 1


class Classifier:
    """Classify texts with a language model, with or without labelled examples.

    The class has scikit-learn's interface, and works in its pipelines and cross-validation. It does
    not need scikit-learn.

    - Before :meth:`fit`, the model answers a :class:`~eliza_ffi.decisions.Choice` among `labels`.
    - With at least 20 labelled texts, :meth:`fit` fits a calibration, which is usually a linear
      head on the model's hidden states. See :func:`eliza_ffi.learning.calibrate`.
    - With fewer texts, :meth:`fit` puts them into the prompt as examples.
    - :meth:`fit` also learns from texts with the label None, if there are at least 60 of them, or
      if no text has a label.

    Parameters
    ----------
    model
        An open :class:`~eliza_ffi.Model`, the path of a model file, or None for the default model.
    labels
        The labels, an enum class, or a mapping from labels to descriptions. None = the labels that
        are passed to :meth:`fit`.
    instructions
        The question in the prompt.
    method
        As in :func:`eliza_ffi.learning.calibrate`.
    on_error
        What happens if a text cannot be classified, for example because it is longer than the
        context. ``"raise"`` raises the error. With ``"row"``, the text gets the label None and the
        probabilities nan, :meth:`fit` leaves it out, and the logger ``eliza_ffi`` warns.

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
    >>> texts, right = ["I was charged twice.", "The app crashes."], ["billing", "technical"]
    >>> classifier = Classifier(labels=right)
    >>> classifier.predict(texts).shape, classifier.predict_log_proba(texts).shape
    ((2,), (2, 2))
    >>> classifier.score(texts, right)
    1.0
    >>> classifier.fit(texts, right).save("tickets.json")
    >>> Classifier.load("tickets.json").set_params(method="head").get_params()["method"]
    'head'
    >>> classifier.set_score_request(sample_weight=True)  # doctest: +SKIP
    """

    _estimator_type = "classifier"
    _weight_request: bool | str | None = None

    def __init__(
        self,
        model: Any = None,
        labels: Sequence[Any] | Mapping[Any, str | None] | None = None,
        instructions: str = INSTRUCTIONS,
        method: CalibrationMethod | Literal["auto"] = "auto",
        on_error: Literal["raise", "row"] = "raise",
    ) -> None:
        self.model = model
        self.labels = labels
        self.instructions = instructions
        self.method = method
        self.on_error = on_error

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
        copy = type(self)(**self.get_params())
        return copy.set_score_request(sample_weight=self._weight_request)

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

    def get_metadata_routing(self) -> Any:
        """Return which metadata scikit-learn may pass to the methods: weights for :meth:`score`."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        request.score.add_request(param="sample_weight", alias=self._weight_request)
        return request

    def set_score_request(self, *, sample_weight: bool | str | None) -> Classifier:
        """Set whether scikit-learn's metadata routing passes weights to :meth:`score`.

        Parameters
        ----------
        sample_weight
            True, False, None, or the name of the metadata, as for scikit-learn's own classifiers.
        """
        if not isinstance(sample_weight, bool | str | None):
            raise wrong("sample_weight", "True, False, None or a string", sample_weight)
        self._weight_request = sample_weight
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without open models; :meth:`_model` opens them again.

        scikit-learn can then pass the classifier to its worker processes (``n_jobs``).
        """
        state = {name: value for name, value in vars(self).items() if name != "_opened"}
        if isinstance(self.model, Model):
            state["model"] = _ModelFile.of(self.model)
        return state

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.get_params().items() if value is not None}
        return f"Classifier({', '.join(f'{name}={value!r:.60}' for name, value in shown.items())})"

    def fit(self, X: Any, y: Any) -> Classifier:  # noqa: N803 - scikit-learn's name
        """Learn from texts with or without labels, and return the classifier.

        >>> texts = ["I was charged twice.", "I cannot sign in."] * 15
        >>> classifier = Classifier(model).fit(texts, ["billing", "technical"] * 15)

        Parameters
        ----------
        X
            The texts: a list, a numpy array, or a column of pandas or polars.
        y
            The label of each text; None for a text without a label.

        Raises
        ------
        InvalidArgumentError
            If the numbers of texts and labels differ, if a text is not a string, if a label is not
            one of `labels`, or if there are fewer than two labels.
        ContextFullError
            If a text does not fit into the context, unless `on_error` is ``"row"``.
        """
        check_one_of("on_error", self.on_error, ("raise", "row"))
        texts, right = _texts_and_labels(X, y, may_miss=True)
        known = [label for label in right if label is not None]
        labels = self._labels(known)
        question, values = self._question(labels), list(labels)
        for i, label in enumerate(right):
            if label is None:
                continue
            if not isinstance(label, Hashable) or label not in labels:
                raise InvalidArgumentError(
                    f"y[{i}]: expected one of {values!r:.200}, got {label!r}"
                )
        text_of = {value: _text(value) for value in labels}  # labels of 0 and 1 match 1.0 and True
        examples: list[tuple[str, Any]] = [
            (text, None if label is None else text_of[label])
            for text, label in zip(texts, right, strict=True)
        ]
        check_one_of("method", self.method, (*METHODS, "auto"))
        has_rows = len(texts) - len(known) >= (MIN_ROWS if known else 1)
        if len(known) < MIN_LABELS and self.method == "auto" and not has_rows:
            self._set(labels, None, [pair for pair in examples if pair[1] is not None])
        else:
            skipped: dict[int, str] = {}
            calibration = calibrate(
                self._model(),
                [question],
                examples,
                method=self.method,
                on_skip=None if self.on_error == "raise" else skipped.__setitem__,
            )
            self._set(labels, calibration, [])
            _warn("fit", "left out", skipped)
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable label of each text, shape [n].

        >>> Classifier(model, ["billing", "login"]).predict(["I was charged twice."])
        array(['billing'], dtype='<U7')
        """
        columns = self._columns()
        answers = self._answers(X, top=1)
        places = [0 if each is None else columns[str(each.choice)] for each in answers]
        labels: NDArray[Any] = self.classes_[np.array(places, dtype=np.intp)]
        if None in answers:
            labels = labels.astype(object)
            labels[[each is None for each in answers]] = None
        return labels

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the logarithm of :meth:`predict_proba`."""
        with np.errstate(divide="ignore"):  # the logarithm of 0
            return np.log(self.predict_proba(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each label for each text, shape [n, n_labels].

        With more than 255 labels, this takes much longer than :meth:`predict`, which searches only
        for the most probable label.

        >>> Classifier(model, ["billing", "login"]).predict_proba(["I was charged twice."]).shape
        (1, 2)
        """
        columns = self._columns()
        answers = self._answers(X, top=len(columns))
        p = np.full((len(answers), len(columns)), np.nan)
        for row, answer in zip(p, answers, strict=True):
            if answer is not None:
                found = answer.probabilities
                row[:] = [found[text] for text in columns]
        return p

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Return the share of texts whose most probable label is the right one.

        Parameters
        ----------
        X, y
            As for :meth:`fit`.
        sample_weight
            The weight of each text, 0 or more; None = all texts count equally.
        """
        texts, right = _texts_and_labels(X, y)
        self._columns()  # raises if the classifier has no labels
        kinds = set(map(_kind, self.classes_.tolist()))
        for i, label in enumerate(right):
            is_known = isinstance(label, Hashable) and label in self._shown
            if not is_known and _kind(label) not in kinds:
                expected = f"a label like {self.classes_[0]!r}"
                raise InvalidArgumentError(f"y[{i}]: expected {expected}, got {label!r}")
        weights = _weights(sample_weight, len(texts))
        pairs = zip(self.predict(texts).tolist(), right, strict=True)
        return float(np.average([found == label for found, label in pairs], weights=weights))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted classifier to a JSON file, without the model.

        Raises
        ------
        InvalidArgumentError
            If the classifier is not fitted, or if its labels are members of an enum that is not at
            the top level of a module.
        OSError
            If the file cannot be written.
        """
        target = Path(check_path("path", path))
        if not hasattr(self, "classes_"):
            raise _not_fitted()
        calibration = self._calibration
        content = {
            "format": FORMAT,
            "version": VERSION,
            "model": fingerprint_of(self._model()),
            "instructions": self._asked.instructions,
            "labels": [[_label_to(label), meaning] for label, meaning in self._shown.items()],
            "examples": [list(pair) for pair in self._examples],
            "calibration": None if calibration is None else calibration.to_text(),
        }
        replace_file(target, json_text(content) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any = None) -> Classifier:
        """Read a classifier that :meth:`save` wrote. It must have been fitted on the same model.

        If the labels are members of an enum, import its module first: a file cannot make Python
        import a module.

        Raises
        ------
        InvalidArgumentError
            If the file is not a classifier, is damaged, or was fitted on another model.
        OSError
            If the file cannot be read.
        """
        source = Path(check_path("path", path))
        check_file(source, "a classifier")
        try:
            content = read_json(source.read_text(encoding="utf-8"))
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise InvalidArgumentError(f"expected version {VERSION} of {FORMAT!r}")
            labels = {_label_from(label): meaning for label, meaning in content["labels"]}
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
            file = self.model
            model = file.open() if isinstance(file, _ModelFile) else Model(file)
            opened = self._opened = file, model
        return opened[1]

    def _columns(self) -> dict[str, int]:
        """Return the text of each label with its column, in the order of the columns."""
        if not (hasattr(self, "classes_") and (self._calibration or self._examples)):
            if self.labels is None:
                raise _not_fitted()
            self._set(self._labels(()), None, [])  # again each time, because `labels` may change
        return {_text(value): i for i, value in enumerate(_in_order(self._shown))}

    def _answers(self, X: Any, top: int) -> list[ChoiceAnswer | None]:  # noqa: N803
        """Return the answer for each text, with at least the `top` most probable labels.

        If `on_error` is ``"row"``, the answer for a text that cannot be classified is None.
        """
        texts = _texts(X)
        check_one_of("on_error", self.on_error, ("raise", "row"))
        if not texts:
            return []
        # A calibration is valid only for its own question, and needs the scores of all labels.
        asked = self._asked if self._calibration else replace(self._asked, top=top)
        decisions: list[Any] = self._model().decide_many(
            texts,
            [asked],
            examples=self._examples or None,
            calibration=self._calibration,
            return_exceptions=self.on_error == "row",
        )
        answers: list[ChoiceAnswer | None] = [
            cast(ChoiceAnswer, each[0]) if isinstance(each, Decision) else None
            for each in decisions
        ]
        errors = {i: decisions[i] for i, each in enumerate(answers) if each is None}
        for error in errors.values():
            if not is_of_row(error):
                raise error
        _warn("predict", "not classified", errors)
        return answers

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
        instructions = check_text("instructions", self.instructions)
        return Choice(instructions, options, "label", top=max(1, len(options)))

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


@dataclass(frozen=True)
class _ModelFile:
    """The arguments with which another process can open the file of an open model."""

    path: str
    library: str
    n_gpu_layers: int
    options: Mapping[str, str]
    encoder: str | None

    @staticmethod
    def of(model: Model) -> _ModelFile:
        session = model.session
        options = {name: str(each) for name, each in session.settings.items() if each is not None}
        path, library = Path(model.path).absolute(), Path(model.binding.library.path).absolute()
        encoder = None if session.encoder is None else str(Path(session.encoder.path).absolute())
        return _ModelFile(str(path), str(library), session.n_gpu_layers, options, encoder)

    def open(self) -> Model:
        return Model(
            self.path,
            library=self.library,
            n_gpu_layers=self.n_gpu_layers,
            encoder=self.encoder,
            options=self.options,
        )


def _not_fitted() -> InvalidArgumentError:
    """Return the error for an unfitted classifier, which scikit-learn recognizes if installed."""
    reason = "the classifier is not fitted: call fit(), or pass labels to the constructor"
    try:
        from sklearn.exceptions import NotFittedError as Theirs
    except ImportError:
        return InvalidArgumentError(reason)

    class NotFittedError(InvalidArgumentError, Theirs):  # type: ignore[misc]
        def __reduce__(self) -> Any:  # pickle does not find a class in a function
            return _not_fitted, ()

    return NotFittedError(reason)


def _warn(method: str, what: str, errors: Mapping[int, object]) -> None:
    if errors:
        first, reason = next(iter(errors.items()))
        n = counted(len(errors), "text")
        logger.warning("Classifier.%s: %s %s; X[%d]: %s", method, n, what, first, reason)


def _label_to(label: Any) -> Any:
    """Return a label as JSON. An enum member becomes the names of its class and of the member."""
    if not isinstance(label, Enum):
        return label
    kind = type(label)
    written = {"enum": [kind.__module__, kind.__qualname__], "member": label.name}
    try:
        found = _label_from(written)
    except InvalidArgumentError:
        found = None
    if found is not label:
        raise InvalidArgumentError(
            f"labels of {kind.__qualname__} cannot be saved, because other programs cannot find "
            f"this enum: define it at the top level of a module"
        )
    return written


def _label_from(written: Any) -> Any:
    """Undo :func:`_label_to`. Does not import modules, because importing one can run code."""
    if not isinstance(written, dict):
        return written
    module, name = map(check_text, ("enum", "enum"), written["enum"])
    if module not in sys.modules:
        kind = f"{module}.{name}"
        raise InvalidArgumentError(f"its labels are members of {kind}: import {module} first")
    try:
        found = attrgetter(name)(sys.modules[module])
        if not isinstance(found, EnumMeta):
            raise AttributeError
        return found[written["member"]]
    except (AttributeError, KeyError):
        raise InvalidArgumentError(
            f"its label {written['member']} is no longer a member of an enum {module}.{name}"
        ) from None


def _kind(label: Any) -> Any:
    """Return the type of a label: its enum, str, or float for every number."""
    if isinstance(label, Enum):
        return type(label)
    return str if isinstance(label, str) else float


def _weights(sample_weight: Any, n: int) -> list[float] | None:
    if sample_weight is None:
        return None
    name = "sample_weight"
    weights = _values(sample_weight, name)
    if len(weights) != n:
        raise InvalidArgumentError(f"{name}: expected {n} weights, got {len(weights)}")
    checked = [check_number(f"{name}[{i}]", each, 0) for i, each in enumerate(weights)]
    if not sum(checked):
        raise InvalidArgumentError(f"{name}: expected a weight above 0")
    return checked


def _texts_and_labels(
    X: Any,  # noqa: N803
    y: Any,
    *,
    may_miss: bool = False,
) -> tuple[list[str], list[Any]]:
    texts, labels = _texts(X), _values(y, may_miss=may_miss)
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


def _values(column: Any, name: str = "y", *, may_miss: bool = False) -> list[Any]:
    """Return the values of a list, an array, or a column of pandas, polars or pyarrow.

    If `may_miss` is true, missing values become None. Otherwise they are errors.
    """
    column = check_several(name, column, "a list, an array or a column")
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise wrong(name, "one dimension", f"an array of {column.ndim} dimensions")
    if hasattr(column, "to_list"):
        column = column.to_list()
    values = [value.item() if isinstance(value, np.generic) else value for value in column]
    if may_miss:
        return [None if _is_missing(value) else value for value in values]
    for i, value in enumerate(values):
        if _is_missing(value):
            raise wrong(f"{name}[{i}]", "a value", value)
    return values


def _check_label(name: str, label: Any) -> None:
    if not isinstance(label, str | int | float | Enum):
        raise wrong(name, "a string, a number or an enum's member", label)


def _is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' NA. Comparing NA gives no bool."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _text(label: Any) -> str:
    """Return the text that stands for a label in the prompt; enum members are as in `choose`."""
    if isinstance(label, Enum):
        return label.value if isinstance(label.value, str) else label.name
    return str(label)


def _in_order(labels: Iterable[Any]) -> list[Any]:
    """Sort labels. scikit-learn's metrics expect the columns of probabilities in this order."""
    plain = str | int | float
    keys = {each: each if isinstance(each, plain) else str(each) for each in labels}
    return sorted(keys, key=lambda each: (type(each).__name__, keys[each]))
