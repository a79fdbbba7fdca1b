"""The settings of the prompts, and the rules of ``auto``.

Format: a model file may name it (``eliza.prompt_format``). Otherwise a model gets chat turns if it
has a chat template and puts at least :data:`MIN_CHAT_MASS` of its probability on the options of a
few simple questions there, on average. All other models get plain text.

Order: a model file may name it (``eliza.prompt_order``). Otherwise a single prompt has the question
first. The input comes first if the beginnings of all prompts would take more than half of the KV
cache. Plain text has the questions first, because its answers are much better so. In a chat, the
input comes first for a single input; for several, the order that reads fewer tokens is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from .._lazy import lazy_property, once_for_each
from ..chat.prompt import Prompt
from ..chat.template import Messages
from ..checks import check_callback, check_one_of, check_whole
from ..errors import InvalidArgumentError
from .layout import PROMPT_FORMATS, PROMPT_ORDERS, PromptFormat, PromptOrder, Shot
from .prompts import ANSWER_STYLES, AnswerStyle, AskedQuestion, RenderedQuestion

if TYPE_CHECKING:
    from ..session.session import Session

MAX_ORDERS = 64

DEFAULT_PROMPT = "default"
"""The name of the built-in prompts."""

MIN_CHAT_MASS = 0.25
"""The least mean allowed probability of the probes for which ``auto`` uses the chat format."""

WritePrompt: TypeAlias = "Callable[[str, RenderedQuestion], str | Prompt | Messages]"
"""A function that writes a custom prompt from the text of the input and a question. It returns
trusted text, a prompt or a conversation. The model's answer, the label of an option, follows
directly."""

OptionPrior = Literal["options", "none"]
"""Whether probabilities are divided by their mean over inputs that should favour no option."""


class PromptArguments(TypedDict, total=False):
    """The keyword arguments for prompts; see :meth:`Model.decide <eliza_ffi.Model.decide>`. None
    and ``"auto"`` let the model or a calibration decide."""

    answer_style: AnswerStyle | None
    orders: int | None
    prompt: WritePrompt | None
    prompt_order: Literal["auto", "question-first", "input-first"] | None
    prompt_format: Literal["auto", "chat", "plain"] | None
    prior: Literal["auto", "options", "none", "inputs"] | None


@dataclass(frozen=True)
class PromptSettings:
    """Hold the settings of the prompts, as :meth:`Model.decide <eliza_ffi.Model.decide>` describes.

    `orders` is from 1 to 64; a question with n options has at most 2 n orders, and a score has 2. A
    custom `prompt` leaves the following settings without effect.
    """

    answer_style: AnswerStyle = "text"
    orders: int = 1
    prompt: WritePrompt | None = None
    order: PromptOrder = "input-first"
    format: PromptFormat = "chat"
    examples: tuple[tuple[AskedQuestion, tuple[Shot, ...]], ...] = ()
    prior: OptionPrior = "none"

    def __post_init__(self) -> None:
        check_one_of("answer_style", self.answer_style, ANSWER_STYLES)
        object.__setattr__(self, "orders", check_whole("orders", self.orders, 1, MAX_ORDERS))
        check_callback("prompt", self.prompt)
        check_one_of("prompt_order", self.order, PROMPT_ORDERS)
        check_one_of("prompt_format", self.format, PROMPT_FORMATS)
        check_one_of("prior", self.prior, ("options", "none"))
        if self.examples and self.prompt is not None:
            raise InvalidArgumentError(
                "examples and prompt cannot be combined: a custom prompt contains its own examples"
            )

    def described(self) -> dict[str, Any]:
        """Return the fields of calibrations and reports, with the name of the prompt function."""
        return {
            "answer_style": self.answer_style,
            "orders": self.orders,
            "prompt": _name_of(self.prompt),
            "prompt_order": self.order,
            "prompt_format": self.format,
            "prior": self.prior,
        }

    def shots_of(self, question: AskedQuestion) -> tuple[Shot, ...]:
        return self._shots.get(question, ())

    @lazy_property
    def _shots(self) -> dict[AskedQuestion, tuple[Shot, ...]]:
        return dict(self.examples)


def _name_of(prompt: Any) -> str:
    if prompt is None:
        return DEFAULT_PROMPT
    return str(getattr(prompt, "__qualname__", type(prompt).__qualname__))


@once_for_each
def declared(session: Session) -> tuple[PromptFormat | None, PromptOrder | None]:
    """Return the format and the order that the model file names; None for each that it does not."""
    facts = session.describe().get("model", {}) if session.binding.supports("describe") else {}
    named: list[Any] = []
    for name, allowed in (("prompt_format", PROMPT_FORMATS), ("prompt_order", PROMPT_ORDERS)):
        value = facts.get(name) or None
        named.append(value and check_one_of(f"the metadata eliza.{name}", value, allowed))
    return named[0], named[1]
