"""The questions that train the embedded model to decide."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from tiny_model.aspects import Split, read_aspect
from tiny_model.corpus import Example, Generator
from tiny_model.held_out import KINDS
from tiny_model.inputs import CUSTOMER_ASPECTS, SINGLE_ASPECTS
from tiny_model.questions import Posed, Questions, is_held_out

from eliza_ffi.cli.demo_prompts import END_OF_TURN, START_OF_TURN
from eliza_ffi.decisions.prompts import input_text
from eliza_ffi.decisions.questions import Choice, Score

pytestmark = pytest.mark.slow

ASPECTS = (*CUSTOMER_ASPECTS, *SINGLE_ASPECTS, "respond")
QUESTIONS = 4000
PER_SPLIT = 600
NEW_CLAUSES = ("Should the conversation", "Should the message", "In other words", "Put simply")


def drawn(questions: Questions, split: Split, count: int, seed: int = 3) -> Iterator[Posed]:
    """Draw questions of a split."""
    rng = random.Random(seed)
    for _ in range(count):
        yield questions.draw(rng, split)


@pytest.fixture(scope="module")
def generator() -> Generator:
    """Return the generator of the training corpus."""
    return Generator()


@pytest.fixture(scope="module")
def corpus(generator: Generator) -> list[Example]:
    """Return the training examples that are questions."""
    return [each for each in generator.examples(QUESTIONS * 2, seed=5) if each.kind in KINDS]


@pytest.fixture(scope="module")
def trained(generator: Generator) -> list[Posed]:
    """Return questions of the training split as objects, not as text."""
    return list(drawn(generator.questions, Split.TRAINING, QUESTIONS))


def test_labels_are_distinct_and_the_correct_one_is_on_its_line(corpus: list[Example]) -> None:
    assert {example.kind for example in corpus} == set(KINDS)
    for example in corpus:
        assert len(set(example.choices)) == len(example.choices) >= 2
        assert example.choice == example.choices[example.correct_line]
        body = example.prompt.removesuffix(f"{END_OF_TURN}\n{START_OF_TURN}assistant\n")
        line = body.split("\n")[example.correct_line - len(example.choices)]
        assert line.startswith((f"- {example.choice}", f"{example.choice}. "))
        assert example.rest == END_OF_TURN


def test_a_prompt_has_the_input_and_the_question_in_one_turn(
    generator: Generator,
) -> None:
    rng = random.Random(1)
    for posed in drawn(generator.questions, Split.TRAINING, 300):
        asked, _ = posed.asked(rng)
        content = f"{input_text(posed.given)}\n\n{asked.text}"
        assert posed.prompt(asked) == (
            f"{START_OF_TURN}user\n{content}{END_OF_TURN}\n{START_OF_TURN}assistant\n"
        )


def test_held_out_combinations_do_not_occur_in_training(
    generator: Generator, trained: list[Posed]
) -> None:
    seen = {posed.family for posed in trained}
    held_out = {posed.family for posed in drawn(generator.questions, Split.COMBINATIONS, PER_SPLIT)}

    assert not any(map(is_held_out, seen))
    assert all(map(is_held_out, held_out))
    assert len(held_out) > 50


def test_held_out_instructions_do_not_occur_in_training(
    generator: Generator, trained: list[Posed]
) -> None:
    seen = {(posed.family.split("/")[0], instructions(posed)) for posed in trained}
    new = [
        (posed.family.split("/")[0], instructions(posed))
        for posed in drawn(generator.questions, Split.INSTRUCTIONS, PER_SPLIT)
    ]

    assert [each for each in new if each in seen] == []


def instructions(posed: Posed) -> str:
    """Return the last sentence of a question's first line."""
    return posed.question.instructions.partition("\n")[0].rpartition(". ")[2]


def test_held_out_names_do_not_occur_in_training(
    generator: Generator, trained: list[Posed]
) -> None:
    new_names = {
        key: {value.names[-1] for value in read_aspect(key).values if len(value.names) > 2}
        for key in ASPECTS
    }
    for posed in trained:
        key = posed.family.split("/")[0]
        assert not new_names.get(key, set()) & shown(posed)
    for posed in drawn(generator.questions, Split.NAMES, PER_SPLIT):
        key, kind = posed.family.split("/")[:2]
        if kind == "choice" and new_names.get(key):
            assert shown(posed) & new_names[key] or isinstance(posed.question, Choice)


