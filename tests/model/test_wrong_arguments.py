"""Call every public function with every kind of wrong argument.

A wrong argument raises an exception of the package. No AttributeError, KeyError, TypeError or
similar exception escapes from inside the package, and the model stays usable.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_faces import result_of
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
    evidence,
    learning,
    structured,
)
from eliza_ffi import library as native
from eliza_ffi.decisions.prompt_settings import PromptArguments, PromptSettings
from eliza_ffi.elizaos import runner_of
from eliza_ffi.errors import ElizaError, NotSupportedError
from eliza_ffi.evidence.deciding import DecideSettings
from eliza_ffi.evidence.scoring import OptionScores, QuestionScores
from eliza_ffi.library.loading import Library
from eliza_ffi.sampling import Sampling
from eliza_ffi.session import options, tool_calls

PACKAGE = str(Path(eliza_ffi.__file__).parent)
PROMPT = "message: hello\naction: "
CONVERSATION = [{"role": "user", "content": "hello"}]
QUESTIONS = {"action": {"type": "choice", "instructions": "What?", "choices": ["GO", "STAY"]}}
TOOLS = [{"type": "function", "function": {"name": "GO"}}]
QUESTION = decisions.Predicate("Is it so?")
EXAMPLES = [(f"input {i}", {"0": True}) for i in range(10)]
SKELETON = {"spans": [{"kind": "enum", "key": "action", "enumValues": ["GO", "STAY"]}]}


class Odd:
    """A class that is wrong for every argument."""


class Anything:
    """A class that can be called with anything."""

    def __init__(self, *_: Any, **__: Any) -> None: ...


def anything(*_: Any, **__: Any) -> None: ...


def nobody(inputs: list[Any], questions: Any) -> list[None]:
    return [None] * len(inputs)


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

OPENED = {"path", "drafter", "calibration", "library", "bundle", "lora"}
"""Parameters that take a path. A wrong value may raise OSError."""

SETTINGS: dict[str, Any] = {
    f"Unpack[{kind.__name__}]": kind
    for kind in (
        *(DecideSettings, PromptArguments, tool_calls.ToolSettings),
        *(options.ChoiceSettings, options.FillSettings),
        *(options.StreamSettings, options.TextSettings),
    )
}
"""By the annotation of a `**more` parameter: the class that lists its keyword arguments."""

LEFT_OUT = {
    "results, which only the package creates": {
        *("choices.RankLevel", "choices.RankResult", "choices.ChoiceResult"),
        *("decisions.RenderedQuestion", "evidence.Calibration", "decisions.ChoiceAnswer"),
        *("decisions.Decision", "learning.DecisionReport", "decisions.DecisionUsage"),
        *("decisions.MultiLabelAnswer", "decisions.PredicateAnswer"),
        *("evidence.QuestionCalibration", "learning.QuestionReport"),
        "evidence.CascadeCalibration",
        *("decisions.Passage", "decisions.ScoreAnswer", "decisions.ShownOption"),
        *("library.CffiStream", "library.EotScore", "library.InferenceCapabilities"),
        *("library.SpanResult", "library.StreamStats", "library.StreamStep", "library.TrieLeaf"),
        *("library.VerifierEvent", "structured.TokenTexts", "session.GenerationResult"),
        *("elizaos.FfiStreamingResult", "elizaos.Usage", "structured.PartialField"),
        *("structured.FillResult", "structured.FilledSpan"),
        *("session.TextAnswer", "session.TokenLogprob", "session.ToolCall", "session.ToolCalls"),
    },
    "called only by the package itself": {
        *("library.CffiStream.decode", "library.CffiStream.open", "library.CffiStream.turn"),
        *("chat.ChatTokenizer.around", "chat.PromptTokenizer.filled"),
        *(f"evidence.QuestionCalibration.{name}" for name in ("answers", "certifies", "sets_of")),
        "elizaos.FfiStreamingRunner",
        *("elizaos.FfiStreamingGenerateArgs.of", "elizaos.FfiStreamingResult.of"),
        *("elizaos.Parameter.placed", "session.AsyncTextStream", "session.TextStream"),
        "structured.TokenTexts.of",
    },
    "takes tokens, which only the package has": {"choices.PreparedLabels.tokens_for"},
    "takes what to_dict wrote: see tests/learning": {
        *("evidence.JsonFields.from_dict", "evidence.QuestionCalibration.from_dict"),
    },
    "takes seconds": {"learning.DecisionReport.save_plots"},
    "called for every token, so a check would be slow": {
        *("library.CffiBinding.next", "library.CffiBinding.decode"),
    },
}
"""Functions that the test leaves out, by reason."""

LEFT_OUT_ROOMS = {
    "eliza_ffi.ray": "loads a model at each call, or needs Ray: see tests/ray",
    "eliza_ffi.errors": "exceptions",
}

SLOW_ROOMS = {"async_model", "model"}
"""Rooms whose functions run the model for every accepted argument, which takes seconds."""


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


NAMED_ONES = ("k", "max_tokens", "n", "n_rows", "n_spans", "n_tokens", "n_top", "target", "top")
NAMED_STRINGS = (
    *("choice", "input", "label", "model_id", "name", "path", "pattern", "prompt", "scoring"),
    *("separator", "source", "symbol", "template", "text", "value"),
)
NAMED_LISTS = ("X", "inputs", "names", "prompts", "stops", "texts", "values")
ALWAYS_GIVEN = ("layers", "max_tokens", "n_rows", "top")
"""Optional parameters that get an argument in every call, which keeps the calls short."""


def valid_arguments(model: Model) -> dict[str, Any]:
    """Return an argument for each parameter by name, which is valid for most functions."""
    leaf = choices.TokenTreeLeaf("a", (1,))
    descriptor = choices.TokenTreeDescriptor("path", (leaf,))
    return {
        **dict.fromkeys(NAMED_ONES, 1),
        **dict.fromkeys(NAMED_STRINGS, "a"),
        **{name: ["a"] for name in NAMED_LISTS},
        "action": elizaos.Action("GO"),
        "actions": [{"name": "GO"}, {"name": "STAY"}],
        "allowed_probability": False,
        "answer": model.decide("hello", QUESTIONS)["action"],
        "args": elizaos.FfiStreamingGenerateArgs([1, 2], max_tokens=1),
        "cache": model.session.choices,
        "call": structured.SpanSampling(),
        "callback": anything,
        "choices": ["a", "b"],
        "config": native.StreamConfig(),
        "content": "done",
        "ctx": model.session.ctx,
        "data": {"name": "GO"},
        "descriptor": descriptor,
        "descriptors": (descriptor,),
        "detokenize": model.session.detokenize,
        "end": 5,
        "facts": model.describe()["model"],
        "grammar": 'root ::= "a"',
        "in_string": False,
        "index": 1,
        "instructions": "Is it so?",
        "full": False,
        "key": "span_limit",
        "kind": "boolean",
        "labels": ["a", "b"],
        "layers": [1],
        "documents": ["a"],
        "leaves": (leaf,),
        "levels": ["a", "b"],
        "library": model.binding.library,
        "mask": None,
        "messages": CONVERSATION,
        "mode": 0,
        "model": model,
        "n_embd": 128,
        "n_keep": 1,
        "on_token": anything,
        "option": 0,
        "parameters": {},
        "parts": range(2),
        "payload": choices.TokenTreePayload("model", (descriptor,)).to_json(),
        "positions": [0],
        "probabilities": [0.5, 0.5],
        "prompt_tokens": [1],
        "ranges": [(0, 1)],
        "query": "a",
        "question": QUESTION,
        "question_index": 0,
        "questions": QUESTIONS,
        "repo_id": "org/repo",
        "rows": EXAMPLES,
        "schema": SKELETON,
        "scores": QuestionScores((OptionScores(np.log([0.25, 0.75])),)),
        "settings": "{}",
        "span": {"before": "a"},
        "span_index": 0,
        "spans": (structured.SkeletonSpan("boolean", "is_so"),),
        "temperature": 0.5,
        "tokenize": model.session.tokenize,
        "tokens": [1],
        "tools": TOOLS,
        "y": ["GO"],
    }


def other_arguments(model: Model, owners: dict[type, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of functions for which the usual arguments are not valid."""
    prepared = model.binding.prepare_choices(model.session.ctx, ["GO", "STAY"])
    endings = [([1], prepared)]
    calibration = owners[evidence.Calibration]
    of_examples: dict[str, Any] = {"questions": [QUESTION]}
    return {
        "ActionSkeleton.accepts": {"value": {}},
        **{name: {"path": None} for name in ("AsyncModel", "AsyncModel.open", "Model")},
        "Cascade": {"sources": [nobody]},
        "CascadeCalibration.load": {"path": "cascade.json"},
        "Calibration.check": {
            "model_fingerprint": calibration.model,
            "settings": PromptSettings(),
            **of_examples,
        },
        "Calibration.from_text": {"text": calibration.to_text()},
        "Calibration.load": {"path": "calibration.json"},
        "CffiBinding.choose": {"prompt": [1], "choices": prepared, "scores": False},
        "CffiBinding.create": {"path": model.path},
        **{
            f"CffiBinding.{name}": {
                "decision": model.binding.decision(native.StreamConfig(), [1], endings)
            }
            for name in ("decide", "cancel_decision")
        },
        "CffiBinding.decision": {"endings": endings},
        "CffiBinding.rank": {"choices": prepared},
        "CffiBinding.restore_slot": {"path": "saved"},
        "CffiBinding.score_endings": {"endings": endings},
        "CffiBinding.set_choices": {"choices": prepared},
        "CffiBinding.set_option": {"value": "500"},
        **{name: {"ctx": None} for name in DESTROY},
        "ChatTokenizer": {"template": model.chat_template},
        "Classifier": {"model": model, "labels": ["GO", "STAY"], "instructions": "Which?"},
        "Classifier.load": {"path": "classifier.json", "model": model},
        "Classifier.set_params": {"instructions": "Which?"},
        "Classifier.set_score_request": {"sample_weight": True},
        "Lark": {"grammar": 'start: "a"'},
        "Library.need": {"symbol": "eliza_inference_create"},
        "ParametersSkeleton.accepts": {"value": {}},
        "PreparedLabels": {"choices": owners[choices.LabelSet]},
        "Prompt": {"parts": (("a", True), ("b", False))},
        "QuestionCalibration.apply": {"scoring": "constrained"},
        "RerankResult": {"index": 0, "score": 1.5, "probability": 0.8},
        "Sampling.preset": {"name": "greedy"},
        "Skeleton.from_dict": {"data": SKELETON},
        "SkeletonSpan.from_dict": {"data": {"kind": "boolean"}},
        "SpanSamplerPlan.from_dict": {"data": owners[structured.SpanSamplerPlan].to_dict()},
        "SpanSamplerPlan.sampling": {"kind": "free-json"},
        "Skeleton.parse": {"text": "true"},
        "TokenTreePayload.from_json": {"text": owners[choices.TokenTreePayload].to_json()},
        "_JsonAnswer.parse": {"text": "1"},
        **{f"{face}.call_tool": {"max_tokens": 40} for face in FACES},
        **{f"{face}.call_tools": {"max_tokens": 40} for face in FACES},
        **{f"{face}.load_prompt_cache": {"path": "saved"} for face in FACES},
        "calibrate": of_examples | {"rows": EXAMPLES},
        "evaluate": of_examples,
        "detect_capabilities": {"source": model.binding},
        "encode_rtkt": {"leaves": [[1]]},
        "parse_order": {"text": "top_k"},
    }


