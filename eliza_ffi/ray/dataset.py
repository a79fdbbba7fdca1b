"""Ray datasets with answers and with choices, where one line says it all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..choices.choice_set import as_choice_set
from ..decisions.calibration import Calibration, as_calibration
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from ..tables.columns import OutputColumns
from .arrow import check_columns
from .chooser import ChooserActor, fields_of
from .decider import DeciderActor
from .share import load_ray

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["choose_dataset", "decide_dataset"]

BATCH_ROWS = 256
"""Rows that an actor is handed at once: many to each slot, and few enough to lose."""


def decide_dataset(
    ds: Dataset,
    column: str,
    questions: Any = None,
    *,
    workers: int | tuple[int, int] = 1,
    cpus: float = 1.0,
    gpus: float = 0.0,
    batch_size: int = BATCH_ROWS,
    model: str | os.PathLike[str] | None = None,
    calibration: Calibration | str | os.PathLike[str] | None = None,
    **more: Any,
) -> Dataset:
    """Return a dataset with the answers to questions about a column.

    Nothing is asked before the dataset is read or written. Ray may yield rows in another order than
    the dataset's: keep a column that tells them apart.

    Parameters
    ----------
    ds
        A ``ray.data.Dataset``.
    column, questions
        As :class:`DeciderActor`.
    workers
        Actors, each with the model in its memory; two numbers = the least and the most.
    cpus
        CPUs of Ray's for each of them, which are its threads.
    gpus
        GPUs for each of them, or a share of one.
    batch_size
        Rows that an actor is handed at once.
    model, calibration
        As :class:`DeciderActor`. A relative path is made absolute, and the calibration read, here.
    **more
        As :class:`DeciderActor`.

    Raises
    ------
    InvalidArgumentError
        If a question is malformed, or the dataset is known to lack the column.
    NotSupportedError
        If Ray is not installed.
    """
    if questions is not None:
        OutputColumns(as_questions(questions))
    calibration = as_calibration(calibration)
    settings = {"column": column, "questions": questions, "calibration": calibration, **more}
    wanted = [column, more.get("questions_column")]
    return _mapped(ds, DeciderActor, settings, wanted, model, workers, cpus, gpus, batch_size)


def choose_dataset(
    ds: Dataset,
    prompt: str | None = None,
    choices: Any = None,
    *,
    workers: int | tuple[int, int] = 1,
    cpus: float = 1.0,
    gpus: float = 0.0,
    batch_size: int = BATCH_ROWS,
    model: str | os.PathLike[str] | None = None,
    **more: Any,
) -> Dataset:
    """Return a dataset with a choice for each row.

    Parameters
    ----------
    ds, workers, cpus, gpus, batch_size, model
        As :func:`decide_dataset`, and so is what it raises.
    prompt, choices, **more
        As :class:`ChooserActor`.
    """
    if choices is not None:
        choices = as_choice_set(choices)
    settings = {"prompt": prompt, "choices": choices, **more}
    wanted = [*fields_of(prompt or ""), more.get("choices_column"), more.get("messages_column")]
    return _mapped(ds, ChooserActor, settings, wanted, model, workers, cpus, gpus, batch_size)


def _mapped(
    ds: Dataset,
    kind: type[DeciderActor] | type[ChooserActor],
    settings: dict[str, Any],
    wanted: Sequence[str | None],
    model: str | os.PathLike[str] | None,
    workers: int | tuple[int, int],
    cpus: float,
    gpus: float,
    batch_size: int,
) -> Dataset:
    load_ray()
    from ray.data import ActorPoolStrategy

    least, most = (workers, workers) if isinstance(workers, int) else workers
    if not 1 <= least <= most:
        raise InvalidArgumentError(f"workers must be 1 or more, the least first, not {workers}")
    schema = ds.schema(fetch_if_missing=False)
    if schema is not None:
        check_columns(schema.names, [name for name in wanted if name is not None])
    path = None if model is None else str(Path(model).absolute())
    return ds.map_batches(
        kind,
        fn_constructor_kwargs={**settings, "model": path},
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=cpus,
        num_gpus=gpus or None,
        batch_size=batch_size,
        batch_format="pyarrow",
    )
