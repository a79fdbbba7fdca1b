"""Decide and choose on a Ray cluster. Requires the extra ``ray``.

>>> from eliza_ffi.ray import decide_dataset
>>> ds = ray.data.read_parquet("s3://mails/")  # doctest: +SKIP
>>> decided = decide_dataset(ds, "body", questions, workers=8, cpus=4)  # doctest: +SKIP
>>> decided.write_parquet("s3://decided/")  # doctest: +SKIP
"""

from __future__ import annotations

from .chooser import ChooserActor
from .dataset import choose_dataset, decide_dataset
from .decider import DeciderActor

__all__ = ["ChooserActor", "DeciderActor", "choose_dataset", "decide_dataset"]