FACES = ("Model", "AsyncModel")
DESTROY = (
    *("CffiBinding.destroy", "CffiBinding.destroyer", "CffiBinding.forget_callbacks"),
    "AospStreamingLlmBinding.destroy",
)


def owners_of_methods(model: Model) -> dict[type, Any]:
    """Return an object of each class that has public methods."""
    binding, tokenizers = model.binding, (model.session.tokenize, model.session.detokenize)
    label_set = choices.LabelSet(["a"], ["a"])
    leaf = choices.TokenTreeLeaf("a", (1,))
    payload = choices.TokenTreePayload("model", (choices.TokenTreeDescriptor("a", (leaf,)),))
    calibration = learning.calibrate(model, [QUESTION], EXAMPLES, method="temperature")
    span, action = structured.SkeletonSpan("boolean", "is_so"), elizaos.Action("GO")
    override = structured.SpanOverride(0, 0.5)
    calibration.save("calibration.json")
    model.save_prompt_cache("saved", PROMPT)
    classifier = Classifier(model, ["GO", "STAY"]).fit(["a"], ["GO"])
    classifier.save("classifier.json")
    cascade = evidence.Cascade([nobody])
    of_cascade = learning.calibrate(cascade, [QUESTION], inputs=list(map(str, range(60))), at=0.5)
    of_cascade.save("cascade.json")
    owners = (
        *(cascade, of_cascade),
        *(model, AsyncModel.of(model), classifier, runner_of(model), binding, binding.library),
        *(model.call_tool(CONVERSATION, TOOLS, "required"), label_set, payload),
        choices.PreparedLabels(label_set, model.session.choices),
        *(decisions.ask(QUESTION), decisions.ChoiceAnswer(options=(("a", 0.5), ("b", 0.5)))),
        *(calibration, calibration.questions[0], learning.evaluate(model, [QUESTION], EXAMPLES)),
        *(action, elizaos.Parameter("where"), elizaos.AospStreamingLlmBinding(binding.library)),
        *(elizaos.ActionSkeleton([action]), elizaos.ParametersSkeleton(action)),
        *(span, structured.Skeleton((span,)), override, structured.SpanSamplerPlan((override,))),
        *(model.chat_template, model.session.chat(), chat.Prompt()),
        *(chat.PromptTokenizer(*tokenizers), Sampling()),
    )
    return {type(owner): owner for owner in owners}


