"""Download models from Hugging Face with huggingface_hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ModelError, NotSupportedError
from .caches import ambiguous_files, cached_names, hub_cache
from .names import HubName, listed, parts_of, pick_file

__all__ = ["download"]


def download(name: HubName, progress: Callable[[str, float], None] | None) -> str:
    """Download the file that a name selects, with all of its parts; return its path.

    Parameters
    ----------
    progress
        As in :func:`.find.find_model`.

    Raises
    ------
    ModelError
        If the name selects no file or several, or the download fails.
    NotSupportedError
        If huggingface_hub is not installed.
    """
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
    absent = f"{name} is neither a local file nor a model in the caches{there}"
    if unclear := ambiguous_files(name.repo):
        absent += (
            f"; {listed([str(path) for path in unclear])} can belong to this repository or to "
            "another one: to open it, pass its path"
        )
    return absent


def _bar_class(progress: Callable[[str, float], None], done: int, parts: int) -> type[Any]:
    """Return a progress bar that calls `progress` and draws nothing.

    `done` of `parts` files are already downloaded.
    """
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **{**settings, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self.total:
                progress("download", (done + min(self.n / self.total, 1.0)) / parts)

    return Bar
