"""The surroundings of an operation in a check: a model, which opens on first use, and a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamConfig
from eliza_ffi.model import Model

PROMPT = "message: could you look at this?\naction: "
OTHER_PROMPT = "message: stop it\naction: "
CHAT = "<|im_start|>user\nwhat is your name?<|im_end|>\n<|im_start|>assistant\n"
ACTIONS = ("RESPOND", "IGNORE", "STOP")
N_SLOTS = 4
SETTINGS: dict[str, Any] = {"n_ctx": 1024, "n_slots": N_SLOTS, "n_threads": 1, "seed": 1}


class Stage:
    """A model with more settings, and an empty folder for files."""

    def __init__(self, library: Library, folder: Path, **settings: Any) -> None:
        self.library = library
        self._settings = {**SETTINGS, **settings}
        self.folder = folder
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        if self._model is None:
            self._model = self.open()
        return self._model

    def open(self, path: Path | None = None, **more: Any) -> Model:
        return Model(path, library=self.library, **{**self._settings, **more})

    @property
    def was_used(self) -> bool:
        return self._model is not None

    def close(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None

    def set_option(self, name: str, value: str) -> None:
        self.model.binding.set_option(self.model.session.ctx, name, value)

    @contextmanager
    def option(self, name: str, value: str, then: str = "") -> Iterator[None]:
        """Set an option until the context ends; `then` is its value afterwards."""
        self.set_option(name, value)
        try:
            yield
        finally:
            self.set_option(name, then)

    def files(self) -> dict[str, str]:
        """Return the SHA-256 digests of the folder's files, by name."""
        files = sorted(self.folder.iterdir())
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def answers(self) -> list[tuple[str, float]]:
        """Decode a prompt in all slots, then return the model's choices for fixed prompts."""
        model = self.model
        with ExitStack() as opened:
            for _ in range(self._settings["n_slots"]):
                stream = opened.enter_context(
                    closing(model.binding.open(model.session.ctx, StreamConfig()))
                )
                model.binding.prefill(stream, model.prompt_tokens(OTHER_PROMPT))
        prompts = (PROMPT, OTHER_PROMPT, *(f"message: number {n}\naction: " for n in range(3)))
        chosen = [model.choose(prompt, ACTIONS) for prompt in prompts]
        return [(choice.value, round(choice.probability, 4)) for choice in chosen]
