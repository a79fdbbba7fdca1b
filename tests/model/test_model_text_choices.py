"""Labels that may be written with any tokens: ``Model.choose(tokenization="any")``."""

from __future__ import annotations

import enum
import json
from pathlib import Path

import pytest

from eliza_ffi.choices.token_tree import TokenTreePayload
from eliza_ffi.cli.main import main
from eliza_ffi.elizaos import FfiStreamingGenerateArgs
from eliza_ffi.errors import InvalidArgumentError, NotSupportedError, TokenTrieError
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model


class Reply(enum.Enum):
    RESPOND = "RESPOND"
    IGNORE = "IGNORE"


def test_with_any_tokenization_a_choice_is_a_label(tiny_model: Model) -> None:
    choice = tiny_model.choose("Next: ", ["GO", "GO_ON", "STOP"], tokenization="any")
    assert choice.value in ("GO", "GO_ON", "STOP")
    assert tiny_model.detokenize(choice.tokens) == choice.text == choice.value
    assert choice.logprob <= 0
    assert choice.probabilities is None


def test_with_any_tokenization_enum_members_are_returned(tiny_model: Model) -> None:
    assert isinstance(tiny_model.choose("Hi! ", Reply, tokenization="any").value, Reply)


def test_any_tokenization_supports_sampling_but_no_probabilities(
    tiny_model: Model,
) -> None:
    sampled = tiny_model.choose("Hi! ", ["a", "b"], tokenization="any", mode="sample")
    assert sampled.value in ("a", "b")
    with pytest.raises(InvalidArgumentError, match='mode="best" needs a single'):
        tiny_model.choose("Hi! ", ["a", "b"], tokenization="any", mode="best")
    with pytest.raises(InvalidArgumentError, match="probabilities needs a single"):
        tiny_model.choose("Hi! ", ["a", "b"], tokenization="any", probabilities=True)


def test_the_prompts_last_token_can_be_healed(tiny_model: Model) -> None:
    prompt = tiny_model.tokenize('{"action":"SEND_EMA', add_special=True)
    choice = tiny_model.choose(prompt, ["IL"], tokenization="any", heal_prompt=True)
    assert choice.text == "IL"
    assert choice.value == "IL"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "a"], "the same as"),
        ([], "nothing to choose from"),
        (["a", ""], "non-empty"),
        (["a\0b"], "NUL"),
    ],
)
def test_invalid_labels_are_named(tiny_model: Model, labels: list[str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        tiny_model.choose("Hi! ", labels, tokenization="any")


def test_a_lone_surrogate_is_rejected(tiny_model: Model) -> None:
    with pytest.raises(TokenTrieError, match="choices is not JSON"):
        tiny_model.choose("Hi! ", ["a\ud800"], tokenization="any")


def test_an_unknown_tokenization_is_named(tiny_model: Model) -> None:
    with pytest.raises(
        InvalidArgumentError, match="tokenization must be one of own, any, got 'best'"
    ):
        tiny_model.choose("Hi! ", ["a"], tokenization="best")


def test_max_tokens_inside_a_label_is_an_error(tiny_model: Model) -> None:
    with pytest.raises(InvalidArgumentError, match="max_tokens=1 ended the generation"):
        tiny_model.choose("Hi! ", ["SEND_EMAIL_TO_ALL"], tokenization="any", max_tokens=1)


def test_a_payload_and_texts_exclude_each_other() -> None:
    with pytest.raises(InvalidArgumentError, match="expected at most one constraint"):
        FfiStreamingGenerateArgs(
            [1], token_tree_payload=TokenTreePayload("", ()), text_choices=("a",)
        )


def test_an_older_library_rejects_any_tokenization(
    older_engine: Library, tiny_model: Model
) -> None:
    with Model(tiny_model.path, library=older_engine) as older, pytest.raises(NotSupportedError):
        older.choose("Hi! ", ["a", "b"], tokenization="any")


def test_the_command_line_takes_any_tokenization(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["choose", "--prompt", "Next: ", "--choice", "GO", "--choice", "STOP", "--json"]
    assert main([*arguments, "--tokenization", "any", "--heal-prompt"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] in ("GO", "STOP")
