"""Call every public function with every kind of wrong argument.

A wrong argument raises an exception of the package. No AttributeError, KeyError, TypeError or
similar exception escapes from inside the package, and the model stays usable.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import os
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from public_names import ROOMS as PUBLIC_ROOMS
from public_names import public_members

import eliza_ffi
from eliza_ffi import (
    AsyncModel,
    Classifier,
    Model,
    chat,
    choices,
    decisions,
    elizaos,
    session,
    structured,
)
from eliza_ffi import library as native
from eliza_ffi.decisions.deciding import DecideSettings
from eliza_ffi.decisions.prompt_settings import PromptArguments, PromptSettings
from eliza_ffi.decisions.scoring import OptionScores, QuestionScores
from eliza_ffi.elizaos import runner_of
from eliza_ffi.errors import ElizaError
from eliza_ffi.library.loading import Library
from eliza_ffi.sampling import Sampling, parse_order
from eliza_ffi.session import options, tool_calls

PACKAGE = str(Path(eliza_ffi.__file__).parent)
PROMPT = "message: hello\naction: "
CONVERSATION = [{"role": "user", "content": "hello"}]
QUESTIONS = {"action": {"type": "choice", "instructions": "What?", "choices": ["GO", "STAY"]}}
TOOLS = [{"type": "function", "function": {"name": "GO"}}]
SKELETON = {"spans": [{"kind": "enum", "key": "action", "enumValues": ["GO", "STAY"]}]}


class Odd:
    """A class that is wrong for every argument."""


class Anything:
    """A class that can be called with anything."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


def anything(*_: Any, **__: Any) -> None: ...


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a flag": lambda: True,
    "zero": lambda: 0,
    "a number": lambda: 7,
    "a negative number": lambda: -1,
    "a fraction": lambda: 0.5,
    "nan": lambda: math.nan,
    "infinity": lambda: math.inf,
    "a number of 64 bits": lambda: 2**63,
    "a number of 5,000 digits": lambda: 10**5000,
    "a string": lambda: "x",
    "an empty string": lambda: "",
    "a NUL": lambda: "a\0b",
    "a lone surrogate": lambda: "\ud800",
    "bytes": lambda: b"x",
    "an empty list": list,
    "numbers": lambda: [1, 2],
    "strings": lambda: ["a", "b"],
    "lists": lambda: [["a"], ["b", "c"]],
    "a list of None": lambda: [None],
    "mappings": lambda: [{"role": "user"}],
    "a tuple": lambda: ("a", 1),
    "an empty mapping": dict,
    "a mapping": lambda: {"a": 1},
    "a mapping of numbers": lambda: {1: 2},
    "a set": lambda: {1},
    "an object": Odd,
    "a class": lambda: Anything,
    "a function": lambda: anything,
    "an array": lambda: np.zeros((2, 2)),
    "an array of no dimension": lambda: np.array(5),
    "an iterator": lambda: iter((1, 2)),
}

CALLED = {
    *("tokenize", "detokenize", "prepare", "vocabulary", "progress", "on_skip", "on_span"),
    *("on_text", "on_text_chunk", "on_token", "callback", "prompt"),
}
"""Parameters that take a function. A function or a class is a valid argument for them."""

OPENED = {"path", "drafter", "calibration", "prior", "library", "bundle", "lora"}
"""Parameters that take a path. A wrong value may raise OSError."""

SETTINGS: dict[str, Any] = {
    f"Unpack[{kind.__name__}]": kind
    for kind in (
        DecideSettings,
        PromptArguments,
        options.ChoiceSettings,
        options.FillSettings,
        options.StreamSettings,
        options.TextSettings,
        tool_calls.ToolSettings,
    )
}
"""By the annotation of a `**more` parameter: the class that lists its keyword arguments."""


@dataclass(frozen=True)
class Subject:
    target: Any
    given: dict[str, Any]
    call: Callable[..., Any]

    def __str__(self) -> str:
        return name_of(self.target)

    @property
    def room(self) -> str:
        return str(self).partition(".")[0]

    @property
    def parameters(self) -> list[str]:
        names: list[str] = []
        for parameter in inspect.signature(self.target).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                settings = SETTINGS.get(parameter.annotation)
                names += () if settings is None else settings.__annotations__
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                names.append(parameter.name)
        return names


