"""Ray actors of the tests. A worker process must be able to import them by module name."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from eliza_ffi.ray import DeciderActor


class KilledDecider(DeciderActor):
    """Kills its process at batch number `batch`, from 0, unless another actor has done so.

    The process that is killed writes its id to the file `marker`.
    """

    def __init__(self, *arguments: Any, marker: str, batch: int, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._marker = Path(marker)
        self._left = batch

    def __call__(self, batch: Any) -> Any:
        if self._left == 0 and not self._marker.exists():
            self._marker.write_text(str(os.getpid()), encoding="utf-8")
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return super().__call__(batch)
