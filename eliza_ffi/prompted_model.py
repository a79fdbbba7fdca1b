"""What to hand the runner for what a model is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .chat.template import Messages
from .choices.choice_set import Choice, ChoiceSet
from .errors import InvalidArgumentError, NotSupportedError
from .library.abi import PREFIX
from .library.binding import token_array
from .library.protocol import STOP_AT_LEAF, TRIE_ARGMAX, TRIE_BEST_LEAF, TRIE_SAMPLE, Tokens
from .loaded_model import LoadedModel
from .runner.filling import Fillable, FillArgs
from .runner.streaming import FfiStreamingGenerateArgs, FfiStreamingResult
from .skeleton.response import Skeleton, SpanSamplerPlan

__all__ = ["PromptedModel"]

MODES = {"argmax": TRIE_ARGMAX, "sample": TRIE_SAMPLE, "best": TRIE_BEST_LEAF}


class PromptedModel(LoadedModel):
    """The part of :class:`~eliza_ffi.model.Model` for those who drive the runner themselves."""

    def generate_args(
        self,
        prompt: str | Tokens | None = None,
        *,
        messages: Messages | None = None,
        draft_max: int = 0,
        drafter: str | os.PathLike[str] | None = None,
        **more: Any,
    ) -> FfiStreamingGenerateArgs:
        """Return what to hand the runner for a prompt: its tokens and this model's settings.

        Parameters
        ----------
        prompt, messages
            As :meth:`~eliza_ffi.model.Model.generate`.
        draft_max
            Tokens to guess at a time, at most 256, by speculation; 0 = none. The tokens that come
            are those that come without. Choices and structured answers are never guessed.
        drafter
            The file of a small model of the same vocabulary, or of an MTP head for the model, that
            guesses; None = the model's own head, or without one, what followed the same few tokens
            before.
        **more
            Further fields of :class:`~eliza_ffi.runner.FfiStreamingGenerateArgs`.

        Raises
        ------
        InvalidArgumentError
            If there is no prompt, or a `drafter` and no `draft_max`.
        NotSupportedError
            If the library does not speculate.
        """
        more.setdefault("n_gpu_layers", self._n_gpu_layers)
        if draft_max > 0:
            self._check_speculates()
            more.setdefault("draft_min", 1)
        elif drafter is not None:
            raise InvalidArgumentError(
                "a drafter guesses draft_max tokens at a time: give that, too"
            )
        if drafter is not None:
            more["mtp_drafter_path"] = os.fspath(drafter)
        tokens = self._prompt_tokens(prompt, messages)
        return FfiStreamingGenerateArgs(prompt_tokens=tokens, draft_max=draft_max, **more)

    def choice_args(
        self,
        prompt: str | Tokens | None,
        choices: ChoiceSet[Any],
        *,
        messages: Messages | None = None,
        mode: str = "argmax",
        temperature: float = 1.0,
        tokenization: str = "own",
        **more: Any,
    ) -> FfiStreamingGenerateArgs:
        """Return what to hand the runner for a choice; parameters as :meth:`choose`."""
        if mode not in MODES:
            raise InvalidArgumentError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
        if not self.binding.trie_modes() & STOP_AT_LEAF:
            raise NotSupportedError(f"{self.binding.library.path} has no token-trie sampler")
        args = self.generate_args(prompt, messages=messages, temperature=temperature, **more)
        args = replace(args, token_tree_mode=MODES[mode] | STOP_AT_LEAF)
        if tokenization == "own":
            return replace(
                args, token_tree_payload=self._payloads.of(choices, self.tokenize, self.detokenize)
            )
        if tokenization != "any":
            raise InvalidArgumentError(f"tokenization must be own or any, not {tokenization!r}")
        self._check_text_choices(choices, mode, args.score_leaves)
        return replace(args, text_choices=choices.texts)

    def fill_args(
        self,
        prompt: str | Tokens | None,
        skeleton: Fillable | Mapping[str, Any] | None,
        *,
        messages: Messages | None = None,
        sampler_plan: SpanSamplerPlan | Mapping[str, Any] | None = None,
        max_tokens: int = 256,
        logprobs: bool = False,
        heal_prompt: bool = False,
        **more: Any,
    ) -> FillArgs:
        """Return what to hand the runner for a skeleton.

        Parameters
        ----------
        prompt, skeleton, messages
            As :meth:`fill`.
        sampler_plan
            How single spans are sampled, or its JSON form.
        max_tokens
            For each free value, 0 = no limit but the context's. One that reaches it is brought to
            its end in the shortest way.
        logprobs
            Find the probability of free values too, which takes longer; that of choices is always
            known.
        heal_prompt
            The prompt's last token may be spelled anew, together with the answer's beginning.
        **more
            Further fields of :class:`~eliza_ffi.runner.FfiStreamingGenerateArgs`; `temperature`,
            `top_k` and `top_p` are those of the free spans.
        """
        if skeleton is None:
            raise InvalidArgumentError("there is no skeleton to fill")
        if isinstance(skeleton, Mapping):
            skeleton = Skeleton.from_dict(skeleton)
        if not hasattr(skeleton, "script"):
            raise InvalidArgumentError(f"this is no skeleton: {skeleton!r:.80}")
        if sampler_plan is None:
            sampler_plan = SpanSamplerPlan()
        elif not isinstance(sampler_plan, SpanSamplerPlan):
            sampler_plan = SpanSamplerPlan.from_dict(sampler_plan)
        return FillArgs(
            skeleton=skeleton,
            generation=self.generate_args(prompt, messages=messages, **more),
            sampler_plan=sampler_plan,
            max_tokens=max_tokens,
            logprobs=logprobs,
            heal_prompt=heal_prompt,
        )

    def choice_from(
        self,
        choices: ChoiceSet[Any],
        args: FfiStreamingGenerateArgs,
        result: FfiStreamingResult,
        elapsed: float,
    ) -> Choice[Any]:
        """Return the choice that a run of :meth:`choice_args` came to; `elapsed` in seconds."""
        if args.token_tree_payload is None and args.text_choices is None:
            raise InvalidArgumentError("the generation was not one of choices")
        return choices.choice(result, args.token_tree_payload, elapsed)

    def _check_speculates(self) -> None:
        library = self.binding.library
        if not library.probe(f"{PREFIX}llm_mtp_supported"):
            raise NotSupportedError(
                f"{library.path} has no speculative decoding: leave draft_max at 0"
            )

    def _check_text_choices(self, choices: ChoiceSet[Any], mode: str, scored: bool) -> None:
        if not self.binding.supports("set_text_choices"):
            raise NotSupportedError(f"{self.binding.library.path} has no choices by text")
        if mode == "best" or scored:
            asked = 'mode="best"' if mode == "best" else "probabilities"
            raise InvalidArgumentError(
                f'{asked} needs one way to spell each choice: use tokenization="own"'
            )
        for i, text in enumerate(choices.texts):
            if "\0" in text:
                raise InvalidArgumentError(
                    f'choices[{i}] has a NUL character, which tokenization="any" cannot spell'
                )

    def _prompt_tokens(self, prompt: str | Tokens | None, messages: Messages | None) -> Tokens:
        if messages is not None and prompt is None:
            prompt = self.chat_tokens(messages)
        elif prompt is None or messages is not None:
            given = "neither" if messages is None else "both"
            raise InvalidArgumentError(f"give either a prompt or messages, not {given}")
        if isinstance(prompt, str):
            prompt = self.tokenize(prompt, add_special=True, parse_special=True)
        if len(prompt) == 0:
            raise InvalidArgumentError("the prompt is empty: there is nothing to go on from")
        return token_array(prompt)
