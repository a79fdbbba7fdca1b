"""Iterators over generated text, with a result at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any, Protocol

from ..errors import InvalidArgumentError
from .results import GenerationResult


class _Stream(Protocol):
    _result: GenerationResult | None


def _result_of(stream: _Stream) -> GenerationResult:
    if stream._result is None:
        raise InvalidArgumentError("the stream has no result yet: read it to its end first")
    return stream._result


class TextStream:
    """An iterator over the pieces of generated text.

    To end the generation early, close the stream or use it in a ``with`` statement. A stream that
    is neither read to its end nor closed keeps its slot.
    """

    def __init__(self, steps: Generator[str | GenerationResult, None, None]) -> None:
        self._steps = steps
        self._result: GenerationResult | None = None

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> str:
        step = next(self._steps)
        if isinstance(step, GenerationResult):
            self._result = step
            self.close()
            raise StopIteration
        return step

    @property
    def result(self) -> GenerationResult:
        """The complete text with its finish reason, tokens and statistics.

        Raises
        ------
        InvalidArgumentError
            If the stream has not been read to its end.
        """
        return _result_of(self)

    def close(self) -> None:
        """End the generation. Closing twice is harmless."""
        self._steps.close()

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTextStream:
    """An asynchronous iterator over the pieces of generated text; see :class:`TextStream`."""

    def __init__(self, steps: AsyncGenerator[str | GenerationResult, None]) -> None:
        self._steps = steps
        self._result: GenerationResult | None = None

    def __aiter__(self) -> AsyncTextStream:
        return self

    async def __anext__(self) -> str:
        step = await anext(self._steps)
        if isinstance(step, GenerationResult):
            self._result = step
            await self.aclose()
            raise StopAsyncIteration
        return step

    @property
    def result(self) -> GenerationResult:
        """The same as :attr:`TextStream.result`."""
        return _result_of(self)

    async def aclose(self) -> None:
        """End the generation. Closing twice is harmless."""
        await self._steps.aclose()

    async def __aenter__(self) -> AsyncTextStream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()