def name_of(target: Any) -> str:
    """Return the name of a function or class, with its room as a prefix."""
    return f"{target.__module__.split('.')[1]}.{target.__qualname__}"


def of(target: Any, call: Callable[..., Any] | None = None, /, **given: Any) -> Subject:
    return Subject(target, given, target if call is None else call)


def of_model(model: Model) -> Iterator[Subject]:
    def opened(**given: Any) -> None:
        Model(**{"n_ctx": 64, "n_threads": 1, **given}).close()

    async def opened_async(**given: Any) -> None:
        (await AsyncModel.open(**{"n_ctx": 64, "n_threads": 1, **given})).close()

    Path("cache").mkdir()
    Path("cache/org_repo_m.gguf").symlink_to(model.path)

    def opened_by_name(**given: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LLAMA_CACHE", "cache")
            Model.from_pretrained(**{"n_ctx": 64, "n_threads": 1, **given}).close()

    async def opened_by_name_async(**given: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LLAMA_CACHE", "cache")
            (await AsyncModel.from_pretrained(**{"n_ctx": 64, "n_threads": 1, **given})).close()

    yield of(Model, opened, path=None)
    yield of(Model.from_pretrained, opened_by_name, repo_id="org/repo")
    yield of(AsyncModel.from_pretrained, opened_by_name_async, repo_id="org/repo")
    yield of(AsyncModel, opened, path=None)
    yield of(AsyncModel.open, opened_async, path=None)
    yield of(AsyncModel.of, model=model)
    model.save_prompt_cache("saved", PROMPT)
    classifier = Classifier(model, ["GO", "STAY"]).fit(["a"], ["GO"])
    classifier.save("classifier.json")
    yield of(Classifier, model=model, labels=["GO", "STAY"], instructions="Which?")
    yield of(Classifier.load, path="classifier.json", model=model)
    for method in (classifier.predict, classifier.predict_proba, classifier.predict_log_proba):
        yield of(method, X=["a"])
    yield of(classifier.fit, X=["a"], y=["GO"])
    yield of(classifier.score, X=["a"], y=["GO"])
    yield of(classifier.get_params, deep=True)
    yield of(Classifier(model).set_params, instructions="Which?")
    yield of(classifier.save, path="classifier again.json")
    for face in (model, AsyncModel.of(model)):
        yield of(face.tokenize, text="a")
        yield of(face.prompt_tokens, prompt="a")
        yield of(face.detokenize, tokens=[1])
        yield of(face.chat_tokens, messages=CONVERSATION)
        yield of(face.embed, text="a")
        yield of(face.end_of_turn, prompt="a", end=5)
        yield of(face.hidden_states, prompt="a", layers=[1], n_rows=1)
        yield of(face.prompt_logprobs, prompt="a", top=1)
        yield of(face.generate, prompt="a", max_tokens=1)
        yield of(face.stream, prompt="a", max_tokens=1)
        yield of(face.generate_many, prompts=["a"], max_tokens=1)
        yield of(face.choose, prompt="a", labels=["GO", "STAY"])
        yield of(face.prepare_labels, labels=["GO", "STAY"])
        yield of(face.choose_many, prompts=["a"], labels=["GO", "STAY"])
        yield of(face.rank, prompt="a", labels=["GO", "STAY"])
        yield of(face.rank_many, prompts=["a"], labels=["GO", "STAY"])
        yield of(face.decide, input="a", questions=QUESTIONS)
        yield of(face.decide_many, inputs=["a"], questions=QUESTIONS)
        yield of(face.decision_prompts, input="a", questions=QUESTIONS)
        yield of(face.fill, prompt="a", shape=SKELETON)
        yield of(face.fill_stream, prompt="a", shape=SKELETON)
        yield of(face.fill_many, prompts=["a"], shape=SKELETON)
        yield of(face.call_tool, messages=CONVERSATION, tools=TOOLS, max_tokens=40)
        yield of(face.call_tools, messages=CONVERSATION, tools=TOOLS, max_tokens=40)
        yield of(face.save_prompt_cache, path="saved again", prompt="a")
        yield of(face.load_prompt_cache, path="saved")
    given: dict[str, Any] = {"model": model, "prompt": "a"}
    yield of(elizaos.generate_args, **given)
    yield of(elizaos.plan, actions=[{"name": "GO"}, {"name": "STAY"}], **given)
    yield of(elizaos.runner_of, model=model)
    call = model.call_tool(CONVERSATION, TOOLS, "required")
    yield of(call.result, content="done")


def of_choices(model: Model) -> Iterator[Subject]:
    cache = model.session.choices
    both: dict[str, Any] = {
        "tokenize": model.session.tokenize,
        "detokenize": model.session.detokenize,
    }
    one = choices.LabelSet(["a"], ["a"])
    leaf = choices.TokenTreeLeaf("a", (1,))
    descriptor = choices.TokenTreeDescriptor("path", (leaf,))
    payload = choices.TokenTreePayload("model", (descriptor,))
    yield of(choices.LabelSet, values=["a"], texts=["a"])
    yield of(one.place_of, text="a")
    yield of(one.hierarchy, separator=" > ")
    yield of(one.payload, **both)
    yield of(choices.PreparedLabels, choices=one, cache=cache)
    yield of(choices.TokenTreeLeaf, name="a", tokens=(1,))
    yield of(choices.TokenTreeDescriptor, path="path", leaves=(leaf,))
    yield of(choices.TokenTreePayload, model_id="model", descriptors=(descriptor,))
    yield of(payload.select, path="path")
    yield of(choices.TokenTreePayload.from_json, text=payload.to_json())
    yield of(choices.as_label_set, choices=["a"])
    yield of(choices.build_token_tree_descriptor, path="p", names=["a"], tokenize=both["tokenize"])
    yield of(elizaos.encode_descriptor, descriptor=descriptor)
    yield of(elizaos.encode_rtkt, path="path", leaves=[[1]])
    yield of(choices.tokenize_choice, choice="a", **both)


def of_decisions(model: Model) -> Iterator[Subject]:
    question = decisions.Predicate("Is it so?")
    examples = [(f"input {i}", {"0": True}) for i in range(10)]
    decision = model.decide("hello", QUESTIONS)
    calibration = decisions.calibrate(model, [question], examples, method="temperature")
    calibration.save("calibration.json")
    report = decisions.evaluate(model, [question], examples)
    scores = QuestionScores((OptionScores(np.log([0.25, 0.75])),))
    yield of(decisions.Predicate, instructions="Is it so?")
    yield of(decisions.Choice, instructions="Which?", choices=["a", "b"])
    yield of(decisions.Score, instructions="How?", levels=["a", "b"])
    yield of(decisions.MultiLabel, instructions="Is it about this?", labels=["a"])
    yield of(decisions.Option, value="a")
    yield of(decisions.Level, label="a")
    yield of(decisions.as_questions, questions=QUESTIONS)
    yield of(decisions.ask, question=question)
    yield of(decisions.ask(question).label_of, option=0)
    yield of(decisions.input_text, input="a")
    yield of(decisions.question_from, question=QUESTIONS["action"])
    yield of(decisions.question_to, question=question)
    yield of(decisions.choice_confidence, probabilities=[0.5, 0.5])
    yield of(decisions.ChoiceAnswer(options=(("a", 0.5), ("b", 0.5))).top, n=1)
    yield of(decisions.score_confidence, probabilities=[0.5, 0.5])
    yield of(decisions.decisions_answer, answer=decision["action"])
    yield of(decisions.systemone_answer, answer=decision["action"])
    yield of(decisions.calibrate, model=model, questions=[question], examples=examples)
    yield of(decisions.evaluate, model=model, questions=[question], examples=examples)
    yield of(calibration.apply, question_index=0, scores=scores)
    yield of(
        calibration.check,
        model_fingerprint=calibration.model,
        questions=[question],
        how=PromptSettings(),
    )
    yield of(calibration.save, path="saved.json")
    yield of(decisions.Calibration.load, path="calibration.json")
    yield of(decisions.Calibration.from_text, text=calibration.to_text())
    yield of(calibration.questions[0].apply, scores=scores, rule="constrained")
    yield of(report.text, width=80)


def of_answers(model: Model) -> Iterator[Subject]:
    """Yield the functions of skeletons, shapes and masks."""
    action = elizaos.Action("GO", (elizaos.Parameter("where"),))
    span = structured.SkeletonSpan("boolean", "is_so")
    skeleton = structured.Skeleton((span,))
    plan = structured.SpanSamplerPlan((structured.SpanOverride(0, 0.5),))
    yield of(elizaos.Action, name="GO")
    yield of(elizaos.Action.from_dict, data={"name": "GO"})
    yield of(action.accepts, parameters={})
    yield of(elizaos.Parameter, name="where")
    yield of(elizaos.Parameter.from_dict, data={"name": "where"})
    yield of(action.parameters[0].accepts, value="a")
    yield of(elizaos.ActionSkeleton, actions=[action])
    yield of(elizaos.ParametersSkeleton, action=action)
    for made in (elizaos.ActionSkeleton([action]), elizaos.ParametersSkeleton(action)):
        yield of(made.matches, text="a")
        yield of(made.accepts, value={})
        yield of(made.parse, text="1")
    yield of(structured.SpanSampling)
    yield of(structured.SpanOverride, span_index=0, temperature=0.5)
    yield of(plan.overrides[0].over, **{"call": structured.SpanSampling()})
    yield of(structured.SpanSamplerPlan)
    yield of(structured.SpanSamplerPlan.from_dict, data=plan.to_dict())
    yield of(plan.check, n_spans=1)
    yield of(plan.sampling, **{"index": 1, "kind": "free-json", "call": structured.SpanSampling()})
    yield of(structured.Skeleton, spans=(span,))
    yield of(structured.Skeleton.from_dict, data=SKELETON)
    yield of(skeleton.parse, text="true")
    yield of(skeleton.matches, text="true")
    yield of(structured.SkeletonSpan, kind="boolean")
    yield of(structured.SkeletonSpan.from_dict, data={"kind": "boolean"})
    yield of(span.texts, in_string=False)
    yield of(structured.Regex, pattern="a")
    yield of(structured.Gbnf, grammar='root ::= "a"')
    yield of(structured.Lark, grammar='start: "a"')


def of_texts(model: Model) -> Iterator[Subject]:
    """Yield the functions of prompts and sampling."""
    both: dict[str, Any] = {
        "tokenize": model.session.tokenize,
        "detokenize": model.session.detokenize,
    }

    def read(parts: Any = ()) -> list[int]:
        return model.prompt_tokens(chat.Prompt(parts))

    yield of(chat.ChatTemplate, source="a")
    yield of(model.chat_template.render, messages=CONVERSATION)
    yield of(model.chat_template.fit, messages=CONVERSATION)
    yield of(chat.ChatTokenizer, template=model.chat_template, **both)
    yield of(model.session.chat().tokens, messages=CONVERSATION)
    yield of(model.session.chat().split, messages=CONVERSATION)
    yield of(chat.Prompt, read, parts=(("a", True), ("b", False)))
    yield of(chat.Prompt().template, text="a")
    yield of(chat.Prompt().text, text="a")
    yield of(chat.Prompt.format, lambda template: chat.Prompt.format(template), template="a")
    yield of(chat.PromptTokenizer, **both)
    yield of(chat.PromptTokenizer(**both).tokens, prompt="a")
    yield of(chat.template_of_model, facts=model.describe()["model"])
    yield of(Sampling)
    yield of(Sampling.preset, name="greedy")
    yield of(parse_order, text="top_k")


def of_runner(model: Model) -> Iterator[Subject]:
    args = elizaos.FfiStreamingGenerateArgs([1, 2], max_tokens=1)
    yield of(elizaos.FfiStreamingGenerateArgs, prompt_tokens=[1])
    yield of(session.CacheOptions)
    yield of(session.Speculation)
    runner = runner_of(model)
    yield of(runner.generation, args=args)
    yield of(runner.generate_with_usage, args=args)
    yield of(runner.generate_stream, args=args)
    yield of(runner.whole_stream, args=args)


def of_library(model: Model) -> Iterator[Subject]:
    binding, ctx = model.binding, model.session.ctx
    payload = choices.TokenTreePayload(
        "model", (choices.TokenTreeDescriptor("path", (choices.TokenTreeLeaf("a", (1,)),)),)
    ).to_json()
    prepared = binding.prepare_choices(ctx, ["GO", "STAY"])

    def on_stream(name: str, /, **given: Any) -> Subject:
        """Return a method of the binding that is called on a new stream every time."""
        method = getattr(binding, name)

        def call(**arguments: Any) -> None:
            stream = binding.open(ctx, native.StreamConfig(max_tokens=2))
            try:
                binding.set_logprobs(stream, 1)
                if name != "prefill":
                    binding.prefill(stream, [1, 2])
                if name == "token_trie_scores":
                    binding.set_choices(stream, prepared, 0)
                method(**{"stream": stream, **arguments})
            finally:
                binding.close(stream)

        return of(method, call, **given)

    def on_context(name: str, /, binding: native.CffiBinding = binding) -> Subject:
        """Return a method of a binding that destroys a context."""
        method = getattr(binding, name)

        def call(ctx: Any = None) -> None:
            made = binding.create(model.path)
            method(made if ctx is None else ctx)
            binding.destroy(made)

        return of(method, call)

    def with_callback(name: str, /) -> Subject:
        method = getattr(binding, name)

        def call(**arguments: Any) -> None:
            try:
                method(**arguments)
            finally:
                method(ctx, None)

        return of(method, call, ctx=ctx, callback=anything)

    yield of(native.CffiBinding, library=binding.library)
    yield of(native.StreamConfig)
    yield of(native.Library)
    yield of(native.find_library)
    yield of(native.detect_capabilities, source=binding)
    yield of(binding.library.has, symbol="a")
    yield of(binding.library.need, symbol="eliza_inference_create")
    yield of(binding.library.probe, symbol="a")
    yield of(binding.supports, name="fill")
    yield of(binding.create, lambda path: binding.destroy(binding.create(path)), path=model.path)
    yield of(binding.load, ctx=ctx)
    yield of(binding.set_option, ctx=ctx, key="span_limit", value="500")
    yield of(binding.describe, ctx=ctx)
    yield of(binding.tokenize, ctx=ctx, text="a")
    yield of(binding.detokenize, ctx=ctx, tokens=[1])
    yield of(binding.detokenize_bytes, ctx=ctx, tokens=[1])
    yield of(binding.vocabulary, ctx=ctx)
    yield of(binding.embed, ctx=ctx, text="a")
    yield of(binding.token_embeddings, ctx=ctx, tokens=[1], positions=[0])
    yield of(binding.eot_score, ctx=ctx, tokens=[1], target=1)
    yield of(binding.prepare_choices, ctx=ctx, texts=["a"])
    phone = elizaos.AospStreamingLlmBinding(binding.library)
    yield of(elizaos.AospStreamingLlmBinding, library=binding.library)
    for opened in (phone.open, phone.llm_stream_open):
        yield of(
            opened,
            lambda opened=opened, **given: phone.close(opened(**given)),
            ctx=ctx,
            config=native.StreamConfig(),
        )
    yield of(binding.prepare_token_trie, ctx=ctx, payload=payload, n=1)
    yield of(
        binding.open,
        lambda **given: binding.close(binding.open(**given)),
        ctx=ctx,
        config=native.StreamConfig(),
    )
    yield from map(with_callback, ("set_progress_callback", "set_verifier_callback"))
    yield from map(on_context, ("destroy", "destroyer", "forget_callbacks"))
    yield on_context("destroy", phone)
    for name in ("close", "cancel", "stats", "describe_chain", "clear_token_trie"):
        yield on_stream(name)
    yield on_stream("token_trie_leaf")
    yield on_stream("token_trie_scores")
    yield on_stream("prefill", tokens=[1])
    yield on_stream("hidden_states", tokens=[1], layers=[1], n_rows=1, n_embd=128, n_kept=0)
    yield on_stream("prefill_logprobs", tokens=[1], n_top=1)
    yield on_stream("generate", max_tokens=1, on_token=anything)
    yield on_stream("save_slot", path="slot")
    yield on_stream("restore_slot", path="saved")
    yield on_stream("set_sampling", settings="{}")
    yield on_stream("set_logprobs", n_top=1)
    yield on_stream("take_logprobs", n_tokens=1, n_top=1)
    yield on_stream("fill", span={"before": "a"})
    yield on_stream("set_token_mask", mask=None)
    yield on_stream("set_forced_tokens", tokens=[1])
    yield on_stream("set_stops", stops=["."])
    yield on_stream("set_token_trie", payload=payload, mode=0)
    yield on_stream("set_choices", choices=prepared, mode=0)
    yield on_stream("choose", prompt=[1], choices=prepared, mode=0, scores=False)
    yield on_stream("set_text_choices", choices=["a", "b"], mode=0)
    yield on_stream("rank", choices=prepared, k=1)
    yield on_stream("rank_texts", texts=["a", "b"], k=1)
    yield on_stream(
        "score_endings", endings=[([1], prepared)], joint=False, allowed_probability=False
    )


LEFT_OUT = {
    "results, which only the package creates": {
        *("choices.RankLevel", "choices.RankResult", "choices.ChoiceResult"),
        *("decisions.RenderedQuestion", "decisions.Calibration", "decisions.ChoiceAnswer"),
        *("decisions.Decision", "decisions.DecisionReport", "decisions.DecisionUsage"),
        *(
            "decisions.MultiLabelAnswer",
            "decisions.PredicateAnswer",
            "decisions.QuestionCalibration",
        ),
        *("decisions.QuestionReport", "decisions.ScoreAnswer", "decisions.ShownOption"),
        *("library.CffiStream", "library.EotScore", "library.InferenceCapabilities"),
        *("library.SpanResult", "library.StreamStats", "library.StreamStep", "library.TrieLeaf"),
        "library.VerifierEvent",
        *("structured.TokenTexts", "session.GenerationResult"),
        *("elizaos.FfiStreamingResult", "elizaos.Usage", "structured.PartialField"),
        *("structured.StructuredResult", "structured.FillResult"),
        *("structured.FilledSpan", "session.TextAnswer", "session.TokenLogprob"),
        *("session.ToolCall", "session.ToolCalls"),
    },
    "called only by the package itself": {
        *("library.CffiStream.decode", "library.CffiStream.open", "library.CffiStream.turn"),
        *("chat.ChatTokenizer.around", "chat.PromptTokenizer.filled"),
        "decisions.QuestionCalibration.sets_of",
        "elizaos.FfiStreamingRunner",
        "elizaos.FfiStreamingGenerateArgs.of",
        *("elizaos.FfiStreamingResult.of", "elizaos.Parameter.placed", "session.AsyncTextStream"),
        "session.TextStream",
        *(
            "structured.StructuredResult.of",
            "structured.TokenTexts.of",
            "structured.TokenTexts.starting_with",
        ),
    },
    "takes tokens, which only the package has": {"choices.PreparedLabels.tokens_for"},
    "takes seconds": {"decisions.DecisionReport.save_plots"},
    "called for every token, so a check would be slow": {
        *("library.CffiBinding.next", "library.CffiBinding.next_many"),
        "library.CffiBinding.decode",
    },
}
"""Functions that the test leaves out, by reason."""

LEFT_OUT_ROOMS = {
    "eliza_ffi.ray": "loads a model at each call, or needs Ray: see tests/ray",
    "eliza_ffi.errors": "exceptions",
}

ROOMS = {
    *("async_model", "chat", "choices", "classifier", "decisions", "elizaos", "library", "model"),
    *("sampling", "session", "structured"),
}

SLOW_ROOMS = {"async_model", "model"}
"""Rooms whose functions run the model for every accepted argument, which takes seconds."""


# ---- Tests --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Change the working directory, because wrong arguments may create files."""
    folder, before = tmp_path_factory.mktemp("wrong"), Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def model(library: Library, folder: Path) -> Iterator[Model]:
    with Model(library=library, n_ctx=512, n_threads=1, seed=1) as model:
        yield model


@pytest.fixture(scope="module")
def subjects(model: Model) -> list[Subject]:
    rooms = (of_model, of_choices, of_decisions, of_answers, of_texts, of_runner, of_library)
    return [subject for room in rooms for subject in room(model)]


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def run(loop: asyncio.AbstractEventLoop, subject: Subject, arguments: dict[str, Any]) -> None:
    found = subject.call(**arguments)
    if isinstance(found, AsyncIterator):

        async def read() -> None:
            async for _ in found:
                pass

        loop.run_until_complete(read())
    elif inspect.isawaitable(found):
        loop.run_until_complete(found)
    elif isinstance(found, Iterator):
        for _ in found:
            pass


def escaped(
    loop: asyncio.AbstractEventLoop, subject: Subject, parameter: str, value: Any
) -> str | None:
    """Return a description of an exception that should not escape, or None."""
    arguments = {**subject.given, parameter: value}
    try:
        run(loop, subject, arguments)
    except ElizaError as error:
        return None if str(error) else "an error without a message"
    except OSError as error:
        return None if parameter in OPENED and error.filename is not None else repr(error)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
        # Without a frame of the package, Python itself rejected the call with a TypeError.
        return f"{error!r:.200} at {inside[-1].filename}:{inside[-1].lineno}" if inside else None
    return None


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(room, marks=[pytest.mark.slow] if room in SLOW_ROOMS else [])
        for room in sorted(ROOMS)
    ],
)
def test_wrong_arguments_raise_errors_of_the_package(
    room: str, subjects: list[Subject], model: Model, loop: asyncio.AbstractEventLoop
) -> None:
    before = model.choose(PROMPT, ["GO", "STAY"], probabilities=True).probabilities
    found = []
    for subject in (each for each in subjects if each.room == room):
        for parameter in subject.parameters:
            for kind, make in WRONG.items():
                if parameter in CALLED and kind in ("a class", "a function"):
                    continue
                what = escaped(loop, subject, parameter, make())
                if what is not None:
                    found.append(f"{subject}({parameter}={kind}): {what}")
        assert model.session.turns.n_running == 0, subject
    assert not found, "\n".join(found)
    assert model.choose(PROMPT, ["GO", "STAY"], probabilities=True).probabilities == before


