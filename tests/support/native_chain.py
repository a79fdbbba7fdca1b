"""The native sampler chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.sampling import Sampling


@dataclass(frozen=True)
class Outcome:
    """The result of a chain: remaining ids, logits and probabilities, shape [k], and the token."""

    ids: NDArray[np.int32]
    logits: NDArray[np.float32]
    probs: NDArray[np.float32]
    token: int

    @property
    def left(self) -> dict[int, float]:
        """The logits of the tokens that can be drawn."""
        pairs = zip(self.ids.tolist(), self.logits.tolist(), strict=True)
        return {token: logit for token, logit in pairs if logit > -np.inf}


class NativeChain:
    """Runs the native library's sampler chain through its test hook."""

    def __init__(self, path: Path, model: Path) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(
            """
            int eliza_test_chain(const char * model_path, const char * settings,
                                 const int32_t * ids, const float * logits, size_t n,
                                 const int32_t * accepted, size_t n_accepted, int32_t * ids_out,
                                 float * logits_out, float * probs_out, int32_t * selected_out,
                                 char * error_out, size_t error_cap);
            """
        )
        self._lib: Any = self._ffi.dlopen(str(path))
        self._model = str(model).encode()

    def apply(
        self,
        params: Sampling,
        logits: Sequence[float],
        ids: Sequence[int],
        accepted: Sequence[int] = (),
    ) -> Outcome:
        n = len(logits)
        ids_out = np.zeros(n, dtype=np.int32)
        logits_out, probs_out = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
        selected = self._ffi.new("int32_t *")
        error = self._ffi.new("char[]", 1024)
        left = self._lib.eliza_test_chain(
            self._model,
            params.to_json().encode(),
            list(ids),
            list(logits),
            n,
            list(accepted),
            len(accepted),
            self._ffi.from_buffer("int32_t[]", ids_out),
            self._ffi.from_buffer("float[]", logits_out),
            self._ffi.from_buffer("float[]", probs_out),
            selected,
            error,
            1024,
        )
        if left < 0:
            raise InvalidArgumentError(self._ffi.string(error).decode())
        return Outcome(ids_out[:left], logits_out[:left], probs_out[:left], int(selected[0]))
