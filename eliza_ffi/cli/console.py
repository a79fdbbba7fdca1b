"""Shared by the commands: arguments, prompts, labels, opening the model, and interrupts."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from ..chat.template import Messages, check_messages
from ..checks import short_repr
from ..errors import InvalidArgumentError
from ..model import Model
from ..session.session import PREFIXES
from ..terminal import printable
from .files import STANDARD_INPUT, check_utf8, read_standard_input, read_text
from .progress import ProgressBar

T = TypeVar("T")


class UsageError(Exception):
    """A wrong command line; the exit code is 2."""


def probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return value


def whole_number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def at_least_one(text: str) -> int:
    number = whole_number(text)
    if number == 0:
        raise argparse.ArgumentTypeError("expected 1 or more, got 0")
    return number


_POSITIVE = ("--orders", "--limit", "--reorder", "--bins", "--n-slots")

TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("--gpu-layers", "--draft-max", "TOP_K"), int),
    **dict.fromkeys((*_POSITIVE, "-k", "--top", "--top-n", "--group-level"), at_least_one),
    "N": whole_number,
    **dict.fromkeys(("C", "P", "R"), probability),
    **dict.fromkeys(("SECONDS", "TEMPERATURE", "TOP_P", "MIN_P", "PENALTY"), float),
    "REPEAT_PENALTY": float,
}
"""The types of options by their names or, for all other options, by the placeholders of their
values. Without an entry here, a value is a string."""


def add_options(parser: argparse._ActionsContainer, options: Mapping[str, str]) -> None:
    """Add options, given as a mapping from their usage to their help. The usage is ``--flag``,
    ``--option VALUE``, ``--option VALUE ...`` if it may be repeated, or ``--option one|two``."""
    for usage, text in options.items():
        name, *value = usage.split(" ")
        settings: dict[str, Any] = {"help": text}
        if not value:
            settings["action"] = "store_true"
        elif value[0].islower():
            settings["choices"] = value[0].split("|")
        else:
            settings |= {"metavar": value[0], "type": TYPES.get(name, TYPES.get(value[0]))}
        if value[1:] == ["..."]:
            settings["action"] = "append"
        parser.add_argument(name, **settings)


def refuse(arguments: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """Raise UsageError for the first option that is given; the message ends with `why`."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value is not False:
            raise UsageError(f"--{name.replace('_', '-')} {why}")


def given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names}


def add_tokenization(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        {
            "--tokenization canonical|any": "canonical: write a label with the tokens that the "
            "tokenizer gives for it; any: allow any tokens that spell the label, as under a "
            "grammar (default: canonical)"
        },
    )
    parser.set_defaults(tokenization="canonical")


def add_model_arguments(parser: argparse.ArgumentParser, *, decides: bool = False) -> None:
    """Add the options of the model; those for an encoder only if the command decides."""
    group = parser.add_argument_group("model")
    encoder = {
        "--encoder PATH|NAME": "a second model that compares the input with the descriptions of "
        "the options: an embedding model or a reranker (default: none)",
        "--input-prefix TEXT": "the text before each input of an embedding model (default: as the "
        "model was trained, if its name shows this)",
        "--option-prefix TEXT": "the text before each option of an embedding model",
    }
    add_options(
        group,
        {
            "--model PATH|NAME": "a .gguf file, a folder with a model, or a name on Hugging Face, "
            "such as org/repo:Q4_K_M (default: the embedded model)",
            **(encoder if decides else {}),
            "--library PATH": "the libelizainference to load (default: search for it)",
            "--n-ctx N": "tokens of KV cache, shared by all slots (default: the context length "
            "the model was trained with, at most 8192)",
            "--threads N": "CPU threads (default: chosen for each pass, at most the physical "
            "cores)",
            "--gpu-layers N": "layers to offload to a GPU; -1 = all (default: -1)",
            "--device NAMES": "devices to use, by the names that doctor prints, separated by "
            "commas; none = only the CPU (default: auto)",
            "--rpc HOST:PORT,...": "offload layers to these rpc-server processes; use them only "
            "on a private network",
            "--batching auto|off": "off: run each request alone, in one slot, so that rounding "
            "does not depend on timing (default: auto)",
            "--flash-attn auto|on|off": "off: compute attention without flash attention, which is "
            "slower (default: auto)",
            "--n-batch N": "tokens of prompts in one forward pass (default: 512)",
            "--cache-type-k TYPE": "data type of the keys in the KV cache, such as q8_0 (default: "
            "f16)",
            "--cache-type-v TYPE": "data type of the values in the KV cache (default: f16)",
            "--chat-template-file FILE": "use the chat template in FILE, in Jinja2's language, "
            "instead of the model's own",
            "--seed N": "seed for sampling (default: random)",
        },
    )


def model_options(arguments: argparse.Namespace, n_slots: int | None = None) -> dict[str, Any]:
    """Return the keyword arguments of :class:`~eliza_ffi.Model` that the command line sets."""
    if n_slots is None and arguments.batching == "off":
        n_slots = 1  # because the slot of a request affects rounding
    options = given(arguments, "device", "rpc", "batching", "flash_attn")
    options |= given(arguments, "cache_type_k", "cache_type_v")
    options |= {name: getattr(arguments, name, None) for name in PREFIXES}
    if arguments.n_batch is not None:
        options["n_batch"] = str(arguments.n_batch)
    if arguments.chat_template_file is not None:
        options["chat_template"] = read_text(arguments.chat_template_file)
    settings = {
        "library": arguments.library,
        "n_ctx": arguments.n_ctx or None,
        "n_slots": n_slots,
        "n_threads": arguments.threads or None,
        "n_gpu_layers": arguments.gpu_layers,
        "seed": arguments.seed,
        "encoder": getattr(arguments, "encoder", None),
        "options": {name: value for name, value in options.items() if value is not None} or None,
    }
    return {name: value for name, value in settings.items() if value is not None}