def shown(posed: Posed) -> set[str]:
    """Return the options of a question in the spelling of the text files."""
    if isinstance(posed.question, Choice):
        return {str(option.value) for option in posed.question.options}
    if isinstance(posed.question, Score):
        return {level.label for level in posed.question.levels}
    return set()


def test_held_out_sentences_do_not_occur_in_training(generator: Generator) -> None:
    language = read_aspect("language").values
    known = {
        posed.message.lower().strip(" .!")
        for posed in drawn(generator.questions, Split.TRAINING, QUESTIONS)
        if posed.family.startswith("language/")
    }

    for value in language:
        new = value.sentences[-1].write(random.Random(0), lambda slot, rng: f"{{{slot}}}")
        assert new.partition("{")[0].strip() not in {text[: len(new)] for text in known}
    assert known


def test_held_out_clauses_do_not_occur_in_training(generator: Generator) -> None:
    rng = random.Random(2)
    prompts = [generator.planner(rng).prompt for _ in range(QUESTIONS)]

    assert not [prompt for prompt in prompts if any(clause in prompt for clause in NEW_CLAUSES)]
    assert any(len(line) > 300 for prompt in prompts for line in prompt.split("\n"))


def test_no_message_mentions_a_wrong_option(
    trained: list[Posed],
) -> None:
    for posed in trained:
        if posed.family.startswith("mentioned ") and isinstance(posed.question, Choice):
            values = [str(option.value) for option in posed.question.choices]
            right = posed.answer if posed.answer < len(values) else -1
            others = [value for at, value in enumerate(values) if at != right]
            assert not [value for value in others if value.lower() in posed.message.lower()]


@pytest.fixture(scope="module")
def encoded() -> tuple[Any, list[tuple[Example, Any]]]:
    """Return a tokenizer, and examples with their tokens."""
    pytest.importorskip("tokenizers")
    from tiny_model.vocabulary import encode_examples, train_tokenizer

    examples = [each for each in Generator().examples(600, seed=8) if each.choices]
    tokenizer = train_tokenizer((example.text for example in examples), 600)
    return tokenizer, list(zip(examples, encode_examples(tokenizer, examples), strict=True))


def text_before(tokenizer: Any, tokens: list[int], place: int) -> str:
    """Return the text up to and including the token at an index."""
    text: str = tokenizer.decode(tokens[: place + 1], skip_special_tokens=False)
    return text


def test_options_are_judged_at_their_last_token(
    encoded: tuple[Any, list[tuple[Example, Any]]],
) -> None:
    tokenizer, examples = encoded
    for example, tokens in examples:
        if example.correct_line < 0:
            assert tokens.hints.judged == []
            continue
        right = [place for place, verdict in tokens.hints.judged if verdict]
        wrong = [place for place, verdict in tokens.hints.judged if not verdict]
        assert len({*right, *wrong}) == len(tokens.hints.judged)
        assert max(*right, *wrong) < tokens.choice_start
        ended = {text_before(tokenizer, tokens.tokens, place) for place in right}
        assert any(example.choice in text.removesuffix("\n").rsplit("\n", 1)[-1] for text in ended)


def test_the_meaning_of_an_option_equals_the_inputs_only_if_it_is_correct(
    encoded: tuple[Any, list[tuple[Example, Any]]],
) -> None:
    from tiny_model.hints import MEANINGS

    tokenizer, examples = encoded
    asked = [(example, tokens) for example, tokens in examples if example.told]
    assert len(asked) > 100
    for example, tokens in asked:
        hints = tokens.hints
        told = {MEANINGS[meaning] for place, meaning in hints.meant if place == hints.meant[0][0]}
        assert told == set(example.told)
        before = text_before(tokenizer, tokens.tokens, hints.meant[0][0])
        assert before.endswith(f"{example.prompt[: example.input_end]}\n")
        verdicts = dict(hints.judged)
        meanings = dict(hints.meant)
        for (place, _, same), (recalled_at, said) in zip(
            hints.compared, hints.recalled, strict=True
        ):
            assert place == recalled_at
            assert MEANINGS[said] in told
            assert same == (meanings[place] == said)
            assert same == verdicts[place]
