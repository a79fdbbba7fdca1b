"""A type checker accepts correct calls of the models and rejects wrong ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import eliza_ffi

pytestmark = pytest.mark.slow

ROOT = Path(eliza_ffi.__file__).parent.parent

RIGHT = """
import enum
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal, assert_type
from pydantic import BaseModel
from eliza_ffi.choices import LabelSet
from eliza_ffi.elizaos import ActionSkeleton
from eliza_ffi import AsyncModel, AsyncTextStream, CacheOptions, ChoiceResult, FillResult
from eliza_ffi import Gbnf, GenerationResult, Lark, Model, PreparedLabels, Prompt, Sampling
from eliza_ffi import Skeleton, Speculation, TextAnswer, TextStream, ToolCall, ToolCalls
from eliza_ffi.decisions import Choice, ChoiceAnswer, Decision, MultiLabel, Predicate
from eliza_ffi.decisions import PredicateAnswer, Question, RenderedQuestion, Score, ScoreAnswer
from eliza_ffi import Cascade, calibrate, evaluate
from eliza_ffi.evidence import Calibration, CascadeCalibration
from eliza_ffi.learning import DecisionReport
from eliza_ffi.learning.report import CascadeReport
from eliza_ffi.structured import PartialField, Regex

class Person(BaseModel):
    name: str

class Reply(enum.Enum):
    YES = "yes"

slot = CacheOptions(slot=1, key=None)

def fit(model: Model, rows: list[tuple[str, str]]) -> None:
    question = Choice("Which?", ["a", "b"])
    cascade = Cascade([model, (model, {"orders": 2})])
    fitted = calibrate(cascade, question, inputs=["x"], at=0.9, adaptive=True, teach=True)
    assert_type(fitted, CascadeCalibration)
    assert_type(evaluate(cascade, question, rows, calibration=fitted), CascadeReport)
    assert_type(calibrate(model, question, rows, risk=0.1, orders=2), Calibration)
    assert_type(evaluate(model, question, rows, reorder=1), DecisionReport)