def with_model(arguments: argparse.Namespace, path: str | None) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(arguments), "model": path})


def add_prompt_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser.add_mutually_exclusive_group(),
        {
            "--prompt TEXT": "the prompt (default: standard input)",
            "--prompt-file FILE": "read the prompt from FILE, without its last newline",
        },
    )
    add_options(
        parser.add_argument_group("chat"),
        {
            "--chat": "write the prompt as a user message in the model's chat template",
            "--system TEXT": "with --chat: the system message",
            "--messages FILE": "read the conversation from FILE: a JSON list of messages with "
            "role and content",
        },
    )


def read_question(arguments: argparse.Namespace) -> Any:
    """Return the prompt: a string, or the messages of a conversation."""
    if arguments.system is not None:
        if not arguments.chat:
            raise UsageError("--system requires --chat")
        check_utf8(arguments.system, "--system")
    if arguments.messages is not None:
        if arguments.chat or arguments.prompt is not None or arguments.prompt_file is not None:
            raise UsageError("--messages cannot be combined with --chat or a prompt")
        return read_messages(arguments.messages)
    missing = "no prompt: give --prompt or --prompt-file, or pipe the prompt in"
    prompt = read_given(arguments.prompt, "--prompt", arguments.prompt_file, missing)
    if not prompt:
        raise UsageError("the prompt is empty")
    if not arguments.chat:
        return prompt
    turns = {"system": arguments.system, "user": prompt}
    return [{"role": r, "content": c} for r, c in turns.items() if c is not None]


def read_given(text: str | None, option: str, file: str | None, missing: str) -> str:
    """Return the text of an option, or else of a file or of standard input. `missing` is the
    message if standard input is a terminal."""
    if text is not None:
        check_utf8(text, option)
        return text
    if file is not None and file != STANDARD_INPUT:
        read = read_text(file)
    elif sys.stdin is None or sys.stdin.isatty():
        raise UsageError(missing)
    else:
        read = read_standard_input()
    # Files and pipes usually end with a newline that is not meant as part of the text.
    return read.removesuffix("\n")


def add_label_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--label`` and ``--labels-file``; see :func:`read_labels`."""
    add_options(
        parser.add_mutually_exclusive_group(),
        {
            "--label TEXT ...": "a possible answer; repeat for each",
            "--labels-file FILE": "read the labels from FILE, one per line; - = standard input",
        },
    )


def read_labels(arguments: argparse.Namespace) -> list[str]:
    """Return the labels of ``--label``, or the lines of the file that are not empty."""
    path = arguments.labels_file
    if path is None:
        labels = {f"--label number {i}": text for i, text in enumerate(arguments.label or (), 1)}
        for place, label in labels.items():
            check_utf8(label, "--label")
            if not label:
                raise UsageError(f"{place} is empty: expected a label")
    else:
        lines = enumerate(_text_of_labels(arguments, path).split("\n"), 1)
        labels = {f"{path}: line {i}": line for i, line in lines if line.strip()}
        if not labels:
            raise UsageError(f"{path} is empty: expected one label per line")
    if not labels:
        raise UsageError("no labels: give --label more than once, or --labels-file")
    seen: dict[str, str] = {}
    for place, label in labels.items():
        if label in seen:
            raise UsageError(
                f"{place} repeats a label: {short_repr(label)} is also at {seen[label]}"
            )
        seen[label] = place
    return [*seen]


def _text_of_labels(arguments: argparse.Namespace, path: str) -> str:
    """Return the text of a file of labels; ``-`` = standard input, if it is not the prompt."""
    if path != STANDARD_INPUT:
        return read_text(path)
    prompts = [getattr(arguments, name, None) for name in ("prompt", "prompt_file", "messages")]
    if all(each in (None, STANDARD_INPUT) for each in prompts):
        raise UsageError(
            "standard input holds the labels: give the prompt with --prompt or --prompt-file"
        )
    if sys.stdin is None:
        raise UsageError("no labels: standard input is closed")
    return read_standard_input()


def print_warning(reason: str) -> None:
    print(printable(f"eliza-ffi: warning: {reason}"), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print a value as a line of JSON that any encoding of standard output can carry."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    # Other encodings would escape characters in Python's way, such as \U0001f600.
    print(json.dumps(value, ensure_ascii=encoding != "utf8"))


@contextmanager
def open_model(arguments: argparse.Namespace, n_slots: int | None = None) -> Iterator[Model]:
    """Open the model of the command line; draw a progress bar if standard error is a terminal."""
    bar = ProgressBar()
    try:
        with Model(
            arguments.model,
            progress=bar if sys.stderr.isatty() else None,
            **model_options(arguments, n_slots),
        ) as model:
            yield model
    finally:
        bar.erase()


def run_interruptibly(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. An interrupt cancels it and its forward pass, and is then raised."""

    async def cancellable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        # Some platforms and threads cannot install a signal handler. Python's default handler
        # remains active there. Before Python 3.11, it raises KeyboardInterrupt at any point in the
        # event loop.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal.SIGINT, task.cancel)  # type: ignore[union-attr]
        try:
            return await work
        finally:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGINT)

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def read_messages(path: str) -> Messages:
    """Read a conversation from a JSON file. Errors name the file."""
    try:
        return check_messages(json.loads(read_text(path)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from error
