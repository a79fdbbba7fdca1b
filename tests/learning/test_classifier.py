"""The classifier, with the embedded model, as scikit-learn's users call it."""

from __future__ import annotations

import enum
import json
import logging
import pickle
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Classifier, Model
from eliza_ffi.decisions import Choice
from eliza_ffi.errors import ContextFullError, ElizaError, InvalidArgumentError
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


@pytest.mark.parametrize("n", [2, 255, 256, 600])
def test_the_probabilities_of_many_labels_are_exact(tiny_model: Model, n: int) -> None:
    labels = [f"label {i}" for i in range(n)]
    classifier = Classifier(tiny_model, labels)
    texts = ["x", "The parcel is late."]
    p = classifier.predict_proba(texts)
    assert p.shape == (2, n)
    assert np.allclose(p.sum(1), 1)
    for row, text in zip(p, texts, strict=True):
        question = Choice(classifier.instructions, labels)
        # With this setting all options are scored, instead of searching the best ones.
        scored = tiny_model.decide(text, replace(question, top=n), allowed_probability=True)[0]
        of_label = dict(zip(classifier.classes_.tolist(), row, strict=True))
        assert of_label == pytest.approx(dict(scored.probabilities), rel=0.1, abs=1e-5)  # rounding
    assert classifier.predict(texts).tolist() == classifier.classes_[p.argmax(1)].tolist()


def test_many_labels_can_be_fitted(tiny_model: Model, tmp_path: Path) -> None:
    labels = [f"label {i}" for i in range(300)]
    rare = Classifier(tiny_model, labels, method="temperature")
    rare.fit(TEXTS[:20], labels[:20])
    p = rare.predict_proba(UNSEEN[:2])
    assert p.shape == (2, 300) and np.allclose(p.sum(1), 1)
    assert len(set(p[0].round(12).tolist())) > 250  # different values, not one for the rest
    rare.save(tmp_path / "many.json")
    again = Classifier.load(tmp_path / "many.json", tiny_model).predict_proba(UNSEEN[:2])
    assert np.allclose(again, p, atol=1e-3)


def test_labels_may_be_numbers_and_have_descriptions(tiny_model: Model) -> None:
    numbers = np.array([3] * 24 + [7] * 24)
    classifier = Classifier(tiny_model).fit(np.array(TEXTS), numbers)
    assert classifier.classes_.tolist() == [3, 7]
    assert classifier.predict(TEXTS[:1]).dtype == numbers.dtype
    equal = Classifier(tiny_model, [7, 3]).fit(TEXTS[20:28], numbers[20:28].astype(float))
    assert equal.classes_.tolist() == [3, 7]
    described = Classifier(tiny_model, {"tool": "for work", "animal": "alive", "plant": None})
    assert described.predict_proba(["x"]).shape == (1, 3)
    assert described.fit(TEXTS, LABELS).method_ != "head"  # no text has the label plant
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


@pytest.mark.parametrize("members", [Kind, Word])
def test_a_file_keeps_the_members_of_an_enum(
    tiny_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: Any
) -> None:
    module = types.ModuleType("own_labels")
    monkeypatch.setattr(members, "__module__", module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module)[members.__name__] = members
    labels = [members.ANIMAL] * 24 + [members.TOOL] * 24
    path = tmp_path / "classifier.json"
    Classifier(tiny_model, members).fit(TEXTS, labels).save(path)
    loaded = Classifier.load(path, tiny_model)
    assert {*map(type, loaded.predict(TEXTS))} == {members}
    assert loaded.score(TEXTS, labels) > 0.9
    monkeypatch.setitem(vars(module), members.__name__, enum.Enum(members.__name__, ["TOOL"]))
    with pytest.raises(InvalidArgumentError, match="its label ANIMAL is no longer a member of"):
        Classifier.load(path, tiny_model)
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(InvalidArgumentError, match="import own_labels first"):
        Classifier.load(path, tiny_model)
    before = path.read_text()
    with pytest.raises(InvalidArgumentError, match="define it at the top level of a module"):
        Classifier(tiny_model, members).fit(TEXTS, labels).save(path)
    assert path.read_text() == before