def test_valid_arguments_are_accepted(
    subjects: list[Subject], loop: asyncio.AbstractEventLoop
) -> None:
    for subject in subjects:
        run(loop, subject, subject.given)


def test_every_public_function_has_a_subject(subjects: list[Subject]) -> None:
    known = {str(subject) for subject in subjects}.union(*LEFT_OUT.values())
    rooms = [name for name in PUBLIC_ROOMS if name not in LEFT_OUT_ROOMS]
    public = set()
    for room in map(importlib.import_module, rooms):
        for found in (getattr(room, name) for name in room.__all__):
            if callable(found) and str(found.__module__).startswith("eliza_ffi"):
                public |= {name for name, target in functions_of(found) if has_parameters(target)}
    assert public - known == set(), "not tested, and not in LEFT_OUT"
    assert known - public == set(), "no longer public"


def functions_of(found: Any) -> Iterator[tuple[str, Any]]:
    if getattr(found, "_is_protocol", False):
        return
    if not inspect.isclass(found):
        yield name_of(found), found
        return
    if issubclass(found, Exception):
        return
    yield name_of(found), found
    for _, member in public_members(found):
        method = member.__func__ if isinstance(member, classmethod) else member
        if inspect.isfunction(method):
            yield name_of(method), method


def has_parameters(target: Any) -> bool:
    names = inspect.signature(target).parameters.keys() - {"self", "cls"}
    return bool(names)
