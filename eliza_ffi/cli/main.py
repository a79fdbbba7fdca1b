"""The ``eliza-ffi`` command.

Exit codes: 0 = done; 1 = failed, with one line on standard error that names the cause and the next
step; 2 = wrong command line; 130 = interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, NoReturn

from ..async_model import AsyncModel
from ..errors import ElizaError
from ..model import Model
from ..sampling import PRESETS, Sampling
from ..session.options import Speculation
from ..structured import Gbnf
from ..terminal import printable
from .compare import add_compare_arguments, run_compare
from .console import (
    UsageError,
    add_label_arguments,
    add_model_arguments,
    add_options,
    add_prompt_arguments,
    add_tokenization,
    given,
    open_model,
    print_json,
    read_labels,
    read_question,
    run_interruptibly,
)
from .count import add_count_arguments, run_count
from .decide import add_decide_arguments, run_decide
from .doctor import ShowVersion, add_doctor_arguments, run_doctor
from .files import describe_os_error, read_text
from .help import HelpFormatter, with_example
from .label import add_labelling_arguments, run_label
from .labelled import add_calibrate_arguments, add_evaluate_arguments, run_calibrate, run_evaluate
from .models import add_models_arguments, run_models
from .rank import add_rank_arguments, run_rank
from .rerank import add_rerank_arguments, run_rerank
from .serve import add_mcp_arguments, add_serve_arguments, run_mcp, run_serve

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

MAX_DRAFT_TOKENS = 256

OTHER_NAMES = {
    "--option": "--label",
    "--label": "--option",
    "--top": "-k",
    "--input": "--prompt",
    "--input-file": "--prompt-file",
    "--prompt": "--input",
    "--prompt-file": "--input-file",
    "--timeout": "--deadline",
}
"""Options of one command that have another name in another command."""

LLAMA_NAMES = {
    "--model": ("-m", "-hf", "--hf-repo"),
    "--n-ctx": ("-c", "--ctx-size"),
    "--n-slots": ("-np", "--parallel"),
    "--threads": ("-t",),
    "--gpu-layers": ("-ngl", "--n-gpu-layers"),
    "--device": ("-dev",),
    "--flash-attn": ("-fa",),
    "--seed": ("-s",),
    "--alias": ("-a",),
    "--n-batch": ("-b", "--batch-size"),
    "--cache-type-k": ("-ctk",),
    "--cache-type-v": ("-ctv",),
    "--temperature": ("--temp",),
    "--max-tokens": ("-n", "--predict", "--n-predict"),
}
"""Options that llama.cpp's programs have under other names. These are accepted, too."""

