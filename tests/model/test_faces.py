"""Model and AsyncModel have the same methods and return the same results."""

from __future__ import annotations

import asyncio
import enum
import inspect
import pydoc
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

import pytest
from both_faces import result_of

import eliza_ffi
from eliza_ffi import AsyncModel, BusyError, CacheOptions, Model
from eliza_ffi.decisions import Decision
from eliza_ffi.elizaos import ActionSkeleton, generate_args, runner_of
from eliza_ffi.errors import ElizaError, InvalidArgumentError
from eliza_ffi.evidence.deciding import DecideSettings
from eliza_ffi.library import Library
from eliza_ffi.sampling import Sampling
from eliza_ffi.structured import FilledSpan, FillResult

SKELETON = {
    "spans": [
        {"kind": "literal", "value": '{"action":'},
        {"kind": "enum", "key": "action", "enumValues": ["REPLY", "IGNORE"]},
        {"kind": "literal", "value": "}"},
    ]
}
ACTIONS = [{"name": "REPLY"}, {"name": "IGNORE"}]
PROMPT = "message: hello\naction: "
LABELS = ["REPLY", "IGNORE", "SEND_EMAIL", "SEND_MESSAGE", "SEARCH_WEB", "CREATE_NOTE"]
QUESTIONS = {
    "action": {"type": "choice", "instructions": "What now?", "choices": ["REPLY", "IGNORE"]},
    "rude": {"type": "predicate", "instructions": "Is the message rude?"},
}

ONLY_ASYNC = {"of", "open", "session"}
"""Names that only the class AsyncModel has. Model sets `session` on each object."""

NOT_AWAITED = {"close", "fill_stream", "stream"}
"""Methods of AsyncModel that are not coroutines. `fill_stream` and `stream` return iterators."""

OF_ANOTHER_KIND = {"chat_template"}
"""A property of Model that is a method of AsyncModel, because reading it is slow."""


@pytest.fixture
def model(library: Library, random_model_path: Callable[..., Path]) -> Iterator[Model]:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_ctx=2048, n_threads=1, seed=11) as model:
        yield model


