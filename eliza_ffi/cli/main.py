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
import re
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, NoReturn

from ..async_model import AsyncModel
from ..errors import ElizaError
from ..model import Model
from ..sampling import PRESETS, Sampling
from ..session.options import Speculation
from ..structured import Gbnf
from ..terminal import printable
from .calibrate import add_calibrate_arguments, run_calibrate
from .console import (
    UsageError,
    add_chat_arguments,
    add_label_arguments,
    add_model_arguments,
    add_prompt_arguments,
    add_tokenization,
    open_model,
    print_json,
    read_labels,
    read_question,
    run_interruptibly,
)
from .decide import add_decide_arguments, run_decide
from .demo import run_demo
from .doctor import run_doctor
from .evaluate import add_evaluate_arguments, run_evaluate
from .files import describe_os_error, read_text
from .help import HelpFormatter, with_example
from .mcp import add_mcp_arguments, run_mcp
from .models import run_models
from .rank import add_rank_arguments, run_rank
from .serve import add_serve_arguments, run_serve
from .version import ShowVersion

__all__ = ["main"]

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

MAX_DRAFT_TOKENS = 256

OTHER_NAMES = {
    "--choice": "--label",
    "--label": "--choice",
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
    "--max-tokens": ("-n", "--predict", "--n-predict"),
}
"""Options that llama.cpp's programs have under other names. These are accepted, too."""

