"""The names of models: local paths, and files of repositories on Hugging Face."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..checks import check_path, check_text, wrong
from ..errors import ModelError

SCHEME = "hf://"

NAME = re.compile(
    r"(?P<repo>\w+(?:[.-]\w+)*/\w+(?:[.-]\w+)*)(?::(?P<quantization>\w+(?:[.-]\w+)*))?",
    flags=re.ASCII,
)
"""A repository, and a quantization after a colon, as in llama.cpp's option ``-hf``."""

PREFERRED = ("Q4_K_M", "Q8_0")
"""The default quantizations, the preferred one first; the same as in llama.cpp."""

COMPANIONS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""Parts of the names of files that belong to a model but are not models, as in llama.cpp."""

PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})")
SUFFIX = ".gguf"

MAX_LISTED = 30
"""How many files an error message lists."""


@dataclass(frozen=True)
class HubName:
    """A model in a repository on Hugging Face.

    Attributes
    ----------
    repo : str
        The repository, such as ``"org/repo"``.
    quantization : str
        The quantization, such as ``"Q4_K_M"``; empty if the name has none.
    file : str
        The file's path in the repository, or a pattern with ``*``; empty if the name has none.
    """

    repo: str
    quantization: str = ""
    file: str = ""

    def __str__(self) -> str:
        if self.file:
            return f"{SCHEME}{self.repo}/{self.file}"
        return f"{self.repo}:{self.quantization}" if self.quantization else self.repo


def read_name(name: str | os.PathLike[str]) -> str | HubName:
    """Return a local path, with ``~`` expanded, or the name of a model in a repository.

    A string is a repository's name if it begins with ``hf://``, or if it has the form
    ``org/repo`` or ``org/repo:QUANTIZATION`` and no such file exists.

    Raises
    ------
    InvalidArgumentError
        If `name` cannot be a path, or its text after ``hf://`` is malformed.
    """
    path = check_path("path", name)
    if isinstance(name, str):
        if path.startswith(SCHEME):
            owner, _, rest = path.removeprefix(SCHEME).partition("/")
            repo, _, file = rest.partition("/")
            match = NAME.fullmatch(f"{owner}/{repo}")
            if match is None or (file and match["quantization"]):
                expected = "hf://org/repo, hf://org/repo:QUANTIZATION or hf://org/repo/FILE.gguf"
                raise wrong("path", expected, name)
            return HubName(match["repo"], match["quantization"] or "", file)
        match = NAME.fullmatch(path)
        if match and not path.endswith(SUFFIX) and not os.path.lexists(path):
            return HubName(match["repo"], match["quantization"] or "")
    # Unlike Path.expanduser(), this returns a path without ``~`` unchanged.
    return path if os.path.lexists(path) else os.path.expanduser(path)  # noqa: PTH111


def hub_path(repo_id: str, filename: str | None) -> str:
    """Return ``hf://`` followed by a repository and, unless it is None, a file or pattern in it."""
    repo = f"{SCHEME}{check_text('repo_id', repo_id)}"
    return repo if filename is None else f"{repo}/{check_text('filename', filename)}"


def select(name: HubName, files: Iterable[str]) -> list[str]:
    """Return the files that a name selects; a split model is represented by its first part.

    A name with neither a file nor a quantization selects the models in Q4_K_M, or else those in
    Q8_0, or else all models. `files` are the paths of all files of the repository.
    """
    files = sorted(files)
    models = models_in(files)
    if name.file:
        # A full path can also select a file that is not in `models`, such as a draft model.
        whole = [file for file in files if file == name.file and file.endswith(SUFFIX)]
        return whole or [file for file in models if fnmatchcase(file, name.file)]
    for quantization in (name.quantization,) if name.quantization else PREFERRED:
        found = [file for file in models if _has_quantization(file, quantization)]
        if found or name.quantization:
            return found
    return models


def pick_file(name: HubName, files: Iterable[str]) -> str:
    """Return the only file that a name selects; raise ModelError if it selects none or several."""
    files = sorted(files)
    found = select(name, files)
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelError(
            f"{name} names {len(found)} models: add a quantization, as in {name.repo}:Q8_0, or "
            f"write {SCHEME}{name.repo}/FILE with one of these files: {listed(found)}"
        )
    what = "model in the GGUF format"
    if name.file or name.quantization:
        what = f".gguf file {name.file!r}" if name.file else f"model {name.quantization!r}"
    models = models_in(files)
    there = f"; its models are: {listed(models)}" if models else ""
    raise ModelError(f"the repository {name.repo} has no {what}{there}")


def models_in(files: Iterable[str]) -> list[str]:
    """Return the files that are models. Of a split model, return only the first part."""

    def is_model(file: str) -> bool:
        name = file.rpartition("/")[2]
        is_companion = any(part in name for part in COMPANIONS)
        return file.endswith(SUFFIX) and parts_of(file)[:1] == [file] and not is_companion

    return [file for file in files if is_model(file)]


def parts_of(file: str) -> list[str]:
    """Return the files of a split model whose first part is `file`; otherwise `file` alone."""
    match = PART.fullmatch(file.removesuffix(SUFFIX))
    if match is None:
        return [file]
    stem, count = match["stem"], match["count"]
    return [f"{stem}-{part:05}-of-{count}{SUFFIX}" for part in range(1, int(count) + 1)]


def quantization_of(file: str) -> str:
    """Return the quantization in a file's name, in capitals; empty if the name has none."""
    match = re.search(r"[-.]([a-z]{1,5}\d\w*)$", stem_of(file), flags=re.ASCII | re.IGNORECASE)
    return match[1].upper() if match else ""


def _has_quantization(file: str, quantization: str) -> bool:
    # model-UD-Q4_K_XL matches both Q4_K_XL and UD-Q4_K_XL. The names of folders match, too.
    wanted = rf"(?:^|[-./]){re.escape(quantization)}(?:[-./]|$)"
    return re.search(wanted, stem_of(file), flags=re.IGNORECASE) is not None


def stem_of(file: str) -> str:
    """Return a file's name without its extension and without the number of its part."""
    stem = file.removesuffix(SUFFIX)
    match = PART.fullmatch(stem)
    return match["stem"] if match else stem


def listed(files: Sequence[str]) -> str:
    more = len(files) - MAX_LISTED
    return ", ".join(files[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
