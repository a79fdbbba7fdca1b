"""Find the file of a model: a local file, a cached file, or a download with huggingface_hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import ModelError, ModelNotFoundError, NotSupportedError
from .caches import cached_file, cached_models, cached_names, hub_cache, model_files
from .names import SUFFIX, HubName, listed, parts_of, pick_file, read_name, select, stem_of

Progress = Callable[[str, float], None]

MAX_NEAR = 3
"""How many similar models the message about a missing one lists."""


def find_model(name: str | os.PathLike[str], progress: Progress | None = None) -> str:
    """Return the path of a model, which is downloaded if it is in no cache.

    A path that does not exist, and the folder of a bundle, are returned unchanged.

    Parameters
    ----------
    name
        A path, or the name of a model in a repository; see :func:`.names.read_name`. In a folder
        of .gguf files, the model is selected as in a repository.
    progress
        Called with ``"download"`` and the fraction done, 0 to 1. None = huggingface_hub draws a
        progress bar if standard error is a terminal.

    Raises
    ------
    ModelError
        If the name selects no model or several, or the download fails.
    NotSupportedError
        If the model must be downloaded and huggingface_hub is not installed.
    InvalidArgumentError
        If `name` is malformed.
    """
    read = read_name(name)
    if isinstance(read, HubName):
        cached = cached_file(read)
        return _download(read, progress) if cached is None else str(cached)
    folder = Path(read)
    if not folder.is_dir() or (folder / "text").is_dir():
        return read
    files = model_files(folder, "*.gguf")
    found = select(HubName(read), files)
    if len(found) > 1:
        raise ModelError(
            f"the folder {read} has {len(found)} models: pass the path of one: {listed(found)}"
        )
    return str(files[found[0]]) if found else read


def check_exists(read: str) -> None:
    """Raise ModelNotFoundError if a path does not exist. The message lists similar models."""
    if os.path.lexists(read):
        return
    if address := re.search(r"(?:huggingface|hf)\.co/([\w.-]+/[\w.-]+)", read):
        raise ModelError(
            f"expected the name of a model without its site: {address[1]!r}, got {read!r}"
        )
    path = Path(read)
    files = model_files(path.parent, f"*{SUFFIX}")
    known = {stem_of(file): str(path.with_name(file)) for file in files}
    for model in cached_models():
        known.setdefault(stem_of(model.name.rpartition("/")[2]), model.name)
    stem = stem_of(path.name.partition(":")[0])  # Ollama writes tags after a colon
    near = [known[each] for each in known if stem.lower() in each.lower()]
    near = (near or [known[each] for each in get_close_matches(stem, known)])[:MAX_NEAR]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ModelNotFoundError(
        f"no such file or directory: {path.absolute()}; expected a {SUFFIX} file, a folder with "
        f"one, or a model on Hugging Face, as org/repo or org/repo:QUANTIZATION{hint}"
    )


def name_for_workers(name: str | os.PathLike[str]) -> str:
    """Return a name that other processes can use: an absolute path, or a name in a repository."""
    read = read_name(name)
    return os.fspath(name) if isinstance(read, HubName) else str(Path(read).absolute())


def _download(name: HubName, progress: Progress | None) -> str:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise NotSupportedError(
            f"{_absent(name)}; to download it: pip install 'eliza-ffi[hub]'"
        ) from None
    # huggingface_hub reads HF_ENDPOINT and HF_HUB_CACHE only when it is imported. This function
    # reads them at each call.
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT", "").rstrip("/") or None)
    with _explained(name):
        parts = parts_of(pick_file(name, api.list_repo_files(name.repo)))
        paths = []
        for done, part in enumerate(parts):
            bar = None if progress is None else _bar_class(progress, done, len(parts))
            path = api.hf_hub_download(name.repo, part, cache_dir=hub_cache(), tqdm_class=bar)
            paths.append(Path(path))
    first, *others = paths
    if any(other.parent != first.parent for other in others):
        raise ModelError(f"{name} was changed during the download: open it again")
    return str(first)


@contextmanager
def _explained(name: HubName) -> Iterator[None]:
    """Convert the errors of huggingface_hub, and of the HTTP client below it."""
    from huggingface_hub import errors

    try:
        yield
    except ModelError:
        raise
    except errors.OfflineModeIsEnabled as error:
        raise ModelError(f"{_absent(name)}; to download it, unset HF_HUB_OFFLINE") from error
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{name.repo} is gated: accept its conditions on its page at Hugging Face, and set "
            "HF_TOKEN to your access token"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"{name} is neither a local file nor a repository on Hugging Face; if the repository "
            "is private, set HF_TOKEN to your access token"
        ) from error
    except Exception as error:  # the HTTP client and its error classes depend on the version
        raise ModelError(f"cannot download {name}: {error}") from error


def _absent(name: HubName) -> str:
    cached = cached_names(name.repo)
    there = f", which have {listed(cached)} of this repository" if cached else ""
    return f"{name} is neither a local file nor a model in the caches{there}"


def _bar_class(progress: Progress, done: int, parts: int) -> type[Any]:
    """Return a progress bar that calls `progress` and draws nothing; `done` of `parts` files are
    there."""
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **{**settings, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self.total:
                progress("download", (done + min(self.n / self.total, 1.0)) / parts)

    return Bar