EXAMPLES = """\
Examples (the --help of every command shows more):

  eliza-ffi choose --help
  eliza-ffi decide --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; None = the arguments of this process."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # On Windows, the encoding of files and pipes depends on the system's language. Elsewhere, a
        # terminal may not support all of Unicode.
        encoding = "utf-8" if sys.platform == "win32" else None
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except UsageError as error:
        _print_error(str(error))
        return EXIT_USAGE
    except (ElizaError, UnicodeDecodeError) as error:
        _print_error(str(error))
        return EXIT_FAILURE
    except OSError as error:
        if _is_closed_pipe(error):
            # Without this, Python would print an error when it flushes standard output at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            _print_error(describe_os_error(error))
        return EXIT_FAILURE


def _is_closed_pipe(error: OSError) -> bool:
    if sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None:
        return True
    return isinstance(error, BrokenPipeError)


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments, unknown = build_parser().parse_known_args(argv)
        if unknown:
            raise UsageError(_unknown_argument(unknown[0], arguments.parser))
        code: int = arguments.run(arguments)
    except SystemExit as error:  # argparse, after --help
        return error.code if isinstance(error.code, int) else EXIT_USAGE
    return code


def _unknown_argument(argument: str, parser: argparse.ArgumentParser) -> str:
    shown = (each for each in parser._actions if each.help is not argparse.SUPPRESS)
    known = [flag for each in shown for flag in each.option_strings]
    if argument.startswith("-"):
        argument = argument.partition("=")[0]  # without the value, which may be a key
    elif "--prompt" in known:
        return f"{parser.prog} has no argument {argument!r}: give a prompt with --prompt"
    near = [OTHER_NAMES[argument]] if OTHER_NAMES.get(argument) in known else []
    near = near or difflib.get_close_matches(argument, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"see {parser.prog} --help"
    return f"{parser.prog} has no argument {argument!r}: {hint}"


class _CommandParser(argparse.ArgumentParser):
    """A parser that reports a wrong command line in one line. It takes no abbreviations of options:
    ``--api-key KEY`` would mean ``--api-key-file KEY``, and the error would print the key."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _CommandParser(
        prog="eliza-ffi",
        description="Choose, decide and generate text with a local language model.",
        epilog=f"Exit codes: 0 done, 1 failed, 2 wrong command line, 130 interrupted\n\n{EXAMPLES}",
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=ShowVersion,
        help="print the versions of the package, the library and llama.cpp",
    )
    commands: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Any]] = {
        "choose": ("choose a label from a list", _add_choose_arguments, run_choose),
        "rank": ("find the most probable of many labels", add_rank_arguments, run_rank),
        "rerank": (
            "sort documents by their relevance for a query",
            add_rerank_arguments,
            run_rerank,
        ),
        "generate": (
            "continue a prompt, streaming the text",
            _add_generate_arguments,
            run_generate,
        ),
        "decide": (
            "answer questions about one input, or about every row of a table",
            add_decide_arguments,
            run_decide,
        ),
        "count": ("estimate the shares of answers in a table", add_count_arguments, run_count),
        "serve": ("serve a model over HTTP", add_serve_arguments, run_serve),
        "mcp": ("give agents tools to choose and decide (MCP)", add_mcp_arguments, run_mcp),
        "tokenize": ("print the tokens of a prompt", _add_tokenize_arguments, run_tokenize),
        "models": ("list the models in the caches", add_models_arguments, run_models),
        "doctor": ("check the installation", add_doctor_arguments, run_doctor),
        "label": ("label rows of a table, one key each", add_labelling_arguments, run_label),
        "evaluate": (
            "measure decisions on a table with the right answers",
            add_evaluate_arguments,
            run_evaluate,
        ),
        "compare": (
            "compare two models, wordings or calibrations on the same rows",
            add_compare_arguments,
            run_compare,
        ),
        "calibrate": (
            "fit a calibration to a table with the right answers",
            add_calibrate_arguments,
            run_calibrate,
        ),
    }
    parsers = parser.add_subparsers(metavar="command", required=True)
    for name, (purpose, add_arguments, run) in commands.items():
        command = parsers.add_parser(name, help=purpose, formatter_class=HelpFormatter)
        add_arguments(command)
        command.set_defaults(run=run, parser=command)
        command.epilog = with_example(name, command.epilog)
        options = command._option_string_actions
        for ours, others in LLAMA_NAMES.items():
            if ours in options:  # not with add_argument, because --help would list all names
                options.update(dict.fromkeys(others, options[ours]))
    return parser


def _add_choose_arguments(parser: argparse.ArgumentParser) -> None:
    add_prompt_arguments(parser)
    add_label_arguments(parser)
    add_options(
        parser,
        {
            "--mode best|greedy|sample": "best: take the label that is most probable as a whole; "
            "greedy: take the most probable token at each step; sample: draw each token by its "
            "probability (default: best, or greedy with --heal-prompt)",
            "--temperature TEMPERATURE": "sampling temperature: only with --mode sample "
            "(default: 1)",
            "--heal-prompt": "with --tokenization any: spell the prompt's last token again, "
            "together with the label, so that a token may span both",
            "--probabilities": "print every label with its probability, the most probable first; "
            "* marks the chosen label",
            "--json": "print JSON: the label, its probability, tokens and timing",
        },
    )
    add_tokenization(parser)
    add_model_arguments(parser)


def _add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    add_prompt_arguments(parser)
    add_options(
        parser,
        {
            "--max-tokens N": "generate at most N tokens; 0 = no limit (default: 256)",
            f"--preset {'|'.join(PRESETS)}": "start from these sampling settings; the next four "
            "options override them",
            "--temperature TEMPERATURE": "sampling temperature: 0 = greedy (default: 0)",
            "--top-k TOP_K": "sample only from the TOP_K most probable tokens; 0 = off "
            "(default: 0)",
            "--top-p TOP_P": "sample only from the most probable tokens whose probabilities add "
            "up to TOP_P; 1 = off (default: 1)",
            "--repeat-penalty REPEAT_PENALTY": "make tokens of the recent text less probable; "
            "1 = off (default: 1)",
            "--grammar-file FILE": "allow only text that matches the GBNF grammar in FILE, from "
            "its rule root",
            "--draft-max N": "speculative decoding: draft up to N tokens at a time; 0 = off "
            "(default: 0)",
            "--drafter PATH|NAME": "with --draft-max: a small model that drafts the tokens",
        },
    )
    parser.set_defaults(max_tokens=256, draft_max=0)
    add_model_arguments(parser)


