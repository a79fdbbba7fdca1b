"""What actors of the tests run; here, since a worker's process has to import it by its name."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from eliza_ffi.ray import DeciderActor


class KilledDecider(DeciderActor):
    """Ends its process over its nth batch, from 0, if no other has; says which process answered."""

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
