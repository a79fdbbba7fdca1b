"""The classifier, with the embedded model, as scikit-learn's users call it."""

from __future__ import annotations

import enum
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Classifier, Model
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.library import Library

ANIMALS = ["cat", "dog", "horse", "cow", "bird", "fish", "sheep", "mouse"]
TOOLS = ["hammer", "saw", "drill", "nail", "screw", "ladder", "brush", "rope"]
FRAMES = ["I saw a {}.", "The {} is old.", "She likes this {} a lot.", "Where is my {}?"]


def rows(names: list[str]) -> list[str]:
    return [frame.format(name) for frame in FRAMES for name in names]


TEXTS = [*rows(ANIMALS[:6]), *rows(TOOLS[:6])]
LABELS = ["animal"] * 24 + ["tool"] * 24
UNSEEN = [*rows(ANIMALS[6:]), *rows(TOOLS[6:])]


@pytest.fixture(scope="module")
def tiny_model(library: Library) -> Iterator[Model]:
    """Return the embedded model without shared passes, which change how logits are rounded."""
    with Model(library=library, n_threads=1, seed=1, options={"batching": "off"}) as model:
        yield model


@pytest.fixture(scope="module")
def fitted(tiny_model: Model) -> Classifier:
    return Classifier(tiny_model, instructions="What is the text about?").fit(TEXTS, LABELS)


def test_without_labels_the_model_answers_itself(tiny_model: Model) -> None:
    classifier = Classifier(tiny_model, ["billing", "technical"])
    p = classifier.predict_proba(["I was charged twice.", "The app crashes."])
    assert p.shape == (2, 2)
    assert np.allclose(p.sum(1), 1)
    assert set(classifier.predict(["I was charged twice."])) <= {"billing", "technical"}
    assert classifier.classes_.tolist() == ["billing", "technical"]
    assert classifier.predict([]).shape == (0,)


def test_a_head_learns_from_labels(fitted: Classifier) -> None:
    assert fitted.method_.startswith("head")
    assert fitted.classes_.tolist() == ["animal", "tool"]
    assert fitted.score(TEXTS, LABELS) > 0.9
    assert fitted.nll_["head"] < min(np.log(2), fitted.nll_["temperature"])
    p = fitted.predict_proba(UNSEEN)
    assert p.shape == (16, 2)
    assert np.allclose(p.sum(1), 1)
    assert np.allclose(p, np.exp(fitted.predict_log_proba(UNSEEN)), atol=1e-3)


def test_few_texts_become_examples_in_the_prompt(tiny_model: Model) -> None:
    classifier = Classifier(tiny_model).fit(TEXTS[20:28], LABELS[20:28])
    assert classifier.method_ == "examples"
    assert classifier.predict_proba(UNSEEN[:2]).shape == (2, 2)
    chosen = Classifier(tiny_model, method="frequencies").fit(TEXTS[14:34], LABELS[14:34])
    assert chosen.method_ == "frequencies"
    rare = Classifier(tiny_model).fit([*TEXTS[:36], "A vase."], [*LABELS[:36], "other"])
    assert rare.method_ != "examples" and "head" in rare.nll_
    assert rare.predict_proba(UNSEEN[:2]).shape == (2, 3)


def test_a_fitted_classifier_can_be_pickled_without_its_open_model() -> None:
    fitted = Classifier().fit(TEXTS, LABELS)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.allclose(again.predict_proba(UNSEEN[:3]), fitted.predict_proba(UNSEEN[:3]), atol=1e-3)


def test_all_labels_get_a_probability_even_if_they_are_many(tiny_model: Model) -> None:
    labels = [f"label {i}" for i in range(300)]
    p = Classifier(tiny_model, labels).predict_proba(["x", "y"])
    assert p.shape == (2, 300)
    assert np.allclose(p.sum(1), 1)
    assert p.min() > 0


