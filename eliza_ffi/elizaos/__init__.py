"""elizaOS's own interfaces over this package: its streaming runner and its JSON forms."""

from __future__ import annotations

from ..choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from ..library.elder.aosp import AospStreamingLlmBinding
from ..skeleton.actions import Action, Parameter
from ..skeleton.planning import ActionSkeleton, ParametersSkeleton
from ..skeleton.response import Skeleton
from ..skeleton.sampler_plan import SpanOverride, SpanSamplerPlan
from .adapter import choice_args, choice_from, fill_args, generate_args, plan, runner_of
from .arguments import FfiStreamingGenerateArgs, FfiStreamingResult, FillArgs, Usage
from .runner import FfiStreamingRunner, SyncStreamingRunner

__all__ = [
    "Action",
    "ActionSkeleton",
    "AospStreamingLlmBinding",
    "FfiStreamingGenerateArgs",
    "FfiStreamingResult",
    "FfiStreamingRunner",
    "FillArgs",
    "Parameter",
    "ParametersSkeleton",
    "Skeleton",
    "SpanOverride",
    "SpanSamplerPlan",
    "SyncStreamingRunner",
    "TokenTreeDescriptor",
    "TokenTreeLeaf",
    "TokenTreePayload",
    "Usage",
    "choice_args",
    "choice_from",
    "fill_args",
    "generate_args",
    "plan",
    "runner_of",
]