def test_a_file_cannot_import_a_module(
    tiny_model: Model, fitted: Classifier, tmp_path: Path
) -> None:
    path = tmp_path / "classifier.json"
    fitted.save(path)
    content = json.loads(path.read_text())
    for place, reason in [
        (["antigravity", "X"], "import antigravity first"),
        (["os", "path"], "no"),
    ]:
        content["labels"][0][0] = {"enum": place, "member": "A"}
        path.write_text(json.dumps(content))
        with pytest.raises(InvalidArgumentError, match=reason):
            Classifier.load(path, tiny_model)
    assert "antigravity" not in sys.modules


def test_a_score_weights_the_texts_and_rejects_other_labels(
    tiny_model: Model, fitted: Classifier
) -> None:
    found = fitted.predict(UNSEEN).tolist()
    other = {"animal": "tool", "tool": "animal"}
    right = [*found[:4], *(other[each] for each in found[4:])]
    assert fitted.score(UNSEEN, right) == 4 / 16
    assert fitted.score(UNSEEN, right, sample_weight=np.array([3.0] * 4 + [1.0] * 12)) == 0.5
    assert fitted.score(UNSEEN, right, [1] * 4 + [0] * 12) == 1.0
    # A label that is not known is a wrong answer, but a label of another type is a mistake.
    assert fitted.score(UNSEEN, ["vase"] * 16) == 0.0
    numbers = Classifier(tiny_model, [1, 2])
    for classifier, labels in [
        *((fitted, each) for each in ([0] * 16, [True] * 16, [1.0] * 16, [Kind.TOOL] * 16)),
        (numbers, ["1"] * 16),
        (Classifier(tiny_model, Kind), ["living thing"] * 16),
    ]:
        with pytest.raises(InvalidArgumentError, match=r"y\[0\]: expected a label like"):
            classifier.score(UNSEEN, labels)
    assert 0 <= numbers.score(UNSEEN, np.ones(16)) <= 1
    wrong: list[tuple[Any, str]] = [
        ([1.0], "expected 16 weights, got 1"),
        ([-1.0] * 16, r"sample_weight\[0\] must be a number of 0 or more, got -1.0"),
        ([0.0] * 16, "expected a weight above 0"),
        (["a"] * 16, r"sample_weight\[0\] must be a number"),
        (5, "sample_weight must be a list"),
    ]
    for weights, reason in wrong:
        with pytest.raises(InvalidArgumentError, match=reason):
            fitted.score(UNSEEN, right, weights)