def _add_tokenize_arguments(parser: argparse.ArgumentParser) -> None:
    add_prompt_arguments(parser)
    add_options(
        parser,
        {
            "--add-special": "add the BOS and EOS tokens",
            "--parse-special": "recognize special tokens in the prompt, such as <|im_start|>",
            "--json": "print JSON: the token ids and their text",
        },
    )
    add_model_arguments(parser)


def run_choose(arguments: argparse.Namespace) -> int:
    if arguments.temperature is not None and arguments.mode != "sample":
        raise UsageError("--temperature requires --mode sample: the other modes do not sample")
    if arguments.heal_prompt and arguments.tokenization != "any":
        raise UsageError("--heal-prompt requires --tokenization any")
    choices = read_labels(arguments)
    question = read_question(arguments)
    with open_model(arguments) as model:
        choice = run_interruptibly(
            AsyncModel.of(model).choose(
                question,
                choices,
                temperature=1.0 if arguments.temperature is None else arguments.temperature,
                **given(arguments, "mode", "probabilities", "tokenization", "heal_prompt"),
            )
        )
        if arguments.json:
            facts: dict[str, Any] = {
                "value": choice.value,
                "index": choice.index,
                "logprob": choice.logprob,
                "probability": choice.probability,
                "tokens": list(choice.tokens),
                "forward_passes": choice.forward_passes,
                "elapsed_ms": round(choice.seconds * 1e3, 3),
                "model": model.path,
            }
            if choice.probabilities is not None:
                facts["probabilities"] = dict(choice.probabilities)
            print_json(facts)
        elif choice.probabilities is not None:
            for value, probability in choice.ranked():
                mark = "*" if value == choice.value else " "
                print(f"{mark} {probability:7.2%}  {value}")
        else:
            print(choice.value)
    return 0


def run_generate(arguments: argparse.Namespace) -> int:
    question = read_question(arguments)
    if not 0 <= arguments.draft_max <= MAX_DRAFT_TOKENS:
        raise UsageError(f"--draft-max must be 0 to {MAX_DRAFT_TOKENS}, got {arguments.draft_max}")
    if arguments.drafter is not None and arguments.draft_max == 0:
        raise UsageError("--drafter requires --draft-max")
    path = arguments.grammar_file
    grammar = None if path is None else read_text(path)
    with open_model(arguments) as model:
        run_interruptibly(_generate(model, question, grammar, arguments))
    return 0


async def _generate(
    model: Model, question: Any, grammar: str | None, arguments: argparse.Namespace
) -> None:
    speculation = None
    if arguments.draft_max:
        speculation = Speculation(arguments.draft_max, drafter=arguments.drafter)
    options = given(arguments, "temperature", "top_k", "top_p", "repeat_penalty")
    options = {name: value for name, value in options.items() if value is not None}
    sampling = Sampling(**options) if options else None
    if arguments.preset is not None:
        sampling = Sampling.preset(arguments.preset, **options)
    stream = AsyncModel.of(model).stream(
        question,
        max_tokens=arguments.max_tokens,
        schema=None if grammar is None else Gbnf(grammar),
        speculation=speculation,
        sampling=sampling,
    )
    async with aclosing(stream) as pieces:
        async for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    sys.stdout.write("\n")


def run_tokenize(arguments: argparse.Namespace) -> int:
    question = read_question(arguments)
    if not isinstance(question, str) and (arguments.add_special or arguments.parse_special):
        raise UsageError(
            "--add-special and --parse-special cannot be combined with --chat or --messages: the "
            "chat template writes the special tokens"
        )
    with open_model(arguments) as model:
        if not isinstance(question, str):
            tokens = model.chat_tokens(question)
        else:
            tokens = model.tokenize(question, arguments.add_special, arguments.parse_special)
        if arguments.json:
            pieces = [model.detokenize([token], unparse_special=True) for token in tokens]
            print_json({"tokens": tokens, "pieces": pieces})
        else:
            print(*tokens)
    return 0


def _print_error(text: str) -> None:
    line = printable(" ".join(text.split()))
    print(f"eliza-ffi: {line}", file=sys.stderr)
