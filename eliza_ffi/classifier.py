"""A text classifier with the interface of scikit-learn."""

from __future__ import annotations

import base64
import inspect
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from .checks import check_path, check_text, wrong
from .decisions.answers import ChoiceAnswer
from .decisions.auto_prompts import settings_of_prompts
from .decisions.fingerprint import fingerprint_of
from .decisions.learning.heads import LEAST_PER_CLASS, Head, candidate_layers, fit_head
from .decisions.learning.rows import RowReader
from .decisions.prompt_settings import PromptSettings
from .decisions.questions import Choice
from .decisions.scoring import log_softmax
from .errors import InvalidArgumentError
from .model import Model
from .structured.json_text import json_text, read_json

__all__ = ["LEAST_LABELS", "Classifier"]

LEAST_LABELS = 30
"""The minimum number of labelled texts for a head. With fewer, the texts become examples in the
prompt."""

INSTRUCTIONS = "Which label fits the text best?"

FORMAT, VERSION = "eliza-ffi classifier", 1


class Classifier:
    """Classifies texts with a language model, without or with labelled examples.

    It follows scikit-learn's conventions, and works in its pipelines and cross-validation.
    scikit-learn itself is not needed.

    - Before :meth:`fit`, the model answers a :class:`~eliza_ffi.decisions.Choice` among `labels`.
    - :meth:`fit` with at least 30 labelled texts, and five of each label, trains a linear head on
      the hidden state after the prompt: see :mod:`eliza_ffi.decisions.learning.heads`.
    - :meth:`fit` with fewer texts puts them into the prompt, as examples.

    Parameters
    ----------
    model
        An open :class:`~eliza_ffi.Model`, the path of a model file, or None for the default model.
    labels
        The labels, or a mapping from labels to descriptions. None takes them from the labels that
        :meth:`fit` is given.
    instructions
        The question, which the prompt contains.

    Attributes
    ----------
    classes_ : array, shape [n_labels]
        The labels, in the order of the columns of :meth:`predict_proba`.
    head_ : Head or None
        The fitted head.
    nll_ : dict
        If a head was fitted: for each of its layers, the cross-validated mean of -log p of the
        right labels if only this layer is used.

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
    ) -> None:
        self.model = model
        self.labels = labels
        self.instructions = instructions

    # ---- scikit-learn's interface ---------------------------------------------------------------

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
            If the numbers of texts and labels differ, a text is not a string, a label is not one of
            `labels`, or there are fewer than two labels.
        """
        texts, given = _texts(X), _values(y)
        if len(texts) != len(given):
            raise InvalidArgumentError(
                f"expected as many labels as texts, got {len(given)} and {len(texts)}"
            )
        labels = self._labels(given)
        question, values = self._question(labels), list(labels)
        place = {value: i for i, value in enumerate(values)}
        for i, label in enumerate(given):
            if not isinstance(label, Hashable) or label not in place:
                raise InvalidArgumentError(
                    f"y[{i}]: expected one of {values!r:.200}, got {label!r}"
                )
        targets = np.array([place[label] for label in given], dtype=np.intp)
        counts = np.bincount(targets, minlength=len(values))
        if len(texts) < LEAST_LABELS or counts.min() < LEAST_PER_CLASS:
            self._set(labels, None, list(zip(texts, map(str, given), strict=True)))
            return self
        reader = self._reader(question, texts)
        layers = candidate_layers(self._model().session.hidden_shape[0])
        fitted = fit_head(reader.read(texts, layers), targets, layers, len(values))
        self.nll_ = fitted.nll
        self._set(labels, fitted.head, [])
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable label of each text, shape [n]."""
        best = self.predict_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the logarithm of :meth:`predict_proba`."""
        texts = _texts(X)
        if not hasattr(self, "classes_"):
            self._set(self._labels(()), None, [])
        n_labels = len(self.classes_)
        if not texts:
            return np.empty((0, n_labels))
        if self.head_ is not None:
            reader = self._reader(self._asked, texts)
            return self.head_.log_probabilities(reader.read(texts, self.head_.layers))
        examples = self._examples or None
        decisions = self._model().decide_many(texts, [self._asked], examples=examples)
        values = [option.value for option in self._asked.options]
        p = [[cast(ChoiceAnswer, each[0]).probabilities[v] for v in values] for each in decisions]
        with np.errstate(divide="ignore"):
            return log_softmax(np.maximum(np.log(p), -700.0))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each label for each text, shape [n, n_labels]."""
        return np.exp(self.predict_log_proba(X))

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the share of texts whose most probable label is the right one."""
        right = _values(y)
        found = self.predict(X).tolist()
        if len(found) != len(right):
            raise InvalidArgumentError(
                f"expected as many labels as texts, got {len(right)} and {len(found)}"
            )
        return float(np.mean([a == b for a, b in zip(found, right, strict=True)]))

    # ---- Files ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a fitted classifier to a JSON file. The model is not part of it.

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
        head = self.head_
        content = {
            "format": FORMAT,
            "version": VERSION,
            "model": fingerprint_of(self._model()),
            "instructions": self.instructions,
            "labels": list(map(list, self._shown.items())),
            "examples": [list(pair) for pair in self._examples],
            "head": None
            if head is None
            else {
                "layers": list(head.layers),
                "weights": _packed(head.weights),
                "bias": _packed(head.bias),
            },
        }
        target.write_text(json_text(content) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: Any = None) -> Classifier:
        """Read a file that :meth:`save` wrote, for the same model.

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
            head = content["head"]
            n_embd = loaded._model().session.hidden_shape[1]
            layers = () if head is None else tuple(head["layers"])
            shape = (len(layers), n_embd, len(labels))
            loaded._set(
                labels,
                None
                if head is None
                else Head(
                    layers,
                    _unpacked(head["weights"], shape),
                    _unpacked(head["bias"], shape[2:]),
                ),
                [(text, label) for text, label in content["examples"]],
            )
        except KeyError as error:
            raise InvalidArgumentError(
                f"{source} is not a usable classifier: {error} is missing"
            ) from error
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{source} is not a usable classifier: {error}") from error
        return loaded

    # ---- Internal -------------------------------------------------------------------------------

    def _model(self) -> Model:
        if isinstance(self.model, Model):
            return self.model
        opened: tuple[Any, Model] | None = getattr(self, "_opened", None)
        if opened is None or opened[0] != self.model:
            opened = self._opened = self.model, Model(self.model)
        return opened[1]

    def _labels(self, given: Iterable[Any]) -> dict[Any, str | None]:
        """Return the labels of the constructor or else of `given`, with their descriptions."""
        labels = self.labels
        if labels is None:
            for i, label in enumerate(given := list(given)):
                if not isinstance(label, str | int | float):
                    raise wrong(f"y[{i}]", "a string or a number", label)
            labels = sorted(set(given), key=lambda value: (type(value).__name__, value))
            if len(labels) < 2:
                raise InvalidArgumentError(
                    f"expected at least two labels, got {labels}: pass labels to the constructor, "
                    "or fit the classifier"
                )
        return dict(labels) if isinstance(labels, Mapping) else dict.fromkeys(_values(labels))

    def _question(self, labels: Mapping[Any, str | None]) -> Choice:
        options = {str(value): description for value, description in labels.items()}
        if len(options) < len(labels):
            raise InvalidArgumentError(f"labels: two are written alike in {list(labels)!r:.200}")
        return Choice(check_text("instructions", self.instructions), options, "label")

    def _set(
        self, labels: dict[Any, str | None], head: Head | None, examples: list[tuple[str, str]]
    ) -> None:
        self._asked, self._shown = self._question(labels), labels
        self.head_, self._examples = head, examples
        kinds = {type(value) for value in labels}
        self.classes_ = np.array(list(labels), dtype=None if len(kinds) == 1 else object)

    def _reader(self, question: Choice, texts: Sequence[str]) -> RowReader:
        model = self._model()
        how: PromptSettings = settings_of_prompts(
            model.session, [question], {"prompt_order": "question-first"}, inputs=texts
        )
        return RowReader(model, question, how)


def _texts(given: Any) -> list[str]:
    """Return the texts of a list, an array or a column."""
    texts = _values(given, "X")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise wrong(f"X[{i}]", "a string", text)
    return texts


def _values(given: Any, name: str = "y") -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise wrong(name, "a list, an array or a column", given)
    if hasattr(given, "to_list"):  # a column of pandas or polars
        given = given.to_list()
    values = given.tolist() if isinstance(given, np.ndarray) else list(given)
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise wrong(name, "one dimension", f"an array of {given.ndim} dimensions")
    return values


def _packed(values: NDArray[np.float32]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode("ascii")


def _unpacked(text: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    packed = base64.b64decode(text, validate=True)
    values = np.frombuffer(packed[: len(packed) // 4 * 4], "<f4")
    if values.size != np.prod(shape) or not np.isfinite(values).all():
        raise InvalidArgumentError(f"expected {shape} finite numbers, got {values.size}")
    return values.reshape(shape).astype(np.float32)