def ask(model: Model, talk: list[dict[str, str]], values: LabelSet[float]) -> None:
    assert_type(model.choose("x", ["a", "b"]), ChoiceResult[str])
    assert_type(model.choose("x", (name for name in "ab")), ChoiceResult[str])
    assert_type(model.choose([1, 2], Reply), ChoiceResult[Reply])
    assert_type(model.choose("x", bool), ChoiceResult[bool])
    assert_type(model.choose(Prompt().text("x"), ["a"]), ChoiceResult[str])
    assert_type(model.choose("x", values), ChoiceResult[float])
    assert_type(model.choose(prompt=talk, labels=["a"], mode="best"), ChoiceResult[str])
    assert_type(model.choose("x", ["a"], cache=slot, seed=3, timeout=0).value, str)
    assert_type(model.generate("x", 5, min_p=0.1, seed=7), GenerationResult)
    assert_type(model.fill("x", {"spans": []}, max_tokens=3), FillResult[Any])
    assert_type(model.fill("x", Skeleton.from_dict({}), max_tokens=3), FillResult[Any])
    assert_type(model.fill("x", Person).value, Person)
    assert_type(model.fill("x", schema=Regex("a+")).value, str)
    assert_type(model.fill("x", {"type": "string"}).relaxed, tuple[str, ...])
    assert_type(model.fill_stream("x", Person), Iterator[PartialField | FillResult[Person]])
    assert_type(model.fill_many(["x"], Person), list[FillResult[Any]])
    assert_type(model.generate("x", schema=Person, stop="a"), GenerationResult)
    assert_type(model.generate(talk, schema=Gbnf('root ::= "a"')), GenerationResult)
    assert_type(model.generate([1, 2], schema=Lark('start: "a"')), GenerationResult)
    assert_type(model.generate("x", sampling=Sampling(temperature=1.0)), GenerationResult)
    assert_type(model.generate("x", speculation=Speculation(8), cache=slot), GenerationResult)
    assert_type(model.generate_many([talk, "x", [1]], 3, cache=slot), list[GenerationResult])
    assert_type(model.choose_many([talk, "x"], ["a"], cache=slot), list[ChoiceResult[Any]])
    assert_type(model.fill_many([talk], Person, cache=slot, retries=2), list[FillResult[Any]])
    assert_type(model.save_prompt_cache("file", talk, cache=slot, timeout=1.5), int)
    small = CacheOptions(type_k="q8_0", type_v="q8_0")
    assert_type(model.load_prompt_cache("file", cache=small), int)
    assert_type(model.call_tool(talk, [], cache=slot), ToolCall | TextAnswer)
    assert_type(model.call_tools(talk, [], "required"), ToolCalls)
    with model.stream("x", schema=Regex("a+"), logprobs=2) as pieces:
        assert_type(pieces, TextStream)
        assert_type(next(pieces), str)
        assert_type(pieces.result, GenerationResult)
    any_pieces: Iterator[str] = model.stream(talk, cache=slot)
    assert_type(model.prepare_labels(Reply), PreparedLabels[Reply])
    assert_type(model.prepare_labels(bool), PreparedLabels[bool])
    assert_type(model.prepare_labels(values), PreparedLabels[float])
    assert_type(model.prepare_labels(["a"]), PreparedLabels[str])
    assert_type(model.choose("x", model.prepare_labels(Reply)), ChoiceResult[Reply])
    labels = MultiLabel("which?", {"a": None})
    questions = [Predicate("angry?"), Score("how?", ["low", "high"]), labels]
    assert_type(model.decide("x", questions, answer_style="letters", scoring="full"), Decision)
    angry = model.decide(talk, {"a": Predicate("angry?")}, prompt=write, cache=slot)
    assert_type(angry, Decision[PredicateAnswer])
    assert_type(model.decide("x", Choice("team?", ["a", "b"]))[0].choice, str)
    assert_type(model.decide("x", Choice("?", {"a": "first", "b": None}))[0], ChoiceAnswer[str])
    assert_type(model.decide("x", Choice("?", [("a", None), ("b", "x")]))[0], ChoiceAnswer[str])
    assert_type(model.decide("x", Choice("really?", Reply))["0"].value, Reply | None)
    assert_type(Choice("?", Literal["a", "b"]), Choice[Any])
    assert_type(model.decide("x", MultiLabel("?", ["a"]))[0].probabilities, Mapping[str, float])
    assert_type(model.decide("x", Score("?", ["a", "b"]))[0].label, str)
    assert_type(model.decide_many(["x"], Score("?", ["a", "b"])), list[Decision[ScoreAnswer]])
    assert_type(model.decide("x", any_questions), Decision)
    assert_type(model.decide("x", {"type": "predicate"}), Decision)
    assert_type(model.decide_many(["x", {"a": 1}], questions, orders=2), list[Decision])
    assert_type(model.decision_prompts("x", questions), list[str])
    decision = model.decide("x", questions)
    assert_type(decision[0], Any)
    assert_type(decision["angry"], Any)
    assert_type(decision.to_json(), str)
    assert_type(decision.to_dict(), dict[str, Any])

any_questions: Sequence[Question] = ()

def write(given: str, asked: RenderedQuestion) -> Prompt:
    return Prompt().text(given + asked.text)

async def ask_async(model: AsyncModel) -> None:
    assert_type(await model.choose("x", ["a", "b"]), ChoiceResult[str])
    assert_type(await model.choose("x", Reply), ChoiceResult[Reply])
    assert_type(await model.generate_many(["x"], 3), list[GenerationResult])
    assert_type(await model.decide("x", Predicate("angry?")), Decision[PredicateAnswer])
    many = await model.decide_many(["x"], Choice("?", Reply))
    assert_type(many, list[Decision[ChoiceAnswer[Reply]]])
    assert_type(await model.prepare_labels(Reply), PreparedLabels[Reply])
    assert_type(await model.choose("x", await model.prepare_labels(Reply)), ChoiceResult[Reply])
    assert_type((await model.fill("x", Person)).value, Person)
    async for field in model.fill_stream("x", Person):
        assert_type(field, PartialField | FillResult[Person])
    async for text in model.stream("x"):
        assert_type(text, str)
    async with model.stream([{"role": "user", "content": "x"}], cache=slot) as pieces:
        assert_type(pieces, AsyncTextStream)
        assert_type(pieces.result, GenerationResult)
    any_pieces: AsyncIterator[str] = model.stream("x")
    assert_type(await model.generate("x", speculation=Speculation()), GenerationResult)
    assert_type(await model.save_prompt_cache("file", "x", cache=slot), int)
