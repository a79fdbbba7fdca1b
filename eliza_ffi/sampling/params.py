"""The sampling settings, their checks, the order of the samplers, and the presets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..checks import (
    check_known,
    check_one_of,
    check_several,
    check_text,
    did_you_mean,
    plain_number,
    wrong,
)
from ..errors import InvalidArgumentError

SAMPLER_NAMES = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
    "infill",
    "adaptive_p",
)
"""The names of all samplers."""

DEFAULT_ORDER = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
"""llama.cpp's default order."""

BOOK_ORDER = "penalties;temperature;top_k;min_p;top_p"
"""The order of the samplers on the CPU in akunu, an inference engine, under llama.cpp's names.

Source: the book *Inside Akunu*, chapter "The Sampling Pipeline",
https://akunu.prabod.rathnayaka.me.
"""

MAX_BREAKER_BYTES = 40
"""The maximum length of a DRY sequence breaker; llama.cpp ignores further bytes."""

MIN_TEMPERATURE = 1e-6
"""Temperatures below this value mean greedy sampling, because dividing logits could overflow."""

# The samplers that can be combined with Mirostat.
BESIDE_MIROSTAT = ("penalties", "dry", "temperature")

LARGEST = 1e6
MIN_PENALTY = 1e-6
MAX_INT = 2**31 - 1
MAX_LAST_N = 2**24
MAX_SEED = 2**32 - 2  # llama.cpp takes 2**32 - 1 as a request for a random seed

Allowed = tuple[Callable[[Any], bool], str]


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -math.inf < value < math.inf


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(low: float, high: float, allowed: str, above: bool = False) -> Allowed:
    def is_allowed(value: Any) -> bool:
        return _is_number(value) and low <= value <= high and not (above and value == low)

    return is_allowed, allowed


def _whole(low: int, high: int, allowed: str) -> Allowed:
    return lambda value: _is_whole(value) and low <= value <= high, allowed


def _text(least: int, allowed: str) -> Allowed:
    def is_allowed(value: Any) -> bool:
        return isinstance(value, str) and len(value) >= least and _is_plain(value)

    return is_allowed, allowed


