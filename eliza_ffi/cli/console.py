"""What the commands share: arguments, prompts and choices, opening the model, interrupts."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from ..chat.template import Messages, check_messages
from ..errors import InvalidArgumentError
from ..model import Model
from .files import STANDARD_INPUT, check_utf8, read_standard_input, read_text
from .progress import ProgressBar

__all__ = [
    "UsageError",
    "add_chat_arguments",
    "add_model_arguments",
    "add_prompt_arguments",
    "model_options",
    "open_model",
    "read_choices",
    "read_messages",
    "read_prompt",
    "read_question",
    "run_interruptibly",
    "whole_number",
]


T = TypeVar("T")


class UsageError(Exception):
    """The command line asks for something that makes no sense; exit code 2."""


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model to open and how."""
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="PATH", help="a .gguf file or bundle (the embedded one)")
    group.add_argument("--library", metavar="PATH", help="libelizainference to use (found)")
    group.add_argument("--n-ctx", type=whole_number, metavar="N", help="tokens of KV cache")
    group.add_argument("--threads", type=whole_number, metavar="N", help="compute threads")
    group.add_argument(
        "--gpu-layers", type=int, metavar="N", help="layers to offload; -1 = all (-1)"
    )
    group.add_argument(
        "--device", metavar="NAMES", help="devices to use, as doctor names them; none = the CPU"
    )
    group.add_argument(
        "--rpc",
        metavar="HOST:PORT,...",
        help="rpc-server processes to put layers on; private networks only",
    )
    group.add_argument(
        "--batching",
        choices=("auto", "off"),
        help="off: run each request alone, in one slot, so that rounding does not depend on "
        "timing (auto)",
    )
    group.add_argument(
        "--seed", type=whole_number, metavar="N", help="seed of the sampling (random)"
    )


def model_options(arguments: argparse.Namespace, n_slots: int | None = None) -> dict[str, Any]:
    """Return the arguments of :class:`~eliza_ffi.Model` that were given, except the path.

    Parameters
    ----------
    arguments
    n_slots
        Generations at once; None = the model's default, or 1 if batching is off.
    """
    if n_slots is None and arguments.batching == "off":
        n_slots = 1  # the slot of a request changes how its sums are rounded
    options = {name: getattr(arguments, name) for name in ("device", "rpc", "batching")}
    given = {
        "library": arguments.library,
        "n_ctx": arguments.n_ctx or None,
        "n_slots": n_slots,
        "n_threads": arguments.threads or None,
        "gpu_layers": arguments.gpu_layers,
        "seed": arguments.seed,
        "options": {name: value for name, value in options.items() if value is not None} or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def add_prompt_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two ways to give a prompt beside standard input."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--prompt", metavar="TEXT", help="the prompt: standard input without it")
    group.add_argument(
        "--prompt-file",
        metavar="FILE",
        help="read the prompt from FILE, but for its last newline",
    )


def add_chat_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the ways to ask in the model's chat template, beside those of a prompt."""
    group = parser.add_argument_group("chat")
    group.add_argument(
        "--chat", action="store_true", help="use the chat template: the prompt is a user's message"
    )
    group.add_argument("--system", metavar="TEXT", help="with --chat, the system message before it")
    group.add_argument(
        "--messages", metavar="FILE", help="a conversation: JSON list of roles and contents"
    )


def read_question(arguments: argparse.Namespace) -> Any:
    """Return the prompt: a text, or the messages of a conversation."""
    if arguments.system is not None:
        if not arguments.chat:
            raise UsageError("--system goes with --chat")
        check_utf8(arguments.system, "--system")
    if arguments.messages is not None:
        if arguments.chat or arguments.prompt is not None or arguments.prompt_file is not None:
            raise UsageError("--messages holds all that is asked: give no prompt and no --chat")
        return read_messages(arguments.messages)
    prompt = read_prompt(arguments)
    if not arguments.chat:
        return prompt
    turns = {"system": arguments.system, "user": prompt}
    return [{"role": r, "content": c} for r, c in turns.items() if c is not None]


def read_prompt(arguments: argparse.Namespace) -> str:
    """Return the prompt from the option, the file, or standard input."""
    if arguments.prompt is not None:
        prompt = str(arguments.prompt)
        check_utf8(prompt, "--prompt")
    elif arguments.prompt_file not in (None, STANDARD_INPUT):
        prompt = read_text(arguments.prompt_file)
    elif sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no prompt: give --prompt, --prompt-file, or pipe it in")
    else:
        prompt = read_standard_input()
    if arguments.prompt is None:
        # Files and pipes end in a newline that nobody meant as part of the prompt.
        prompt = prompt.removesuffix("\n")
    if not prompt:
        raise UsageError("the prompt is empty")
    return prompt


def read_choices(arguments: argparse.Namespace) -> list[str]:
    """Return the choices from the options, or one per line of the file, without empty lines."""
    if arguments.choices_file is not None:
        lines = _choices_text(arguments).splitlines()
        choices = [line for line in lines if line.strip()]
    else:
        choices = list(arguments.choice or ())
        for choice in choices:
            check_utf8(choice, "--choice")
    if not choices:
        raise UsageError("no choices: give --choice more than once, or --choices-file")
    seen: set[str] = set()
    for choice in choices:
        if not choice:
            raise UsageError("a choice is empty")
        if choice in seen:
            raise UsageError(f"the choice {choice!r} is given twice")
        seen.add(choice)
    return choices


def _choices_text(arguments: argparse.Namespace) -> str:
    if arguments.choices_file != STANDARD_INPUT:
        return read_text(arguments.choices_file)
    told = [getattr(arguments, name, None) for name in ("prompt", "prompt_file", "messages")]
    if all(each in (None, STANDARD_INPUT) for each in told):
        raise UsageError("standard input has the choices: give the prompt by an option")
    if sys.stdin is None:
        raise UsageError("no choices: there is no standard input")
    return read_standard_input()


@contextmanager
def open_model(arguments: argparse.Namespace, n_slots: int | None = None) -> Iterator[Model]:
    """Open the model the arguments ask for, with a progress bar where one can be seen.

    Parameters
    ----------
    arguments
    n_slots
        As of :func:`model_options`.
    """
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
    """Run a coroutine; an interrupt cancels it and with it the forward pass that is running.

    Raises
    ------
    KeyboardInterrupt
        When it has been cancelled so.
    """

    async def cancellable() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        # Not everywhere are there signals, nor are they for every thread: then Python's own way
        # holds. Before 3.11 that raises KeyboardInterrupt wherever the event loop happens to be.
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
    """Return the conversation in a file.

    Raises
    ------
    InvalidArgumentError
        If it is not a list of messages.
    """
    try:
        return check_messages(json.loads(read_text(path)))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from error


def whole_number(text: str) -> int:
    """Return an option's whole number of 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)
