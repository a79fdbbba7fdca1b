"""The operations that run while calls fail: each use of a model once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eliza_ffi import Gbnf, Sampling, Speculation
from eliza_ffi.choices import ChoiceResult
from eliza_ffi.decisions import Choice as Question
from eliza_ffi.decisions import Predicate, Score
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model
from eliza_ffi.session.lifecycle import open_stream

PROMPT = "message: could you look at this?\naction: "
OTHER_PROMPT = "message: stop it\naction: "
CHAT = "<|im_start|>user\nwhat is your name?<|im_end|>\n<|im_start|>assistant\n"
ACTIONS = ("RESPOND", "IGNORE", "STOP")
GRAMMAR = 'root ::= ("yes" | "no") [a-z ,]{0,9} "."'
N_SLOTS = 2


@dataclass
class Scene:
    """The surroundings of an operation: a model, and a folder for its files.

    Attributes
    ----------
    path : Path or None
        The model's file; None = the embedded model.
    """

    library: Library
    folder: Path
    path: Path | None = None
    _model: Model | None = field(default=None, init=False)

    @property
    def model(self) -> Model:
        """The model, opened on first use."""
        if self._model is None:
            self._model = Model(
                self.path,
                library=self.library,
                n_ctx=512,
                n_slots=N_SLOTS,
                n_threads=1,
                seed=1,
                options={"slot_wait_ms": "0"},
            )
        return self._model

    @property
    def slot_file(self) -> Path:
        """The file for saved prompts."""
        return self.folder / "prompt.slot"

    def close(self) -> None:
        """Close the model; the next use opens it again."""
        if self._model is not None:
            self._model.close()
            self._model = None

    def files(self) -> dict[str, str]:
        """Return the SHA-256 digests of the folder's files, by name."""
        return {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(self.folder.iterdir())
        }

    def answers(self) -> list[Any]:
        """Open streams in all slots, then return the model's answers to fixed prompts."""
        model = self.model
        with ExitStack() as opened:
            for _ in range(N_SLOTS):
                stream = model.binding.open(model.session.ctx, StreamConfig())
                opened.callback(model.binding.close, stream)
                model.binding.prefill(stream, model.prompt_tokens(OTHER_PROMPT))
        shown = [_shown(model.choose(prompt, ACTIONS)) for prompt in (PROMPT, OTHER_PROMPT)]
        return [*shown, model.generate(CHAT, 6).text]


@dataclass(frozen=True)
class Operation:
    """One use of a model.

    Attributes
    ----------
    run : callable
        Runs the operation and returns its result.
    prepare : callable
        Runs first, while no call fails.
    """

    name: str
    run: Callable[[Scene], Any]
    prepare: Callable[[Scene], object]


def _shown(choice: ChoiceResult[Any]) -> list[Any]:
    # Rounding depends on how much of the prompt was in the cache.
    return [choice.value, round(choice.probability, 4)]


def _open(scene: Scene) -> Model:
    return scene.model


def _use(scene: Scene) -> None:
    scene.model.choose(OTHER_PROMPT, ACTIONS)


def _load(scene: Scene) -> str:
    return scene.model.path


def _reload(scene: Scene) -> None:
    model = scene.model
    lib = scene.library.lib
    lib.eliza_inference_mmap_evict(model.session.ctx, b"text", scene.library.ffi.NULL)
    model.binding.load(model.session.ctx)


def _choose(scene: Scene) -> Any:
    return _shown(scene.model.choose(PROMPT, ACTIONS))


def _choose_best(scene: Scene) -> Any:
    choice = scene.model.choose(PROMPT, ACTIONS, mode="best", probabilities=True)
    return [_shown(choice), [round(value, 4) for value in (choice.probabilities or {}).values()]]


def _choose_text(scene: Scene) -> Any:
    return _shown(scene.model.choose(PROMPT, ACTIONS, tokenization="any", heal_prompt=True))


def _choose_prepared(scene: Scene) -> Any:
    labels = scene.model.prepare_labels([*ACTIONS, *(f"TOOL_{i}" for i in range(100))])
    return _shown(scene.model.choose(PROMPT, labels))


def _choose_together(scene: Scene) -> Any:
    prompts = [PROMPT, OTHER_PROMPT] * N_SLOTS
    return [_shown(choice) for choice in scene.model.choose_many(prompts, ACTIONS)]


def _decide(scene: Scene) -> Any:
    questions = {
        "action": Question("What should be done?", list(ACTIONS)),
        "urgent": Predicate("Is it urgent?"),
        "anger": Score("How angry is the writer?", ["calm", "cross", "furious"]),
    }
    decision = scene.model.decide(PROMPT, questions, scoring="joint", option_mass=True)
    return [[round(p, 3) for p in answer.distribution] for answer in decision.values()]


def _generate(scene: Scene) -> Any:
    return scene.model.generate(CHAT, 8).text


