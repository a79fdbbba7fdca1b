"""Iterators over generated text, with a result at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from ..errors import InvalidArgumentError
from .results import GenerationResult


class _WithResult:
    _result: GenerationResult | None = None

    @property
    def result(self) -> GenerationResult:
        """The complete text with its finish reason, tokens and statistics.

        Raises
        ------
        InvalidArgumentError
            If the stream has not been read to its end.
        """
        if self._result is None:
            raise InvalidArgumentError("the stream has no result yet: read it to its end first")
        return self._result


class TextStream(_WithResult):
    """An iterator over the pieces of generated text.

    To end the generation early, close the stream or use it in a ``with`` statement. A stream that
    is neither read to its end nor closed keeps its slot.

    >>> with model.stream("Once", 3) as stream:
    ...     text = "".join(stream)
    >>> text == stream.result.text
    True
    >>> stream.close()
    """

    def __init__(self, steps: Generator[str | GenerationResult, None, None]) -> None:
        self._steps = steps

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> str:
        step = next(self._steps)
        if isinstance(step, GenerationResult):
            self._result = step
            self.close()
            raise StopIteration
        return step

    def close(self) -> None:
        """End the generation. Closing twice is harmless."""
        self._steps.close()

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncTextStream(_WithResult):
    """An asynchronous iterator over the pieces of generated text; see :class:`TextStream`.

    >>> async def write() -> None:
    ...     async with AsyncModel.of(model).stream("Once", 3) as stream:
    ...         print("".join([piece async for piece in stream]) == stream.result.text)
    ...     await stream.aclose()
    >>> asyncio.run(write())
    True
    """

    def __init__(self, steps: AsyncGenerator[str | GenerationResult, None]) -> None:
        self._steps = steps

    def __aiter__(self) -> AsyncTextStream:
        return self

    async def __anext__(self) -> str:
        step = await anext(self._steps)
        if isinstance(step, GenerationResult):
            self._result = step
            await self.aclose()
            raise StopAsyncIteration
        return step

    async def aclose(self) -> None:
        """End the generation. Closing twice is harmless."""
        await self._steps.aclose()

    async def __aenter__(self) -> AsyncTextStream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()