EXAMPLES = """\
Examples (the --help of every command shows more):

  eliza-ffi demo
  eliza-ffi choose --help
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
    """Return whether the reader of our output has closed the pipe."""
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


def _unknown_argument(given: str, parser: argparse.ArgumentParser) -> str:
    known = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", parser.format_help())
    if given.startswith("-"):
        given = given.partition("=")[0]  # without the value, which may be a key
    elif "--prompt" in known:
        return f"{parser.prog} has no argument {given!r}: give a prompt with --prompt"
    near = [OTHER_NAMES[given]] if OTHER_NAMES.get(given) in known else []
    near = near or difflib.get_close_matches(given, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"see {parser.prog} --help"
    return f"{parser.prog} has no argument {given!r}: {hint}"


class _CommandParser(argparse.ArgumentParser):
    """A parser that reports a wrong command line in one line, without printing the usage first.

    It takes no abbreviations of options: ``--api-key KEY`` would mean ``--api-key-file KEY``, and
    the error would print the key.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
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
    commands = parser.add_subparsers(metavar="command", required=True)

    choose = commands.add_parser("choose", help="choose a label from a list")
    add_prompt_arguments(choose)
    add_chat_arguments(choose)
    add_label_arguments(choose)
    choose.add_argument(
        "--mode",
        choices=("best", "greedy", "sample"),
        help="best: take the label that is most probable as a whole; greedy: take the most "
        "probable token at each step; sample: draw each token by its probability (default: best, "
        "or greedy with --heal-prompt)",
    )
    choose.add_argument(
        "--temperature",
        type=float,
        help="sampling temperature: only with --mode sample (default: 1)",
    )
    add_tokenization(choose)
    choose.add_argument(
        "--heal-prompt",
        action="store_true",
        help="with --tokenization any: spell the prompt's last token again, together with the "
        "label, so that a token may span both",
    )
    choose.add_argument(
        "--probabilities",
        action="store_true",
        help="print every label with its probability, the most probable first; * marks the chosen "
        "label",
    )
    choose.add_argument(
        "--json",
        action="store_true",
        help="print JSON: the label, its probability, tokens and timing",
    )
    add_model_arguments(choose)
    choose.set_defaults(run=run_choose)

    rank = commands.add_parser("rank", help="find the most probable of many labels")
    add_rank_arguments(rank)
    rank.set_defaults(run=run_rank)

    generate = commands.add_parser("generate", help="continue a prompt, streaming the text")
    add_prompt_arguments(generate)
    add_chat_arguments(generate)
    generate.add_argument(
        "--max-tokens",
        type=int,
        default=256,
        metavar="N",
        help="generate at most N tokens; 0 = no limit (default: 256)",
    )
    generate.add_argument(
        "--preset",
        choices=tuple(PRESETS),
        help="start from these sampling settings; the next four options override them",
    )
    generate.add_argument(
        "--temperature", type=float, help="sampling temperature: 0 = greedy (default: 0)"
    )
    generate.add_argument(
        "--top-k",
        type=int,
        help="sample only from the TOP_K most probable tokens; 0 = off (default: 0)",
    )
    generate.add_argument(
        "--top-p",
        type=float,
        help="sample only from the most probable tokens whose probabilities add up to TOP_P; "
        "1 = off (default: 1)",
    )
    generate.add_argument(
        "--repeat-penalty",
        type=float,
        help="make tokens of the recent text less probable; 1 = off (default: 1)",
    )
    generate.add_argument(
        "--grammar-file",
        metavar="FILE",
        help="allow only text that matches the GBNF grammar in FILE, from its rule root",
    )
    generate.add_argument(
        "--draft-max",
        type=int,
        default=0,
        metavar="N",
        help="speculative decoding: draft up to N tokens at a time; 0 = off (default: 0)",
    )
    generate.add_argument(
        "--drafter",
        metavar="PATH|NAME",
        help="with --draft-max: a small model that drafts the tokens",
    )
    add_model_arguments(generate)
    generate.set_defaults(run=run_generate)

    decide = commands.add_parser(
        "decide", help="answer questions about one input, or about every row of a table"
    )
    add_decide_arguments(decide)
    decide.set_defaults(run=run_decide)

    serve = commands.add_parser("serve", help="serve a model over HTTP")
    add_serve_arguments(serve)
    serve.set_defaults(run=run_serve)

    mcp = commands.add_parser("mcp", help="give agents tools to choose and decide (MCP)")
    add_mcp_arguments(mcp)
    mcp.set_defaults(run=run_mcp)

    tokenize = commands.add_parser("tokenize", help="print the tokens of a prompt")
    add_prompt_arguments(tokenize)
    add_chat_arguments(tokenize)
    tokenize.add_argument("--add-special", action="store_true", help="add the BOS and EOS tokens")
    tokenize.add_argument(
        "--parse-special",
        action="store_true",
        help="recognize special tokens in the prompt, such as <|im_start|>",
    )
    tokenize.add_argument(
        "--json", action="store_true", help="print JSON: the token ids and their text"
    )
    add_model_arguments(tokenize)
    tokenize.set_defaults(run=run_tokenize)

    models = commands.add_parser("models", help="list the models in the caches")
    models.description = (
        "List the models in the caches of Hugging Face and llama.cpp, by the names that --model "
        "takes. Only the headers of the files are read."
    )
    models.add_argument("--json", action="store_true", help="print JSON: a list of all facts")
    models.set_defaults(run=run_models)

    doctor = commands.add_parser("doctor", help="check the installation")
    doctor.add_argument("--json", action="store_true", help="print JSON: the findings")
    add_model_arguments(doctor)
    doctor.set_defaults(run=run_doctor)

    demo = commands.add_parser(
        "demo", help="choose labels and answer questions for the bundled example messages"
    )
    demo.add_argument(
        "--json", action="store_true", help="print JSON: one object instead of the tables"
    )
    add_model_arguments(demo)
    demo.set_defaults(run=run_demo)

    evaluate = commands.add_parser(
        "evaluate", help="measure decisions on a table with the right answers"
    )
    evaluate.description = (
        "Measure decisions on a table with the right answers: accuracy, NLL, Brier score, ECE, and "
        "how many answers change with the order of the options."
    )
    add_evaluate_arguments(evaluate)
    evaluate.set_defaults(run=run_evaluate)

    calibrate = commands.add_parser(
        "calibrate", help="fit a calibration to a table with the right answers"
    )
    add_calibrate_arguments(calibrate)
    calibrate.set_defaults(run=run_calibrate)
    for name, command in commands.choices.items():
        command.formatter_class = HelpFormatter
        command.set_defaults(parser=command)
        options = command._option_string_actions
        for ours, others in LLAMA_NAMES.items():
            if ours in options:  # not with add_argument, because --help would list all names
                options.update(dict.fromkeys(others, options[ours]))
        command.epilog = with_example(name, command.epilog)
    return parser


def run_choose(arguments: argparse.Namespace) -> int:
    """Choose a label and print it."""
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
                mode=arguments.mode,
                temperature=1.0 if arguments.temperature is None else arguments.temperature,
                probabilities=arguments.probabilities,
                tokenization=arguments.tokenization,
                heal_prompt=arguments.heal_prompt,
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
    """Generate text and stream it to standard output."""
    question = read_question(arguments)
    if arguments.max_tokens < 0:
        raise UsageError(f"--max-tokens must be 0 or more, got {arguments.max_tokens}")
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
    stream = AsyncModel.of(model).stream(
        question,
        max_tokens=arguments.max_tokens,
        shape=None if grammar is None else Gbnf(grammar),
        speculation=speculation,
        **_sampling(arguments),
    )
    async with aclosing(stream) as pieces:
        async for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    sys.stdout.write("\n")


def _sampling(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the sampling settings: the preset's, overridden by the options of the command line."""
    names = ("temperature", "top_k", "top_p", "repeat_penalty")
    given = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    if arguments.preset is None:
        return {"sampling": Sampling(**given)} if given else {}
    return {"sampling": Sampling.preset(arguments.preset, **given)}


def run_tokenize(arguments: argparse.Namespace) -> int:
    """Print the tokens of a prompt or a conversation."""
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
