"""Find model files in the caches of Hugging Face and llama.cpp, without network access."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from .names import HubName, models_in, parts_of, pick_file, quantization_of

REPO_PREFIX = "models--"


@dataclass(frozen=True)
class CachedModel:
    """A model in a cache.

    Attributes
    ----------
    name : str
        The name that opens the model.
    path : pathlib.Path
        The model's file; the first one, if the model is split.
    size_bytes : int
        The size of all of its files.
    missing : tuple of str
        The parts of a split model that are not in the cache.
    """

    name: str
    path: Path
    size_bytes: int
    missing: tuple[str, ...]


def hub_cache() -> Path:
    """Return the folder in which huggingface_hub keeps repositories."""
    for variable, folder in (
        ("HF_HUB_CACHE", "."),
        ("HUGGINGFACE_HUB_CACHE", "."),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if os.environ.get(variable):
            return _expanded(os.environ[variable]) / folder
    return Path.home() / ".cache" / "huggingface" / "hub"


def model_files(folder: Path, pattern: str = "**/*.gguf") -> dict[str, Path]:
    """Return the .gguf files in a folder by their names: paths relative to it, with slashes."""
    # A snapshot's files are links. A broken link is a file that somebody removed from the cache.
    # Unlike Path.is_file(), isfile() returns False for a link to a folder that is not readable.
    found = sorted(file for file in folder.glob(pattern) if os.path.isfile(file))  # noqa: PTH113
    return {file.relative_to(folder).as_posix(): file for file in found}


def cached_file(name: HubName) -> Path | None:
    """Return the cached file that a name selects, if all of its parts are in the same cache."""
    for files in _cached_repo(name.repo):
        with suppress(ModelError):  # nothing fits, or several files do
            first = pick_file(name, files)
            if all(part in files for part in parts_of(first)):
                return files[first]
    return None


def cached_names(repo: str) -> list[str]:
    """Return the models of a repository that are in a cache, including incomplete ones."""
    return sorted({file for files in _cached_repo(repo) for file in models_in(files)})


def cached_models() -> list[CachedModel]:
    """Return all models in the caches, sorted by name."""
    found: dict[str, CachedModel] = {}
    for cache in _hub_caches():
        for folder in cache.glob(f"{REPO_PREFIX}*--*"):
            repo = folder.name.removeprefix(REPO_PREFIX).replace("--", "/")
            for files in _snapshots(folder):
                for file in models_in(files):
                    model = _described(_name_of(repo, file, files), file, files)
                    found.setdefault(model.name, model)
    return [found[name] for name in sorted(found)]


def _described(name: str, file: str, files: Mapping[str, Path]) -> CachedModel:
    parts = parts_of(file)
    size = sum(files[part].stat().st_size for part in parts if part in files)
    return CachedModel(name, files[file], size, tuple(p for p in parts if p not in files))


def _name_of(repo: str, file: str, files: Mapping[str, Path]) -> str:
    short = HubName(repo, quantization_of(file))
    with suppress(ModelError):
        if short.quantization and pick_file(short, files) == file:
            return str(short)
    return str(HubName(repo, file=file))


def _hub_caches() -> list[Path]:
    """Return the caches with one folder for each repository, llama.cpp's and huggingface_hub's."""
    llama = os.environ.get("LLAMA_CACHE")
    return [*([_expanded(llama)] if llama else []), hub_cache()]


def _cached_repo(repo: str) -> Iterator[dict[str, Path]]:
    """Yield the files of a repository in each cache, with their paths."""
    for cache in _hub_caches():
        yield from _snapshots(cache / f"{REPO_PREFIX}{repo.replace('/', '--')}")


def _snapshots(folder: Path) -> Iterator[dict[str, Path]]:
    """Yield the model files of each snapshot of a repository: first the branch main, then the
    newest."""
    snapshots = [path for path in folder.glob("snapshots/*") if path.is_dir()]
    main = ""
    with suppress(OSError):  # without a branch main, the newest snapshot is the first
        main = (folder / "refs" / "main").read_text(encoding="utf-8", errors="replace").strip()
    newest = sorted(snapshots, key=lambda path: path.stat().st_mtime, reverse=True)
    for snapshot in sorted(newest, key=lambda path: path.name != main):
        yield model_files(snapshot)


def _expanded(folder: str) -> Path:
    return Path(os.path.expandvars(folder)).expanduser()