def other_calls(model: Model, owners: dict[type, Any]) -> dict[str, Callable[..., Any]]:
    """Return a function in place of each function that leaves something open or needs more."""
    binding = model.binding
    phone = owners[elizaos.AospStreamingLlmBinding]
    few = {"n_ctx": 64, "n_threads": 1}
    snapshot = Path("cache/models--org--repo/snapshots/main")
    snapshot.mkdir(parents=True)
    (snapshot / "m.gguf").symlink_to(model.path)

    def closed(open_model: Callable[..., Any]) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            found = open_model(**few | given)

            async def close() -> None:
                (await found).close()

            return close() if inspect.isawaitable(found) else found.close()

        return call

    def on_context(destroy: Callable[..., Any]) -> Callable[..., None]:
        """Return a function that destroys a new context, unless it gets another one."""

        def call(ctx: Any) -> None:
            made = binding.create(model.path)
            destroy(made if ctx is None else ctx)
            binding.destroy(made)

        return call

    def with_callback(method: Callable[..., Any]) -> Callable[..., None]:
        def call(**given: Any) -> None:
            try:
                method(**given)
            finally:
                method(model.session.ctx, None)

        return call

    def without_reranker(method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that accepts that the model is no reranker."""

        async def call(**given: Any) -> None:
            with contextlib.suppress(NotSupportedError):
                await result_of(method(**given))

        return call

    return {
        "Model.rerank": without_reranker(model.rerank),
        "AsyncModel.rerank": without_reranker(owners[AsyncModel].rerank),
        "CffiBinding.rerank": without_reranker(binding.rerank),
        "Model": closed(Model),
        "Model.from_pretrained": closed(Model.from_pretrained),
        "AsyncModel": closed(AsyncModel),
        "AsyncModel.open": closed(AsyncModel.open),
        "AsyncModel.from_pretrained": closed(AsyncModel.from_pretrained),
        "Prompt": lambda parts=(): model.prompt_tokens(chat.Prompt(parts)),
        "Prompt.format": lambda template: chat.Prompt.format(template),
        "CffiBinding.create": lambda path: binding.destroy(binding.create(path)),
        "CffiBinding.open": lambda **given: binding.close(binding.open(**given)),
        "CffiBinding.destroy": on_context(binding.destroy),
        "CffiBinding.destroyer": on_context(binding.destroyer),
        "CffiBinding.forget_callbacks": on_context(binding.forget_callbacks),
        "CffiBinding.set_progress_callback": with_callback(binding.set_progress_callback),
        "CffiBinding.set_verifier_callback": with_callback(binding.set_verifier_callback),
        "AospStreamingLlmBinding.destroy": on_context(phone.destroy),
        "AospStreamingLlmBinding.open": lambda **given: phone.close(phone.open(**given)),
        "AospStreamingLlmBinding.llm_stream_open": lambda **given: phone.close(
            phone.llm_stream_open(**given)
        ),
    }


def on_a_stream(model: Model, method: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that calls a method of the binding on a new stream every time."""
    binding, ctx = model.binding, model.session.ctx

    def call(**given: Any) -> None:
        stream = binding.open(ctx, native.StreamConfig(max_tokens=2))
        try:
            binding.set_logprobs(stream, 1)
            if method.__name__ != "prefill":
                binding.prefill(stream, [1, 2])
            if method.__name__ == "token_trie_scores":
                binding.set_choices(stream, binding.prepare_choices(ctx, ["GO", "STAY"]), 0)
            method(**{"stream": stream, **given})
        finally:
            binding.close(stream)

    return call


def all_subjects(model: Model) -> Iterator[Subject]:
    valid, owners = valid_arguments(model), owners_of_methods(model)
    others, calls = other_arguments(model, owners), other_calls(model, owners)
    for target, owner in public_functions().items():
        if name_of(target) in set().union(*LEFT_OUT.values()):
            continue
        bound = target if owner is None else getattr(owners[owner], target.__name__)
        parameters = inspect.signature(bound).parameters
        given = {
            name: valid[name]
            for name, parameter in parameters.items()
            if name in ALWAYS_GIVEN and repr(parameter.default) != "..."  # of a TypedDict
        }
        given |= {
            name: valid[name]
            for name, parameter in parameters.items()
            if name in valid and is_required(parameter)
        }
        given |= others.get(target.__qualname__, {})
        call = on_a_stream(model, bound) if "stream" in parameters else bound
        yield Subject(bound, given, calls.get(target.__qualname__, call))


def public_functions() -> dict[Any, type | None]:
    """Return the public functions, classes and methods, and the first class of each method."""
    rooms = [importlib.import_module(name) for name in PUBLIC_ROOMS if name not in LEFT_OUT_ROOMS]
    public = [getattr(room, name) for room in rooms for name in room.__all__]
    found: dict[Any, type | None] = {}
    for each in public:
        if callable(each) and is_ours(each):
            found.setdefault(each, None)
            for _, member in public_members(each) if inspect.isclass(each) else ():
                method = member.__func__ if isinstance(member, classmethod) else member
                if inspect.isfunction(method):
                    found.setdefault(method, each)
    return {target: owner for target, owner in found.items() if has_parameters(target)}


def is_ours(found: Any) -> bool:
    is_error = inspect.isclass(found) and issubclass(found, Exception)
    is_of_package = str(found.__module__).startswith("eliza_ffi")
    return is_of_package and not is_error and not getattr(found, "_is_protocol", False)


def is_required(parameter: inspect.Parameter) -> bool:
    is_variable = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    return parameter.default is parameter.empty and not is_variable


def has_parameters(target: Any) -> bool:
    return bool(inspect.signature(target).parameters.keys() - {"self", "cls"})


def room_of(target: Any) -> str:
    return str(target.__module__.split(".")[1])


def name_of(target: Any) -> str:
    """Return the name of a function or class, with its room as a prefix."""
    return f"{room_of(target)}.{target.__qualname__}"


# ---- Tests --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Change the working directory, because wrong arguments may create files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("wrong"))
        patch.setenv("LLAMA_CACHE", "cache")
        yield


@pytest.fixture(scope="module")
def model(library: Library, folder: None) -> Iterator[Model]:
    with Model(library=library, n_ctx=512, n_threads=1, seed=1) as model:
        yield model


@pytest.fixture(scope="module")
def subjects(model: Model) -> list[Subject]:
    return list(all_subjects(model))


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def run(loop: asyncio.AbstractEventLoop, subject: Subject, arguments: dict[str, Any]) -> None:
    loop.run_until_complete(result_of(subject.call(**arguments)))


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


ROOMS = sorted({room_of(target) for target in public_functions()})


@pytest.mark.parametrize(
    "room", [pytest.param(room, marks=[pytest.mark.slow] * (room in SLOW_ROOMS)) for room in ROOMS]
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
    public = set(map(name_of, public_functions()))
    left_out = set().union(*LEFT_OUT.values())
    assert {str(subject) for subject in subjects} == public - left_out
    assert left_out <= public, "no longer public"
