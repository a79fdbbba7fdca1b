"""Each use of a model once, for ``check_soak.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stage import ACTIONS, CHAT, OTHER_PROMPT, PROMPT, Stage

from eliza_ffi import Gbnf, Sampling, Speculation
from eliza_ffi.choices import ChoiceResult
from eliza_ffi.decisions import Choice as Question
from eliza_ffi.decisions import Predicate, Score

GRAMMAR = 'root ::= ("yes" | "no") [a-z ,]{0,9} "."'
REPEATED = "one two one two one two one"
N_SLOTS = 2


def _shown(choice: ChoiceResult[Any]) -> list[Any]:
    # Rounding depends on how much of the prompt was in the cache.
    return [choice.value, round(choice.probability, 4)]


def _choose_best(stage: Stage) -> Any:
    choice = stage.model.choose(PROMPT, ACTIONS, mode="best", probabilities=True)
    return [_shown(choice), [round(value, 4) for value in (choice.probabilities or {}).values()]]


def _choose_prepared(stage: Stage) -> Any:
    labels = stage.model.prepare_labels([*ACTIONS, *(f"TOOL_{i}" for i in range(100))])
    return _shown(stage.model.choose(PROMPT, labels))


def _choose_together(stage: Stage) -> Any:
    prompts = [PROMPT, OTHER_PROMPT] * N_SLOTS
    return [_shown(choice) for choice in stage.model.choose_many(prompts, ACTIONS)]


def _decide(stage: Stage) -> Any:
    questions = {
        "action": Question("What should be done?", list(ACTIONS)),
        "urgent": Predicate("Is it urgent?"),
        "anger": Score("How angry is the writer?", ["calm", "cross", "furious"]),
    }
    decision = stage.model.decide(PROMPT, questions, scoring="full", allowed_probability=True)
    return [[round(p, 3) for p in answer.distribution] for answer in decision.values()]


PENALTIES: dict[str, Any] = {"repeat_penalty": 1.1, "dry_multiplier": 0.5, "xtc_probability": 0.1}
TRUNCATION: dict[str, Any] = {"min_p": 0.05, "typical_p": 0.9, "top_n_sigma": 2.0}
SAMPLING = Sampling(temperature=0.8, top_k=20, seed=3, **PENALTIES, **TRUNCATION)


def _generate_logprobs(stage: Stage) -> Any:
    result = stage.model.generate(CHAT, 6, logprobs=3, stop=["\n\n"])
    return [result.text, len(result.logprobs or ())]


def _fill(stage: Stage) -> Any:
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
    return stage.model.fill(PROMPT, skeleton, max_tokens=24, on_limit="close").text


def _tokens(stage: Stage) -> Any:
    tokens = stage.model.tokenize("Many words, 12 of them. " * 20, add_special=True)
    return [tokens, stage.model.detokenize(tokens)]


USES: dict[str, Callable[[Stage], Any]] = {
    "describe": lambda stage: sorted(stage.model.describe()),
    "tokenize": _tokens,
    "choose": lambda stage: _shown(stage.model.choose(PROMPT, ACTIONS)),
    "choose with mode best": _choose_best,
    "choose with any tokenization": lambda stage: _shown(
        stage.model.choose(PROMPT, ACTIONS, tokenization="any", heal_prompt=True)
    ),
    "choose from prepared labels": _choose_prepared,
    "choose for many prompts": _choose_together,
    "decide": _decide,
    "generate": lambda stage: stage.model.generate(CHAT, 8).text,
    "generate with sampling": lambda stage: stage.model.generate(CHAT, 8, sampling=SAMPLING).text,
    "generate with a grammar": lambda stage: (
        stage.model.generate(CHAT, 8, schema=Gbnf(GRAMMAR)).text
    ),
    "generate with speculation": lambda stage: (
        stage.model.generate(REPEATED, 8, speculation=Speculation(max_tokens=4)).text
    ),
    "generate with logprobs": _generate_logprobs,
    "fill": _fill,
    "embed": lambda stage: [round(float(x), 3) for x in stage.model.embed("hello there")[:4]],
    "end of turn": lambda stage: round(
        stage.model.end_of_turn("<|im_start|>user\nhow are", "<|im_end|>").probability, 4
    ),
}
