"""Labels that may be written with any tokens: ``Model.choose(tokenization="any")``."""

from __future__ import annotations

import collections
import enum
import json
import math
from pathlib import Path
from typing import Any

import pytest

from eliza_ffi.cli.main import main
from eliza_ffi.errors import InvalidArgumentError, NotSupportedError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

TOLERANCE = 1e-3
"""A proven probability is too low by at most this."""

VERBS = ("SEND", "CREATE", "DELETE", "SEARCH", "OPEN", "CLOSE")
NOUNS = ("EMAIL", "TASK", "NOTE", "FILE", "MESSAGE", "EVENT")


class Reply(enum.Enum):
    RESPOND = "RESPOND"
    IGNORE = "IGNORE"


def test_with_any_tokenization_a_choice_is_a_label(tiny_model: Model) -> None:
    choice = tiny_model.choose("Next: ", ["GO", "GO_ON", "STOP"], tokenization="any")
    assert choice.value in ("GO", "GO_ON", "STOP")
    assert choice.text == choice.value
    assert choice.logprob <= 0
    assert choice.proven
    greedy = tiny_model.choose("Next: ", ["GO", "GO_ON", "STOP"], tokenization="any", mode="greedy")
    assert tiny_model.detokenize(greedy.tokens) == f" {greedy.text}"  # the space of the prompt
    assert greedy.text == greedy.value
    assert greedy.logprob <= choice.logprob + TOLERANCE


def test_with_any_tokenization_enum_members_are_returned(tiny_model: Model) -> None:
    assert isinstance(tiny_model.choose("Hi! ", Reply, tokenization="any").value, Reply)


def test_sampled_spellings_have_the_frequencies_of_a_ranking(tiny_model: Model) -> None:
    labels = ["SEND_EMAIL", "SEND_MESSAGE", "REPLY", "IGNORE"]
    ranking = tiny_model.rank("The next action is ", labels, 4, tokenization="any")
    assert ranking.proven
    assert sum(ranking.probabilities) == pytest.approx(1, abs=4 * TOLERANCE)
    n = 400
    drawn = collections.Counter(
        tiny_model.choose(
            "The next action is ", labels, tokenization="any", mode="sample", seed=seed
        ).value
        for seed in range(n)
    )
    for label, probability in ranking:
        deviation = math.sqrt(probability * (1 - probability) / n)
        assert drawn[label] / n == pytest.approx(probability, abs=4 * deviation + TOLERANCE)


def test_the_chosen_label_is_the_first_of_the_ranking(tiny_model: Model) -> None:
    labels = [f"{verb}_{noun}" for verb in VERBS for noun in NOUNS]
    for prompt in ("The next action is ", "user: write to Bob\naction: "):
        choice = tiny_model.choose(prompt, labels, tokenization="any")
        ranking = tiny_model.rank(prompt, labels, 3, tokenization="any")
        assert choice.value == ranking.labels[0]
        assert choice.proven
        assert ranking.proven
        assert choice.probability == pytest.approx(ranking.probabilities[0], abs=TOLERANCE)


def test_the_text_of_the_best_label_is_passed_on(tiny_model: Model) -> None:
    pieces: list[str] = []
    choice = tiny_model.choose("Hi! ", ["a", "b"], tokenization="any", on_text=pieces.append)
    assert pieces == [choice.text]


def test_the_prompts_last_token_can_be_healed(tiny_model: Model) -> None:
    prompt = '{"action":"SEND_EMA'
    choice = tiny_model.choose(prompt, ["IL"], tokenization="any", heal_prompt=True)
    assert (choice.value, tiny_model.detokenize(choice.tokens)) == ("IL", "MAIL")


@pytest.mark.parametrize(
    ("labels", "settings", "said"),
    [
        (["a", "b"], {"probabilities": True}, "probabilities must be False with tokeniz"),
        (["a", "b"], {"mode": "best", "heal_prompt": True}, "leave heal_prompt out"),
        (["a", "b"], {"mode": "best", "max_tokens": 3}, "leave max_tokens out"),
        (["SEND_EMAIL_TO_ALL"], {"max_tokens": 1}, "max_tokens=1 ended the generation"),
        (["a"], {"tokenization": "best"}, "tokenization must be one of canonical, any, got 'best'"),
        (["a", "a"], {}, "the same as"),
        (["a\0b"], {}, "NUL"),
    ],
)
def test_unsuitable_labels_and_settings_are_named(
    tiny_model: Model, labels: list[str], settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        tiny_model.choose("Hi! ", labels, **{"tokenization": "any", **settings})


def test_elizaos_library_rejects_any_tokenization(
    elizaos_engine: Library, tiny_model: Model
) -> None:
    with Model(tiny_model.path, library=elizaos_engine) as model:
        with pytest.raises(NotSupportedError, match="has no token-trie sampler"):
            model.choose("Hi! ", ["a", "b"], tokenization="any")
        with pytest.raises(NotSupportedError, match="has no eliza_inference_llm_stream_rank"):
            model.rank("Hi! ", ["a", "b"], tokenization="any")


def test_the_command_line_takes_any_tokenization(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["choose", "--prompt", "Next: ", "--label", "GO", "--label", "STOP", "--json"]
    assert main([*arguments, "--tokenization", "any", "--heal-prompt"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] in ("GO", "STOP")