"""

WRONG = {
    'model.generate("x", temperatur=1.0)': "temperatur",
    'model.choose("x", ["a"], mode="beast")': "overload",
    'model.generate("x", gbnf_grammar="")': "gbnf_grammar",
    'model.generate("x", cache=1)': "cache",
    'model.generate("x", cache={"slot": 1})': "cache",
    'model.generate("x", slot_id=1)': "slot_id",
    'model.generate("x", speculation=4)': "speculation",
    'model.generate("x", shape={})': "shape",
    "model.generate(messages=[])": "messages",
    'model.generate("x", on_text_chunk=print)': "on_text_chunk",
    'model.generate({"role": "user"})': "Argument 1",
    'model.stream("x", on_text=print)': "on_text",
    'model.stream("x").result.txt': "txt",
    'model.generate_many(["x"], slot_id=1)': "slot_id",
    'model.choose("x", choices=["a"])': "overload",
    'model.choose("x", ["a"], speculation=None)': "overload",
    'model.fill("x", skeleton={})': "overload",
    'model.fill("x", {}, speculation=None)': "overload",
    'model.save_prompt_cache("file", "x", slot_id=1)': "slot_id",
    'model.load_prompt_cache("file", cache_type_k="f32")': "cache_type_k",
    'model.decide("x", [], slot_id=1)': "overload",
    'CacheOptions(slot="1")': "slot",
    'Speculation(max_tokens="4")': "max_tokens",
    "Gbnf(1)": "Gbnf",
    "Model(gpu_layers=0)": "gpu_layers",
    'model.fill("x", {}, sample=None)': "overload",
    'model.fill("x", "text")': "overload",
    'model.choose_many(["x"], ["a"], probs=True)': "probs",
    'model.decide("x", [], scoring="best")': "overload",
    'model.decide("x", [], order=2)': "overload",
    'model.decide("x", Predicate("so?"))[0].choice': "choice",
    'model.decide("x", Choice("?", ["a", "b"]))[0].probabilty': "probabilty",
}


def program_of_readme() -> str:
    blocks = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1:]
    (program,) = [block.partition("```")[0] for block in blocks]
    assert "answer.choice" in program
    return program


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what mypy reports about both programs."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("programs")
    lines = "".join(f"    {call}\n" for call in WRONG)
    names = "CacheOptions, Gbnf, Model, Speculation"
    imports = f"from eliza_ffi import {names}\nfrom eliza_ffi.decisions import Choice, Predicate\n"
    wrong = f"{imports}def ask(model: Model) -> None:\n{lines}"
    readme = program_of_readme()
    for name, program in (("right.py", RIGHT), ("wrong.py", wrong), ("readme.py", readme)):
        (folder / name).write_text(program, encoding="utf-8")
    cache = f"--cache-dir={ROOT / 'build' / 'mypy'}"  # reused between runs
    options = ["--strict", "--no-error-summary", cache, "right.py", "wrong.py", "readme.py"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stdout.splitlines()


def test_correct_calls_have_the_expected_types(found: list[str]) -> None:
    errors = [line for line in found if ": error: " in line]
    assert errors and [line for line in errors if not line.startswith("wrong.py:")] == []


@pytest.mark.parametrize("place", range(len(WRONG)), ids=list(WRONG))
def test_a_type_checker_rejects_wrong_calls(found: list[str], place: int) -> None:
    said = list(WRONG.values())[place]
    assert [line for line in found if line.startswith(f"wrong.py:{place + 4}:") and said in line]