def test_a_text_that_is_too_long_can_be_an_error_of_its_row(
    library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    long = "word " * 400
    with Model(library=library, n_threads=1, n_ctx=256) as model:
        classifier = Classifier(model, ["animal", "tool"])
        for call in (classifier.predict, classifier.predict_proba):
            with pytest.raises(ContextFullError, match=r"inputs\[1\]"):
                call(["a", long])
        classifier.set_params(on_error="row")
        with caplog.at_level(logging.WARNING, "eliza_ffi"):
            p = classifier.predict_proba(["a", long, "b"])
            found = classifier.predict(["a", long, "b"])
        assert np.isnan(p).tolist() == [[False] * 2, [True] * 2, [False] * 2]
        assert [each is None for each in found] == [False, True, False]
        assert "Classifier.predict: 1 text not classified; X[1]: " in caplog.text
        assert classifier.score(["a", long], [found[0], "tool"]) == 0.5
        caplog.clear()
        texts, labels = [*TEXTS[:24], long, *TEXTS[24:]], [*LABELS[:24], "tool", *LABELS[24:]]
        with pytest.raises(ContextFullError, match="example 24"):
            Classifier(model, method="frequencies").fit(texts, labels)
        with caplog.at_level(logging.WARNING, "eliza_ffi"):
            Classifier(model, method="frequencies", on_error="row").fit(texts, labels)
        assert "Classifier.fit: 1 text left out; X[24]: " in caplog.text
        with pytest.raises(InvalidArgumentError, match="on_error must be one of raise, row"):
            Classifier(model, ["a", "b"], on_error="rows").predict(["a"])  # type: ignore[arg-type]
    with pytest.raises(ElizaError, match="closed"):  # not an error of a row
        classifier.predict(["a", "b"])


def test_a_classifier_without_labels_is_not_fitted(
    tiny_model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions = pytest.importorskip("sklearn.exceptions", reason="scikit-learn is not installed")
    classifier = Classifier(tiny_model)
    calls: list[Any] = [
        *(lambda: classifier.predict(["x"]), lambda: classifier.predict_proba(["x"])),
        *(lambda: classifier.score(["x"], ["a"]), lambda: classifier.save(tmp_path / "file")),
    ]
    for call in calls:
        with pytest.raises(exceptions.NotFittedError, match="not fitted: call fit") as caught:
            call()
        assert isinstance(caught.value, InvalidArgumentError)
        again = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(again, exceptions.NotFittedError) and str(again) == str(caught.value)
    monkeypatch.setitem(sys.modules, "sklearn.exceptions", None)  # as if it were not installed
    for call in calls:
        with pytest.raises(InvalidArgumentError, match="not fitted: call fit"):
            call()


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
        (["a", "b"], ["x", float("nan")], "at least two labels"),  # nan: it has no label
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
    assert params.pop("on_error") == "raise"
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
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
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
    mixed = StratifiedKFold(2, shuffle=True, random_state=0)  # all sentences in both halves
    areas = cross_val_score(descending, TEXTS, LABELS, cv=mixed, scoring="roc_auc")
    assert areas.min() > 0.9  # scikit-learn takes the last column for the label "tool"


def test_scikit_learn_can_route_weights_to_the_score(tiny_model: Model) -> None:
    sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.base import clone
    from sklearn.model_selection import cross_validate
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    texts, labels = np.array(TEXTS), np.array(LABELS)
    weights = np.where(labels == "tool", 0.0, 1.0)
    given: dict[str, Any] = {"cv": 2, "error_score": "raise"}
    asked = Classifier(tiny_model, ["animal", "tool"], method="none")
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(FunctionTransformer(), asked)
        plain = cross_validate(pipeline, texts, labels, **given)["test_score"]
        assert not np.isnan(plain).any()
        asked.set_score_request(sample_weight=True)
        assert clone(asked).get_metadata_routing().score.requests == {"sample_weight": True}
        params = {"sample_weight": weights}
        weighted = cross_validate(pipeline, texts, labels, params=params, **given)["test_score"]
    is_animal = asked.predict(texts[labels == "animal"]) == "animal"
    assert weighted.mean() == pytest.approx(is_animal.mean())
    with pytest.raises(InvalidArgumentError, match="sample_weight must be True, False, None or"):
        asked.set_score_request(sample_weight=1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_open", [True, False])
def test_scikit_learn_can_run_it_in_other_processes(tiny_model: Model, is_open: bool) -> None:
    """An open model is opened again in each process, with the same arguments."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.model_selection import cross_val_score

    classifier = Classifier(tiny_model if is_open else tiny_model.path, ["animal", "tool"])
    classifier.set_params(method="none")
    texts, labels = np.array(TEXTS), np.array(LABELS)
    alone, beside = (
        cross_val_score(classifier, texts, labels, cv=2, n_jobs=n, error_score="raise")
        for n in (None, 2)
    )
    assert alone.tolist() == beside.tolist()


def test_a_copy_of_an_open_model_keeps_its_arguments(library: Library) -> None:
    given: dict[str, Any] = {"n_ctx": 512, "n_slots": 2, "options": {"batching": "off"}}
    with Model(library=library, seed=7, **given) as model:
        again = pickle.loads(pickle.dumps(Classifier(model, ["a", "b"])))
        p = Classifier(model, ["a", "b"]).predict_proba(["x"])
        assert np.allclose(again.predict_proba(["x"]), p, atol=1e-3)
        copy = again._model()
        assert copy is not model and copy.path == model.path
        assert copy.session.turns.n == 2
        for each in ("n_ctx", "batching"):
            assert copy.describe()["passes"].get(each) == model.describe()["passes"].get(each)
        assert copy.binding.library.path.resolve() == model.binding.library.path.resolve()
        assert pickle.loads(pickle.dumps(again)).model == again.model
        copy.close()


# The checks of scikit-learn that pass no numbers as inputs.
CHECKS = (
    *("estimator_cloneable", "estimator_tags_renamed", "valid_tag_types", "estimator_repr"),
    *("no_attributes_set_in_init", "get_params_invariance", "set_params", "mixin_order"),
    *("parameters_default_constructible", "do_not_raise_errors_in_init_or_set_params"),
)


@pytest.mark.parametrize("name", CHECKS)
def test_the_checks_of_scikit_learn_pass(name: str) -> None:
    checks = pytest.importorskip("sklearn.utils.estimator_checks", reason="no scikit-learn")
    getattr(checks, f"check_{name}")("Classifier", Classifier(labels=["a", "b"]))


def test_arrays_of_pyarrow_are_read(tiny_model: Model, fitted: Classifier) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for column in (pa.array(UNSEEN[:4]), pa.chunked_array([UNSEEN[:2], UNSEEN[2:4]])):
        assert fitted.predict(column).tolist() == fitted.predict(UNSEEN[:4]).tolist()
        asked = Choice("What is it?", pa.array(["animal", "tool"]))
        answers = tiny_model.decide_many(column, asked)
        assert len(answers) == 4 and set(answers[0][0].probabilities) == {"animal", "tool"}
        assert len(tiny_model.choose_many(column, pa.array(["a", "b"]))) == 4
        assert tiny_model.embed(column).shape[0] == 4
    few = Classifier(tiny_model).fit(pa.array(TEXTS[20:28]), pa.array([3] * 4 + [7] * 4))
    assert few.classes_.tolist() == [3, 7]
    with pytest.raises(InvalidArgumentError, match=r"X\[1\] must be a value, got None"):
        fitted.predict(pa.array(["a", None]))
    with pytest.raises(InvalidArgumentError, match="pass one of its columns"):
        fitted.predict(pa.table({"text": UNSEEN}))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_columns_of_tables_are_read(tiny_model: Model, fitted: Classifier, package: str) -> None:
    frames = pytest.importorskip(package, reason=f"{package} is not installed")
    column = frames.Series(UNSEEN)
    assert fitted.predict(column).tolist() == fitted.predict(UNSEEN).tolist()
    table = frames.DataFrame({"text": UNSEEN})  # its items are not its rows
    for ask in (fitted.predict, lambda given: tiny_model.choose_many(given, ["a", "b"])):
        with pytest.raises(InvalidArgumentError, match="got a DataFrame; pass one of its columns"):
            ask(table)


def test_texts_without_labels_teach_the_classifier_too(
    tiny_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten texts are too few, so the model's own answers are kept."""
    with caplog.at_level(logging.WARNING, "eliza_ffi"):
        classifier = Classifier(tiny_model, ["animal", "tool"]).fit(TEXTS[:10], [None] * 10)
    assert "got 10 different rows, but learning without labels needs 60" in caplog.text
    assert classifier.method_ == "none"
    assert classifier.nll_ == {}
    few = Classifier(tiny_model).fit(TEXTS, [*LABELS[:-1], None])
    assert few.method_ != "none"
