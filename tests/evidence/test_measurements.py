"""Measurements of a model that later processes find in files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eliza_ffi import Model
from eliza_ffi.decisions.prompt_settings import PromptSettings
from eliza_ffi.decisions.questions import Choice
from eliza_ffi.evidence import auto_prompts, measurements
from eliza_ffi.evidence.auto_prompts import settings_of_prompts
from eliza_ffi.evidence.measurements import MAX_FILES, VARIABLE, find, folder, keep
from eliza_ffi.evidence.question_plan import QuestionPlan
from eliza_ffi.library.loading import Library

TEAM = Choice("Which team is it?", {"billing": "money", "sales": None}, "team")
NUMBERS = {"constrained": [-0.5, -1.25], "full": [-3.0, -1e-17]}
SIZES = {"constrained": 2, "full": 2}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the measurements of this test."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


@pytest.fixture
def opened(library: Library, random_model_path: Callable[..., Path]) -> Callable[[], Model]:
    """Return a function that opens the same model as a new process would."""
    return lambda: Model(random_model_path("llama-spm"), library=library, n_threads=1)


def measures(model: Model, question: Choice = TEAM, **settings: Any) -> bool:
    """Return whether a request would measure the prior."""
    full = settings.pop("full", False)
    how = PromptSettings(format="plain", prior="options", order="question-first", **settings)
    plan = QuestionPlan(model.session, [question], how, full=full)
    return any(plan.prior_runs(model.session))


def decide(model: Model, question: Choice = TEAM, **settings: Any) -> Any:
    asked: Any = {"prompt_format": "plain", "prior": "options", **settings}
    return model.decide("I paid twice.", question, **asked)


def test_another_process_finds_the_prior_of_a_question(
    kept: Path, opened: Callable[[], Model]
) -> None:
    with opened() as model:
        first = decide(model)
    (file,) = kept.iterdir()
    assert not any(word in file.read_text() for word in ("team", "billing", "money", "paid"))
    with opened() as model:
        assert not measures(model)
        second = decide(model)
    assert second["team"].distribution == pytest.approx(first["team"].distribution, abs=1e-4)
    assert [each.name for each in kept.iterdir()] == [file.name]


def test_other_questions_settings_and_models_have_other_priors(
    kept: Path, opened: Callable[[], Model], tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as model:
        decide(model)
    described = Choice(TEAM.instructions, {"billing": "invoices", "sales": None}, "team")
    with opened() as model:
        assert not measures(model)
        assert measures(model, described)
        assert measures(model, answer_style="letters")
        assert measures(model, full=True)
        assert measures(tiny_model)
    monkeypatch.setattr("eliza_ffi.__version__", "0.0.0", raising=False)
    with opened() as model:
        assert measures(model)


def test_full_scores_have_a_prior_for_each_rule(kept: Path, opened: Callable[[], Model]) -> None:
    with opened() as model:
        first = decide(model, scoring="full")
    with opened() as model:
        assert not measures(model, full=True)
        second = decide(model, scoring="full")
    assert second["team"].distribution == pytest.approx(first["team"].distribution, abs=1e-4)


def test_another_process_finds_the_format_of_a_model(
    kept: Path, tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat_mass, measured = auto_prompts._chat_mass, []
    monkeypatch.setattr(auto_prompts, "declared", lambda session: (None, None))
    monkeypatch.setattr(
        auto_prompts, "_chat_mass", lambda *given: measured.append(1) or chat_mass(*given)
    )
    forms = []
    for _ in range(2):
        monkeypatch.setattr(auto_prompts, "_measured", lambda session, new=[]: [])
        forms.append(settings_of_prompts(tiny_model.session, [TEAM], {}).format)
    assert (forms[0], len(measured)) == (forms[1], 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"",
        lambda raw: raw[:-5],
        lambda raw: raw.replace(b"-0.5", b"-0.6"),
        lambda raw: b"[1, 2]",
        lambda raw: b"\xff\xfe",
        lambda raw: b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_ignored_and_replaced(
    kept: Path, change: Callable[[bytes], bytes]
) -> None:
    keep("a", NUMBERS)
    (file,) = kept.iterdir()
    file.write_bytes(change(file.read_bytes()))
    assert find("a", SIZES) is None
    keep("a", NUMBERS)
    assert find("a", SIZES) == NUMBERS


def test_numbers_of_another_size_or_name_are_not_used(kept: Path) -> None:
    keep("a", NUMBERS)
    assert find("a", {"constrained": 3, "full": 2}) is None
    assert find("a", {"mass": 1}) is None
    keep("b", {"mass": [float("nan")]})
    assert find("b", {"mass": 1}) is None


def test_the_least_recently_used_files_are_removed(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurements, "MAX_FILES", 3)
    for age, name in enumerate("abc"):
        keep(name, NUMBERS)
        os.utime(kept / f"{name}.json", (1000 + age, 1000 + age))
    assert find("a", SIZES) == NUMBERS
    keep("d", NUMBERS)
    assert sorted(each.name for each in kept.iterdir()) == ["a.json", "c.json", "d.json"]
    assert MAX_FILES > 3


def test_nothing_is_kept_if_it_is_off_or_the_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[], Model]
) -> None:
    (tmp_path / "file").write_text("x")
    for value in ("off", str(tmp_path / "file"), str(tmp_path / "file" / "folder")):
        monkeypatch.setenv(VARIABLE, value)
        keep("a", NUMBERS)
        assert find("a", SIZES) is None
        with opened() as model:
            assert sum(decide(model)["team"].distribution) == pytest.approx(1)
            assert not measures(model)  # the open model knows it
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_the_folder_is_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("ELIZA_FFI_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "eliza-ffi" / "measurements"
    monkeypatch.setenv("ELIZA_FFI_CACHE", str(tmp_path / "own"))
    assert folder() == tmp_path / "own" / "measurements"
    monkeypatch.setenv(VARIABLE, "off")
    assert folder() is None