def _generate_sampled(scene: Scene) -> Any:
    return scene.model.generate(
        CHAT,
        8,
        sampling=Sampling(
            temperature=0.8,
            top_k=20,
            min_p=0.05,
            seed=3,
            typical_p=0.9,
            repeat_penalty=1.1,
            dry_multiplier=0.5,
            xtc_probability=0.1,
            top_n_sigma=2.0,
        ),
    ).text


def _generate_masked(scene: Scene) -> Any:
    binding, ctx = scene.model.binding, scene.model.session.ctx
    words = (scene.model.describe()["model"]["n_vocab"] + 31) // 32
    with open_stream(binding, ctx, StreamConfig()) as stream:
        binding.prefill(stream, scene.model.tokenize(CHAT, add_special=True, parse_special=True))
        tokens: list[int] = []
        for word in range(8, 14):
            mask = np.zeros(words, np.uint32)
            mask[word::16] = 0x0FF0
            binding.decode(stream)
            binding.set_token_mask(stream, mask)
            tokens += binding.next(stream).tokens
    return tokens


def _generate_grammar(scene: Scene) -> Any:
    return scene.model.generate(CHAT, 8, shape=Gbnf(GRAMMAR)).text


def _generate_guessing(scene: Scene) -> Any:
    return scene.model.generate(
        "one two one two one two one", 8, speculation=Speculation(max_tokens=4)
    ).text


def _generate_logprobs(scene: Scene) -> Any:
    result = scene.model.generate(CHAT, 6, logprobs=3, stop=["\n\n"])
    return [result.text, len(result.logprobs or ())]


def _fill(scene: Scene) -> Any:
    skeleton = {
        "spans": [
            {"kind": "literal", "value": '{"action":'},
            {"kind": "enum", "key": "action", "enumValues": ["REPLY", "IGNORE"]},
            {"kind": "literal", "value": ',"text":"'},
            {"kind": "free-string", "key": "text"},
            {"kind": "literal", "value": '","count":'},
            {"kind": "integer", "key": "count"},
            {"kind": "literal", "value": "}"},
        ]
    }
    return scene.model.fill(PROMPT, skeleton, max_tokens=24, on_limit="close").text


def _embed(scene: Scene) -> Any:
    return [round(float(value), 3) for value in scene.model.embed("hello there")[:4]]


def _end_of_turn(scene: Scene) -> Any:
    return round(scene.model.end_of_turn("<|im_start|>user\nhow are", "<|im_end|>").probability, 4)


def _tokens(scene: Scene) -> Any:
    tokens = scene.model.tokenize("Many words, 12 of them. " * 20, add_special=True)
    return [tokens, scene.model.detokenize(tokens)]


def _describe(scene: Scene) -> Any:
    return sorted(scene.model.describe())


def _set_options(scene: Scene) -> None:
    model = scene.model
    options = {
        "logit_bias": json.dumps([[token, 0.0] for token in range(50)]),
        "dry_sequence_breakers": json.dumps(["\n", ":", "a longer one"]),
        "samplers": "penalties;dry;top_k;min_p;temperature",
        "preset": "greedy",  # options that were set before a failure stay set
    }
    for name, value in options.items():
        model.binding.set_option(model.session.ctx, name, value)


def _save(scene: Scene) -> Any:
    return scene.model.save(scene.slot_file, PROMPT)


def _have_saved(scene: Scene) -> None:
    scene.model.save(scene.slot_file, OTHER_PROMPT)


def _restore(scene: Scene) -> Any:
    return scene.model.restore(scene.slot_file)


def _close(scene: Scene) -> None:
    scene.close()


OPERATIONS = (
    Operation("load", _load, lambda _: None),
    Operation("load again", _reload, _open),
    Operation("describe", _describe, _open),
    Operation("tokenize", _tokens, _open),
    Operation("set options", _set_options, _open),
    Operation("choose the first time", _choose, _open),
    Operation("choose", _choose, _use),
    Operation("choose with mode best", _choose_best, _use),
    Operation("choose with any tokenization", _choose_text, _use),
    Operation("choose from prepared labels", _choose_prepared, _use),
    Operation("choose for many prompts", _choose_together, _use),
    Operation("decide", _decide, _use),
    Operation("generate", _generate, _use),
    Operation("generate with sampling", _generate_sampled, _use),
    Operation("generate with masks", _generate_masked, _use),
    Operation("generate with a grammar", _generate_grammar, _use),
    Operation("generate with speculation", _generate_guessing, _use),
    Operation("generate with logprobs", _generate_logprobs, _use),
    Operation("fill", _fill, _use),
    Operation("embed", _embed, _use),
    Operation("end of turn", _end_of_turn, _use),
    Operation("save", _save, _have_saved),
    Operation("restore", _restore, _have_saved),
    Operation("close", _close, _use),
)
"""In the order in which a program would run them."""
