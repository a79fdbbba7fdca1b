"""The byte-level BPE vocabulary, and the tokenization of examples.

Text is split like in llama.cpp's pre-tokenizer ``smollm``: every digit is separate, then GPT-2's
rule applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from demo_prompts import END_OF_TURN, START_OF_TURN
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import Example
from .hints import Hints, Span, give_hints

PRE_TOKENIZER = "smollm"
BOS, EOS, PAD = "<|startoftext|>", "<|endoftext|>", "<|pad|>"
SPECIAL_TOKENS = (BOS, EOS, START_OF_TURN, END_OF_TURN, PAD)


@dataclass(frozen=True)
class Encoded:
    """An example as tokens: ``[BOS] prompt | choice | rest [EOS]``.

    In plain chat, the whole reply counts as the choice. The places in `hints` are indexes of
    `tokens`.
    """

    tokens: list[int]
    choice_start: int
    choice_end: int
    hints: Hints


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Train a tokenizer with `size` tokens on `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def special_id(tokenizer: Tokenizer, token: str) -> int:
    """Return the id of a special token; raise KeyError if the vocabulary lacks it."""
    index: int | None = tokenizer.token_to_id(token)
    if index is None:
        raise KeyError(token)
    return index


def encode_examples(tokenizer: Tokenizer, examples: Sequence[Example]) -> list[Encoded]:
    """Tokenize the parts of each example separately, as at run time."""
    prompts = tokenizer.encode_batch([example.prompt for example in examples])
    choices = tokenizer.encode_batch([example.choice for example in examples])
    rests = tokenizer.encode_batch([example.rest for example in examples])
    bos, eos = special_id(tokenizer, BOS), special_id(tokenizer, EOS)
    line_break = tokenizer.encode("\n").ids[0]
    encoded: list[Encoded] = []
    for example, prompt, choice, rest in zip(examples, prompts, choices, rests, strict=True):
        tokens = [bos, *prompt.ids]
        lines: list[Span] = []
        statement: Span | None = None
        input_end = 1 + (prompt.char_to_token(example.input_end) or 0)
        if example.correct_line >= 0:
            starts = [at + 1 for at, token in enumerate(tokens) if token == line_break]
            end = len(starts) - example.breaks_after_list
            first = end - len(example.choices) - 1
            lines = list(pairwise(starts[first:end]))
            if example.kind == "predicate":
                # The line that explains how to answer is between the statement and the options.
                statement = (starts[first - 2], starts[first - 1])
        encoded.append(
            Encoded(
                tokens=[*tokens, *choice.ids, *rest.ids, eos],
                choice_start=len(tokens),
                choice_end=len(tokens) + len(choice.ids if example.choice else rest.ids),
                hints=give_hints(example, lines, statement, input_end),
            )
        )
    return encoded