def test_labels_may_be_numbers_and_have_descriptions(tiny_model: Model) -> None:
    numbers = np.array([3] * 24 + [7] * 24)
    classifier = Classifier(tiny_model).fit(np.array(TEXTS), numbers)
    assert classifier.classes_.tolist() == [3, 7]
    assert classifier.predict(TEXTS[:1]).dtype == numbers.dtype
    equal = Classifier(tiny_model, [7, 3]).fit(TEXTS[20:28], numbers[20:28].astype(float))
    assert equal.classes_.tolist() == [3, 7]
    described = Classifier(tiny_model, {"tool": "for work", "animal": "alive", "plant": None})
    assert described.predict_proba(["x"]).shape == (1, 3)
    assert described.fit(TEXTS, LABELS).method_ != "head"  # there is no plant
    scalars = Classifier(tiny_model).fit(TEXTS[:4] + TEXTS[-4:], list(numbers[20:28]))
    assert scalars.classes_.tolist() == [3, 7]


Kind: Any = enum.Enum("Kind", {"ANIMAL": "living thing", "TOOL": 2})
Word: Any = enum.Enum("Word", {"ANIMAL": "animal", "TOOL": "tool"}, type=str)
ENUMS = [(Kind, ["living thing", "TOOL"]), (Word, ["animal", "tool"])]


@pytest.mark.parametrize(("members", "texts"), ENUMS)
@pytest.mark.parametrize("is_given", [True, False])
def test_labels_may_be_the_members_of_an_enum(
    tiny_model: Model, members: Any, texts: list[str], is_given: bool
) -> None:
    labels = [members.ANIMAL] * 24 + [members.TOOL] * 24
    classifier = Classifier(tiny_model, members if is_given else None).fit(TEXTS, labels)
    assert [option.value for option in classifier._asked.options] == texts
    assert set(classifier.predict(TEXTS)) == set(members)
    assert classifier.score(TEXTS, labels) > 0.9


def test_labels_may_change_until_the_classifier_is_fitted(tiny_model: Model) -> None:
    classifier = Classifier(tiny_model, ["a", "b"])
    classifier.predict(["x"])
    classifier.set_params(labels=["good", "bad"]).predict(["x"])
    assert classifier.classes_.tolist() == ["bad", "good"]


def test_a_file_gives_the_same_answers(
    tiny_model: Model, fitted: Classifier, tmp_path: Path
) -> None:
    path = tmp_path / "classifier.json"
    fitted.save(path)
    loaded = Classifier.load(path, tiny_model)
    assert loaded.method_ == "head"
    assert loaded.instructions == fitted.instructions
    assert np.allclose(loaded.predict_proba(UNSEEN), fitted.predict_proba(UNSEEN), atol=1e-3)
    few = Classifier(tiny_model).fit(TEXTS[20:28], LABELS[20:28])
    few.save(path)
    again = Classifier.load(path, tiny_model).predict_proba(UNSEEN[:2])
    assert np.allclose(again, few.predict_proba(UNSEEN[:2]), atol=1e-3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "x"}, "expected version 1"),
        ({"version": 2}, "expected version 1"),
        ({"model": "1-0"}, "it is for the model 1-0"),
        ({"labels": [["a", None]], "calibration": None}, "expected 2 to 100000 options, got 1"),
        ({"labels": [["a", None], ["b", None]]}, "its calibration is for other labels"),
        ({"labels": 5}, "not a usable classifier"),
        ({"calibration": "{}"}, "the field 'format' must be"),
        ({"calibration": 5}, "text must be a string"),
    ],
)
def test_a_damaged_file_is_rejected(
    tiny_model: Model, fitted: Classifier, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "classifier.json"
    fitted.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InvalidArgumentError, match=reason):
        Classifier.load(path, tiny_model)
    path.write_text("{")
    with pytest.raises(InvalidArgumentError, match="not a usable classifier"):
        Classifier.load(path, tiny_model)