def public(face: type) -> dict[str, Any]:
    return {name: found for name, found in vars(face).items() if not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    return [
        (each.name, each.kind, each.default, each.annotation)
        for each in inspect.signature(function).parameters.values()
    ]


def values(decision: Decision) -> dict[str, Any]:
    return {name: answer.value for name, answer in decision.items()}


def test_both_models_have_the_same_methods_and_parameters() -> None:
    blocking, awaited = public(Model), public(AsyncModel)
    assert set(awaited) - ONLY_ASYNC == set(blocking)
    for name in blocking.keys() - OF_ANOTHER_KIND:
        ours, theirs = blocking[name], awaited[name]
        assert type(ours) is type(theirs), name
        if inspect.isfunction(ours):
            assert parameters(ours) == parameters(theirs), name
            assert inspect.iscoroutinefunction(theirs) is (name not in NOT_AWAITED), name
    assert parameters(Model) == parameters(AsyncModel)


def test_signatures_list_the_keywords_of_decide() -> None:
    for face in (Model, AsyncModel):
        signature = inspect.signature(face.decide)
        assert set(DecideSettings.__annotations__) < set(signature.parameters)
        assert "scoring: 'ScoringRule | None' = ..." in str(signature)
        assert "think: 'int'" in pydoc.render_doc(face.decide)


def test_no_method_takes_unknown_keywords() -> None:
    for name, function in public(Model).items():
        if inspect.isfunction(function) and name != "chat_tokens":
            for parameter in inspect.signature(function).parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD:
                    assert str(parameter.annotation).startswith("Unpack["), name


def test_both_models_return_the_same_results(model: Model) -> None:
    """`tests/session/test_messages.py` compares the other methods."""

    async def answers(face: Any) -> list[Any]:
        choice = await result_of(face.choose(PROMPT, ["REPLY", "IGNORE"], probabilities=True))
        filled = await result_of(face.fill(PROMPT, ActionSkeleton(ACTIONS)))
        steps = await result_of(face.fill_stream(PROMPT, SKELETON))
        many = await result_of(face.decide_many([PROMPT, "x"], QUESTIONS))
        ranked = await result_of(face.rank_many([PROMPT, "x"], LABELS, k=4))
        letters = {"orders": 2, "answer_style": "letters"}
        return [
            choice.probabilities,
            filled.text,
            [step.text for step in steps],
            (await result_of(face.embed(["one", "two"]))).tolist(),
            values(await result_of(face.decide(PROMPT, QUESTIONS))),
            [values(decision) for decision in many],
            await result_of(face.decision_prompts(PROMPT, QUESTIONS, **letters)),
            (await result_of(face.rank(PROMPT, LABELS, 4))).labels,
            [each.labels for each in ranked],
        ]

    expected, found = asyncio.run(answers(model)), asyncio.run(answers(AsyncModel.of(model)))
    assert found[0] == pytest.approx(expected[0], rel=1e-2)
    assert found[1:] == expected[1:]


def test_an_async_model_opens_and_closes_on_an_event_loop(model: Model) -> None:
    async def story() -> str:
        async with await AsyncModel.open(model.path, n_threads=1) as face:
            assert "8 slots" in repr(face)
            value = (await face.choose("x", ["a", "b"])).value
        assert repr(face).endswith("closed)")
        return str(value)

    assert asyncio.run(story()) == model.choose("x", ["a", "b"]).value


def test_closing_a_model_ends_its_threads(library: Library) -> None:
    before = set(threading.enumerate())
    model = Model(library=library, n_threads=1)
    face = AsyncModel.of(model)

    async def story() -> set[threading.Thread]:
        await asyncio.gather(*(face.choose(f"message {i}: ", ["a", "b"]) for i in range(6)))
        started = {each for each in set(threading.enumerate()) - before if "eliza" in each.name}
        face.close()
        return started

    started = asyncio.run(story())
    assert started
    for thread in started:
        thread.join(10)
        assert not thread.is_alive(), thread.name


def test_a_runner_of_a_closed_model_raises_an_error(library: Library) -> None:
    with Model(library=library, n_threads=1) as model:
        args, runner = generate_args(model, "x", max_tokens=1), runner_of(model)
    with pytest.raises(ElizaError, match="the model is closed"):
        asyncio.run(runner.generate_with_usage(args))


@pytest.mark.slow
def test_a_thousand_concurrent_choices_all_return(model: Model) -> None:
    face = AsyncModel.of(model)

    async def story() -> list[str]:
        asked = (face.choose(f"message {i}: ", ["REPLY", "IGNORE"]) for i in range(1000))
        return [choice.value for choice in await asyncio.gather(*asked)]

    assert set(asyncio.run(story())) <= {"REPLY", "IGNORE"}


def test_cancelling_some_requests_does_not_affect_the_others(model: Model) -> None:
    face = AsyncModel.of(model)

    async def story() -> list[Any]:
        asked = [
            asyncio.ensure_future(face.generate(f"message {i}: ", 40, temperature=1.0))
            for i in range(24)
        ]
        await asyncio.sleep(0.02)
        for task in asked[::3]:
            task.cancel()
        return await asyncio.gather(*asked, return_exceptions=True)

    found = asyncio.run(story())
    for i, one in enumerate(found):
        if i % 3 == 0:
            assert isinstance(one, asyncio.CancelledError | eliza_ffi.GenerationResult)
        else:
            assert isinstance(one, eliza_ffi.GenerationResult)
    assert any(isinstance(one, asyncio.CancelledError) for one in found)
    assert model.generate("x", 2, timeout=0).tokens


def test_requests_without_waiting_raise_if_all_slots_are_in_use(model: Model) -> None:
    streams = [model.stream(f"{i}", 5) for i in range(8)]
    for stream in streams:
        next(stream)
    with pytest.raises(BusyError, match="all 8 slots are in use"):
        model.choose("x", ["a", "b"], timeout=0)
    with pytest.raises(BusyError, match=r"after 0.02 s"):
        model.fill("x", SKELETON, timeout=0.02)
    with pytest.raises(BusyError, match=r"^prompts\[0\]: "):
        model.choose_many(["x"], ["a", "b"], timeout=0)
    assert not isinstance(BusyError("x"), ValueError)
    streams[0].close()
    assert model.choose("x", ["a", "b"], timeout=0).value in ("a", "b")


def test_a_wait_for_a_named_slot_times_out_and_blocks_no_other_slot(model: Model) -> None:
    face = AsyncModel.of(model)

    async def story() -> None:
        async with aclosing(face.stream("x", 5, cache=CacheOptions(slot=0))) as stream:
            await anext(stream)
            for timeout, said in ((0, "another request "), (0.02, "after 0.02 s")):
                with pytest.raises(BusyError, match=f"slot 0 is in use by .*{said}"):
                    await face.choose("x", ["a", "b"], timeout=timeout, cache=CacheOptions(slot=0))
                with pytest.raises(BusyError, match=f"slot 0 is in use by .*{said}"):
                    model.fill("x", SKELETON, timeout=timeout, cache=CacheOptions(slot=0))
            pinned = [
                asyncio.ensure_future(face.choose(f"{i}", ["a", "b"], cache=CacheOptions(slot=0)))
                for i in range(12)
            ]
            while model.session.turns.n_waiting < len(pinned):
                await asyncio.sleep(0.001)
            for other in (None, CacheOptions(slot=1)):
                assert (await face.choose("x", ["a", "b"], timeout=0, cache=other)).value
            assert not any(each.done() for each in pinned)
        assert len(await asyncio.gather(*pinned)) == 12

    asyncio.run(story())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.generate("x", temperatur=1.0), "'temperatur'; did you mean 'temperature'?"),
        (lambda m: m.stream("x", temperatur=1.0), "'temperatur'; did you mean 'temperature'?"),
        (lambda m: m.stream("x", on_text=print), "stream() has no keyword 'on_text'"),
        (lambda m: type(m)(gpu_layers=1), "'gpu_layers'. Did you mean 'n_gpu_layers'?"),
        (lambda m: m.call_tool([], [], choice=1), "did you mean 'tool_choice'?"),
        (lambda m: m.choose("x", ["a"], probs=True), "keyword 'probs'"),
        (lambda m: m.choose_many(["x"], ["a"], probabilites=1), "did you mean 'probabilities'?"),
        (lambda m: m.generate_many(["x"], temperatur=5), "did you mean 'temperature'?"),
        (lambda m: m.fill("x", SKELETON, max_token=5), "did you mean 'max_tokens'?"),
        (lambda m: m.fill("x", SKELETON, on_text=print), "fill() has no keyword 'on_text'"),
        (lambda m: m.decide("x", QUESTIONS, stop=1), "decide() has no keyword 'stop'"),
        (lambda m: m.decide_many([], QUESTIONS, order=1), "decide_many() has no keyword 'order'"),
    ],
)
def test_an_unknown_keyword_raises_type_error_and_suggests_the_right_one(
    model: Model, call: Callable[[Model], Any], said: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        call(model)


def test_settings_given_twice_are_rejected(model: Model) -> None:
    for name in ("temperature", "min_p"):
        twice: dict[str, Any] = {"sampling": Sampling(), name: 0.7}
        with pytest.raises(InvalidArgumentError, match=f"{name} is given twice"):
            model.generate("x", 2, **twice)


def test_sampling_settings_can_be_keywords_or_an_object(model: Model) -> None:
    by_name = model.generate("x", 12, temperature=1.5, seed=3, min_p=0.001).text
    params = Sampling(temperature=1.5, seed=3, min_p=0.001)
    assert model.generate("x", 12, sampling=params).text == by_name
    banned = model.generate("x", 1).tokens[0]
    assert (
        model.generate("x", 1, sampling=Sampling(logit_bias=[(banned, float("-inf"))])).tokens[0]
        != banned
    )


class Side(enum.Enum):
    LEFT = "left"
    RIGHT = "right"


def test_choose_many_takes_one_label_set_per_prompt(model: Model) -> None:
    prompts = [f"message {i}: " for i in range(20)]
    own = [["REPLY", "IGNORE"], Side, bool, Literal[1, 2]] * 5
    reported: list[tuple[int, int | None]] = []
    found = model.choose_many(prompts, own, progress=lambda *now: reported.append(now))
    for prompt, labels, one in zip(prompts, own, found, strict=True):
        assert one.value == model.choose(prompt, labels).value
    assert reported == [(i + 1, 20) for i in range(20)]


def test_prompts_are_read_only_when_they_can_run(model: Model) -> None:
    read = done = most_ahead = 0

    def prompts() -> Iterator[str]:
        nonlocal read, most_ahead
        for i in range(40):
            read += 1
            most_ahead = max(most_ahead, read - done)
            yield f"message {i}: "

    def note(n_done: int, total: int | None) -> None:
        nonlocal done
        assert total is None
        done = n_done

    assert len(model.choose_many(prompts(), ["a", "b"], progress=note, max_concurrency=3)) == 40
    assert most_ahead <= 3


def test_an_error_ends_a_batch_or_is_returned_in_its_place(model: Model) -> None:
    prompts: list[str | list[int]] = ["fine: ", [], "fine, too: "] * 4
    for many in (
        lambda: model.choose_many(prompts, ["a", "b"], max_concurrency=1),
        lambda: model.rank_many(prompts, ["a", "b"], max_concurrency=1),
        lambda: model.generate_many(prompts, 1, max_concurrency=1),
        lambda: model.fill_many(prompts, bool, max_concurrency=1),
    ):
        with pytest.raises(InvalidArgumentError, match=r"prompts\[1\]: the prompt is empty"):
            many()
    with pytest.raises(InvalidArgumentError, match=r"^max_tokens must be"):  # of all prompts
        model.generate_many(["a", "b"], 2.0)  # type: ignore[arg-type]
    found = model.choose_many(prompts, ["a", "b"], return_exceptions=True)
    assert [isinstance(one, InvalidArgumentError) for one in found] == [False, True, False] * 4
    assert model.generate("x", 2, timeout=0).tokens


def test_a_failed_batch_cancels_its_running_requests(model: Model) -> None:
    def prompts() -> Iterator[str]:
        yield from ("one", "two", "three")
        raise KeyError("the table is gone")

    with pytest.raises(KeyError, match="the table is gone"):
        model.generate_many(prompts(), 0, max_concurrency=4)  # without a limit
    with pytest.raises(KeyError, match="the table is gone"):
        asyncio.run(AsyncModel.of(model).generate_many(prompts(), 0, max_concurrency=4))
    assert model.describe()["passes"]["run"] < 1000  # 4,000 fill the context
    assert model.generate("x", 2, timeout=0).tokens


@pytest.mark.parametrize(
    ("prompts", "labels", "said"),
    [
        (["x", "y"], [["a"]], "got more than 1 prompts and 1 label sets"),
        (["x"], [["a"], ["b"]], "got 1 prompts and more than 1 label sets"),
        (["x"], [], "there is nothing to choose from"),
        (["x"], "abc", "labels must be a list of strings, .*, got 'abc'"),
    ],
)
def test_label_sets_that_do_not_match_the_prompts_are_rejected(
    model: Model, prompts: list[str], labels: Any, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        model.choose_many(prompts, labels)
    with pytest.raises(
        InvalidArgumentError, match="max_concurrency must be a whole number of 1 or more, got 0"
    ):
        model.choose_many(["x"], ["a"], max_concurrency=0)


def test_an_empty_batch_returns_an_empty_list(model: Model) -> None:
    assert model.choose_many([], ["a", "b"]) == []
    assert asyncio.run(AsyncModel.of(model).generate_many(iter(()))) == []


def test_fill_stream_yields_spans_then_the_result(model: Model) -> None:
    steps = list(model.fill_stream(PROMPT, SKELETON))
    assert [type(step) for step in steps] == [FilledSpan, FillResult]
    left = model.fill_stream(PROMPT, SKELETON)
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert model.generate("x", 2, timeout=0).tokens


def test_reprs_describe_the_model_and_the_result(model: Model) -> None:
    assert "llama" in repr(model) and "weights" in repr(model) and "8 slots" in repr(model)
    assert repr(model.generate("x", 2)).endswith("2 tokens, length)")


def test_every_exported_name_can_be_imported() -> None:
    for name in eliza_ffi.__all__:
        assert getattr(eliza_ffi, name) is not None
    assert set(eliza_ffi.__all__) <= set(dir(eliza_ffi))
    with pytest.raises(AttributeError, match="no attribute 'Modell'"):
        eliza_ffi.Modell  # noqa: B018