def _is_plain(text: str) -> bool:
    """Return whether a string can be passed to C: it can be encoded and has no NUL character."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


_PENALTY = _number(-LARGEST, LARGEST, "-1000000 to 1000000 (0 = off)")
_LAST_N = _whole(0, MAX_LAST_N, "a whole number from 0 (off) to 16777216 tokens")

_ALLOWED: dict[str, Allowed] = {
    "samplers": (lambda value: isinstance(value, str), "names separated by semicolons"),
    "temperature": _number(0, LARGEST, "0 (greedy) to 1000000"),
    "dynatemp_range": _number(0, LARGEST, "0 (off) to 1000000"),
    "dynatemp_exponent": _number(0, LARGEST, "0 to 1000000"),
    "top_k": _whole(0, MAX_INT, "a whole number from 0 (off) to 2147483647"),
    "top_p": _number(0, 1, "above 0 and at most 1 (off)", above=True),
    "min_p": _number(0, 1, "0 (off) to 1"),
    "typical_p": _number(0, 1, "above 0 and at most 1 (off)", above=True),
    "top_n_sigma": _number(0, LARGEST, "0 (off) to 1000000"),
    "xtc_probability": _number(0, 1, "0 (off) to 1"),
    "xtc_threshold": _number(0, 1, "0 to 1 (above 0.5 = off)"),
    "repeat_last_n": _LAST_N,
    "repeat_penalty": _number(MIN_PENALTY, LARGEST, "0.000001 to 1000000 (1 = off)"),
    "frequency_penalty": _PENALTY,
    "presence_penalty": _PENALTY,
    "dry_multiplier": _number(0, LARGEST, "0 (off) to 1000000"),
    "dry_base": _number(1, LARGEST, "1 to 1000000"),
    "dry_allowed_length": _whole(0, MAX_INT, "a whole number from 0 to 2147483647 tokens"),
    "dry_penalty_last_n": _LAST_N,
    "mirostat": _whole(0, 2, "0 (off), 1 or 2"),
    "mirostat_tau": _number(0, LARGEST, "0 to 1000000"),
    "mirostat_eta": _number(0, 1, "0 to 1"),
    "adaptive_target": _number(-1, 1, "-1 to 1 (negative = off)"),
    "adaptive_decay": _number(0, 0.99, "0 to 0.99"),
    "draw": (lambda value: isinstance(value, str) and value in ("cdf", "gumbel"), "cdf or gumbel"),
    "seed": (
        lambda value: value is None or (_is_whole(value) and 0 <= value <= MAX_SEED),
        "None or a whole number from 0 to 4294967294",
    ),
    "reasoning_budget": _whole(-1, MAX_INT, "-1 (no limit) to 2147483647 tokens"),
    "reasoning_start": _text(1, "a string of at least one character, in UTF-8 without NUL"),
    "reasoning_end": _text(1, "a string of at least one character, in UTF-8 without NUL"),
    "reasoning_message": _text(0, "a string in UTF-8 without NUL"),
    "disable_thinking": (lambda value: isinstance(value, bool), "True or False"),
}


def _breakers(texts: Any) -> tuple[str, ...]:
    allowed = f"strings of 1 to {MAX_BREAKER_BYTES} bytes in UTF-8 without NUL"
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise wrong("dry_sequence_breakers", allowed, texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str) or not _is_breaker(text):
            raise InvalidArgumentError(
                f"dry_sequence_breakers must be {allowed}, got {text!r:.80} at [{i}]"
            )
    return tuple(texts)


def _is_breaker(text: str) -> bool:
    return _is_plain(text) and 1 <= len(text.encode()) <= MAX_BREAKER_BYTES


def _biases(pairs: Any) -> tuple[tuple[int, float], ...]:
    check_several("logit_bias", pairs, "(token, bias) pairs")
    biases: dict[int, float] = {}
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Sequence) or len(pair) != 2 or not _is_bias(*pair):
            raise InvalidArgumentError(
                "logit_bias must be (token, bias) pairs, the token 0 to 2147483647 and the bias "
                f"-inf or -1000000 to 1000000, got {pair!r:.80} at [{i}]"
            )
        if pair[0] in biases:
            raise InvalidArgumentError(f"logit_bias: token {pair[0]} occurs twice")
        biases[pair[0]] = pair[1]
    return tuple(biases.items())


def _is_bias(token: Any, bias: Any) -> bool:
    is_number = _is_number(bias) and abs(bias) <= LARGEST
    return _is_whole(token) and 0 <= token <= MAX_INT and (is_number or bias == -math.inf)


def parse_order(text: str) -> tuple[str, ...]:
    """Split an order string into sampler names; an empty string gives no names.

    >>> parse_order("top_k;temperature")
    ('top_k', 'temperature')

    Raises
    ------
    InvalidArgumentError
        If a name is unknown or occurs twice, or if a sampler follows ``adaptive_p``, which draws
        the token and must be the last one.
    """
    check_text("samplers", text)
    names = tuple(text.split(";")) if text else ()
    for i, name in enumerate(names):
        if name not in SAMPLER_NAMES:
            hint = did_you_mean(name, SAMPLER_NAMES)
            raise InvalidArgumentError(
                f"samplers: expected names from {', '.join(SAMPLER_NAMES)}, got {name!r}"
                + (f"; {hint}" if hint else "")
            )
        if name in names[:i]:
            raise InvalidArgumentError(f"samplers: {name!r} occurs twice in {text!r}")
        if "adaptive_p" in names[:i]:
            raise InvalidArgumentError(
                f"samplers: {name!r} cannot follow adaptive_p, which draws the token"
            )
    return names


@dataclass(frozen=True)
class Sampling:
    """The settings for sampling tokens. By default, sampling is greedy and every sampler is off.

    >>> model.generate("Once", 5, sampling=Sampling(temperature=0.8, seed=1)).finish_reason
    'length'
    >>> code = Sampling.preset("code", seed=3)
    >>> code.is_greedy, code.active()["top_k"], code.to_options()["temperature"]
    (False, 'top_k=40', '0.2')
    >>> '"seed": 3' in code.to_json()
    True

    Attributes
    ----------
    samplers : str
        The order of the samplers: names from :data:`SAMPLER_NAMES`,
        separated by semicolons. A sampler that is off has no effect. A setting that is not off
        needs its sampler in this list. Default: llama.cpp's order.
    temperature : float
        The divisor of the logits; 1 = off. 0 = greedy: the most likely token after logit bias,
        penalties and DRY, regardless of all other settings.
    dynatemp_range, dynatemp_exponent : float
        Dynamic temperature: the temperature depends on the entropy and varies by at most
        `dynatemp_range` in both directions; 0 = off. `dynatemp_exponent` is the exponent of the
        normalized entropy.
    top_k : int
        Keep this number of the most likely tokens; 0 = off.
    top_p, typical_p : float
        The cumulative probability to keep, for nucleus and for locally typical sampling; above 0;
        1 = off.
    min_p : float
        The minimum probability of a token, relative to the most likely token; 0 = off.
    top_n_sigma : float
        Keep tokens whose logits are within this number of standard deviations of the maximum; 0 =
        off.
    xtc_probability, xtc_threshold : float
        With probability `xtc_probability`, remove all tokens that are at least as likely as
        `xtc_threshold`, except the least likely of them. The sampler is off if the probability is
        0 or the threshold is above 0.5.
    repeat_last_n : int
        The number of previous tokens that the penalties consider; 0 = off.
    repeat_penalty : float
        Above 0; 1 = off.
    frequency_penalty, presence_penalty : float
        0 = off; negative values favour repetition.
    dry_multiplier : float
        The factor of the DRY penalty; 0 = off.
    dry_base : float
        The base of the DRY penalty, which grows exponentially with the length of a repetition; 1 or
        more.
    dry_allowed_length : int
        Repetitions of fewer tokens are not penalized.
    dry_penalty_last_n : int
        The number of previous tokens that DRY considers; 0 = off.
    dry_sequence_breakers : tuple of str
        Strings at which DRY stops looking back for repetitions, of at most 40 bytes in UTF-8 each.
    mirostat : int
        1 or 2 = use this version of Mirostat in place of all truncation samplers; 0 = off.
    mirostat_tau, mirostat_eta : float
        Mirostat's target surprise in bits, and its learning rate.
    adaptive_target : float
        The probability that the drawn tokens should have on average, for the sampler
        ``adaptive_p``; negative = off.
    adaptive_decay : float
        The decay of ``adaptive_p``'s average of past probabilities, 0 to 0.99.
    logit_bias : tuple of (int, float)
        Tokens and the values added to their logits; each token at most once. ``-inf`` bans a token.
    draw : {"cdf", "gumbel"}
        How a token is drawn: ``"cdf"`` inverts the cumulative distribution function with a random
        number generator; ``"gumbel"`` is Gumbel-max with a hash of seed, position and token.
    seed : int or None
        0 to 4294967294. None = the stream's own seed, which is random unless it has been set.
    reasoning_budget : int
        The maximum number of tokens inside a reasoning block, which may begin in the prompt. When
        the budget is used up, `reasoning_message` and `reasoning_end` are written in place of the
        model's tokens. 0 ends a block immediately; -1 = no limit. While the model chooses a label,
        the budget does not interrupt the label, but the label's tokens count.
    reasoning_start, reasoning_end : str
        The strings that open and close a reasoning block; they may spell special tokens.
    reasoning_message : str
        A string written before `reasoning_end` when the budget is used up.
    disable_thinking : bool
        Whether to never sample ``<think>``.

    Raises
    ------
    InvalidArgumentError
        If a setting is out of range or conflicts with another one; the message names the allowed
        values.
    """

    samplers: str = DEFAULT_ORDER
    temperature: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 1024
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    logit_bias: tuple[tuple[int, float], ...] = ()
    draw: str = "cdf"
    seed: int | None = None
    reasoning_budget: int = -1
    reasoning_start: str = "<think>"
    reasoning_end: str = "</think>"
    reasoning_message: str = ""
    disable_thinking: bool = False

    def __post_init__(self) -> None:
        for name, (is_allowed, allowed) in _ALLOWED.items():
            value = getattr(self, name)
            if value is getattr(Sampling, name):
                continue
            plain = plain_number(value)
            if not is_allowed(plain):
                raise wrong(name, allowed, value)
            if plain is not value:
                object.__setattr__(self, name, plain)
        for name, read in (("dry_sequence_breakers", _breakers), ("logit_bias", _biases)):
            value = getattr(self, name)
            if value is not getattr(Sampling, name):
                object.__setattr__(self, name, read(value))
        self._check_together()

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Sampling:
        """Return the settings of a preset, with changes.

        Parameters
        ----------
        name
            A key of :data:`PRESETS`.
        **changes
            The settings to change, by name.
        """
        check_one_of("preset", name, PRESETS)
        check_known("a Sampling", changes, [field.name for field in fields(cls)])
        return replace(PRESETS[name], **changes)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < MIN_TEMPERATURE

    def to_options(self) -> dict[str, str]:
        """Return the settings as options of the library, without `seed` if it is None."""
        options = {**self._wire(), "disable_thinking": int(self.disable_thinking)}
        return {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in options.items()
        }

    def to_json(self) -> str:
        """Return the settings as one JSON object, without `seed` if it is None.

        `disable_thinking` is left out: it is a field of the stream's configuration.
        """
        return json.dumps(self._wire(), ensure_ascii=False)

    def _wire(self) -> dict[str, Any]:
        wire = {field.name: getattr(self, field.name) for field in fields(self)}
        del wire["disable_thinking"]
        wire["logit_bias"] = [
            [token, "-inf" if bias == -math.inf else bias] for token, bias in self.logit_bias
        ]
        if self.seed is None:
            del wire["seed"]
        return wire

    def _check_together(self) -> None:
        order = parse_order(self.samplers)
        mirostat = f"mirostat={self.mirostat}" if self.mirostat else None
        for sampler, setting in self.active().items():
            if mirostat and sampler not in BESIDE_MIROSTAT:
                raise InvalidArgumentError(
                    f"{mirostat} replaces all truncation samplers: "
                    f"it cannot be combined with {setting}"
                )
            if sampler not in order:
                raise InvalidArgumentError(
                    f"{setting} needs the sampler {sampler!r}, got samplers={self.samplers!r}"
                )
        if mirostat and ("infill" in order or self.dynatemp_range > 0):
            raise InvalidArgumentError(
                f"{mirostat} cannot be combined with infill or dynatemp_range"
            )
        drawing = mirostat or self.active().get("adaptive_p")
        if drawing and self.draw == "gumbel":
            raise InvalidArgumentError(
                f"{drawing} draws the token itself: it cannot be combined with draw='gumbel'"
            )

    def active(self) -> dict[str, str]:
        """Return the samplers that are on, each with a setting that turns it on."""
        is_on = {
            "penalties": {
                "repeat_penalty": self.repeat_penalty != 1,
                "frequency_penalty": self.frequency_penalty != 0,
                "presence_penalty": self.presence_penalty != 0,
            },
            "dry": {"dry_multiplier": self.dry_multiplier != 0},
            "top_n_sigma": {"top_n_sigma": self.top_n_sigma > 0},
            "top_k": {"top_k": self.top_k > 0},
            "typ_p": {"typical_p": self.typical_p < 1},
            "top_p": {"top_p": self.top_p < 1},
            "min_p": {"min_p": self.min_p > 0},
            "xtc": {"xtc_probability": self.xtc_probability > 0 and self.xtc_threshold <= 0.5},
            "temperature": {
                "temperature": self.temperature != 1 and not self.is_greedy,
                "dynatemp_range": self.dynatemp_range > 0 and not self.is_greedy,
            },
            "adaptive_p": {"adaptive_target": self.adaptive_target >= 0},
        }
        return {
            sampler: f"{setting}={getattr(self, setting)!r}"
            for sampler, settings in is_on.items()
            for setting, on in reversed(settings.items())
            if on
        }


PRESETS = {
    "greedy": Sampling(),
    "balanced": Sampling(temperature=0.7, top_k=40, top_p=0.95, min_p=0.05),
    "creative": Sampling(temperature=1.0, top_p=0.9),
    "very-creative": Sampling(temperature=1.2, top_p=0.95),
    "code": Sampling(temperature=0.2, top_k=40, top_p=0.95, min_p=0.1),
}
"""The presets that the book *Inside Akunu* recommends, by name; for the book, see
:data:`BOOK_ORDER`."""
