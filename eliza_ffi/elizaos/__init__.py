"""The interfaces of elizaOS, implemented with this package: its runner and its JSON formats."""

from __future__ import annotations

from ..choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from ..structured.sampler_plan import SpanOverride, SpanSamplerPlan
from ..structured.skeleton import Skeleton
from .actions import Action, Parameter
from .aosp import AospStreamingLlmBinding
from .arguments import FfiStreamingGenerateArgs, FfiStreamingResult, Usage, generate_args
from .planning import ActionSkeleton, ParametersSkeleton, plan
from .rtkt import encode_descriptor, encode_rtkt
from .runner import FfiStreamingRunner, runner_of

__all__ = [
    "Action",
    "ActionSkeleton",
    "AospStreamingLlmBinding",
    "FfiStreamingGenerateArgs",
    "FfiStreamingResult",
    "FfiStreamingRunner",
    "Parameter",
    "ParametersSkeleton",
    "Skeleton",
    "SpanOverride",
    "SpanSamplerPlan",
    "TokenTreeDescriptor",
    "TokenTreeLeaf",
    "TokenTreePayload",
    "Usage",
    "encode_descriptor",
    "encode_rtkt",
    "generate_args",
    "plan",
    "runner_of",
]
