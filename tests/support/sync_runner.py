"""Run elizaOS's requests without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from eliza_ffi.elizaos import FfiStreamingGenerateArgs, FfiStreamingResult, FfiStreamingRunner
from eliza_ffi.library.protocol import StreamStep


class SyncRunner:
    """Calls :class:`FfiStreamingRunner`."""

    def __init__(self, binding: Any, ctx: Any) -> None:
        self._runner = FfiStreamingRunner(binding, ctx)

    def generate_stream(self, args: FfiStreamingGenerateArgs) -> Iterator[StreamStep]:
        steps = self._runner.generation(args).steps()
        return (step for step in steps if isinstance(step, StreamStep))

    def generate_with_usage(self, args: FfiStreamingGenerateArgs) -> FfiStreamingResult:
        return asyncio.run(self._runner.generate_with_usage(args))