@pytest.mark.parametrize(
    ("texts", "labels", "reason"),
    [
        (["a", "b"], ["x"], "as many labels as texts, got 1 and 2"),
        (["a", 5], ["x", "y"], r"X\[1\] must be a string"),
        (["a", "b"], ["x", "x"], "at least two labels"),
        ([], [], "at least two labels"),
        (["a", "b"], ["x", float("nan")], r"y\[1\] must be a value, got nan"),
        (["a", None], ["x", "y"], r"X\[1\] must be a value, got None"),
        ("text", ["x"], "X must be a list"),
        (np.array([["a", "b"]]), ["x", "y"], "X must be one dimension"),
    ],
)
def test_wrong_examples_are_named(tiny_model: Model, texts: Any, labels: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        Classifier(tiny_model).fit(texts, labels)
    with pytest.raises(InvalidArgumentError, match=r"y\[1\]: expected one of .*'b'.*, got 'c'"):
        Classifier(tiny_model, ["a", "b"]).fit(["x", "y"], ["a", "c"])
    with pytest.raises(InvalidArgumentError, match=r"labels\[1\] must be a string, .* got a tuple"):
        Classifier(tiny_model, ["a", ("b", "c")]).predict(["x"])


def test_parameters_follow_the_conventions(tiny_model: Model) -> None:
    classifier = Classifier(tiny_model, ["a", "b"])
    params = classifier.get_params()
    assert isinstance(params.pop("instructions"), str)
    assert params == {"model": tiny_model, "labels": ["a", "b"], "method": "auto"}
    assert classifier.set_params(labels=["c", "d"]) is classifier
    assert classifier.labels == ["c", "d"]
    with pytest.raises(InvalidArgumentError, match="labels must be a list"):
        Classifier(tiny_model, "abc").predict(["x"])
    with pytest.raises(InvalidArgumentError, match="method must be .* got 'magic'"):
        Classifier(tiny_model, method="magic").fit(TEXTS, LABELS)
    with pytest.raises(InvalidArgumentError, match="no parameter 'label'"):
        classifier.set_params(label=1)
    assert "Classifier(" in repr(classifier)


def test_scikit_learn_can_use_it(tiny_model: Model) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    classifier = Classifier(tiny_model)
    assert is_classifier(classifier)
    copy = clone(classifier)
    assert copy is not classifier and copy.model is tiny_model
    scores = cross_val_score(classifier, np.array(TEXTS), np.array(LABELS), cv=2)
    assert scores.shape == (2,)
    trim = FunctionTransformer(lambda x: [t.strip() for t in x])
    trimmed = Pipeline([("trim", trim), ("label", classifier)])
    assert trimmed.fit(TEXTS, LABELS).predict(UNSEEN).shape == (16,)
    asked = {"instructions": ["What is it?", "Animal or tool?"]}
    search = GridSearchCV(classifier, asked, cv=2, refit=False)
    search.fit(np.array(TEXTS), np.array(LABELS))
    assert len(search.cv_results_["mean_test_score"]) == 2
    descending = Classifier(tiny_model, ["tool", "animal"])
    areas = cross_val_score(descending, TEXTS, LABELS, cv=2, scoring="roc_auc")
    assert areas.min() > 0.9  # scikit-learn takes the last column for the label "tool"


# Those of scikit-learn's checks that give an estimator no numbers as inputs.
CHECKS = (
    *("estimator_cloneable", "estimator_tags_renamed", "valid_tag_types", "estimator_repr"),
    *("no_attributes_set_in_init", "get_params_invariance", "set_params", "mixin_order"),
    "parameters_default_constructible",
)


@pytest.mark.parametrize("name", CHECKS)
def test_the_checks_of_scikit_learn_pass(name: str) -> None:
    checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="no scikit-learn")
    getattr(checks, f"check_{name}")("Classifier", Classifier(labels=["a", "b"]))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_columns_of_tables_are_read(tiny_model: Model, fitted: Classifier, package: str) -> None:
    frames = pytest.importorskip(package, reason=f"{package} is not installed")
    column = frames.Series(UNSEEN)
    assert fitted.predict(column).tolist() == fitted.predict(UNSEEN).tolist()
    table = frames.DataFrame({"text": UNSEEN})  # its items are not its rows
    for ask in (fitted.predict, lambda given: tiny_model.choose_many(given, ["a", "b"])):
        with pytest.raises(InvalidArgumentError, match="got a DataFrame; pass one of its columns"):
            ask(table)
