"""Decide and choose for the rows of a Ray dataset with one call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..choices.label_set import as_label_set
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from ..evidence.calibration import Calibration, as_calibration
from ..evidence.cascade import CascadeCalibration, as_cascade_calibration
from ..hub import name_for_workers
from ..tables.columns import OutputColumns
from .batch import check_columns
from .chooser import ChooserActor, fields_of
from .decider import DeciderActor
from .resources import load_ray

if TYPE_CHECKING:
    from ray.data import Dataset

BATCH_ROWS = 256
"""Rows per batch: enough to fill the model's slots, and few enough to repeat if an actor dies."""


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
    calibration: Calibration | CascadeCalibration | str | os.PathLike[str] | None = None,
    **more: Any,
) -> Dataset:
    """Return a dataset with the answers to questions about a column.

    The model runs only when the returned dataset is read or written. Ray may change the order of
    the rows: keep a column that identifies them.

    >>> decide_dataset(ds, "body", {"team": Choice("Team?", ["a", "b"])})  # doctest: +SKIP

    Parameters
    ----------
    ds
        A ``ray.data.Dataset``.
    column, questions
        See :class:`DeciderActor`.
    workers
        The number of actors, each with the model in memory; or the minimum and maximum number.
    cpus
        CPUs that each actor reserves. The actor uses one thread per CPU.
    gpus
        GPUs that each actor reserves; may be a fraction.
    batch_size
        Rows per batch.
    model, calibration
        See :class:`DeciderActor`. A relative path, also in `then`, is relative to this process's
        working directory, and the calibration is read in this process.
    **more
        More arguments of :class:`DeciderActor`.

    Raises
    ------
    InvalidArgumentError
        If a question is malformed, or the dataset's schema is known and lacks a column.
    NotSupportedError
        If Ray is not installed.
    """
    if questions is not None:
        OutputColumns(as_questions(questions))
    then = [name_for_workers(each) for each in more.pop("then", ())]
    calibration = as_cascade_calibration(calibration) if then else as_calibration(calibration)
    more = {**more, "then": then}
    settings = {"column": column, "questions": questions, "calibration": calibration, **more}
    wanted = [column, more.get("questions_column")]
    return _mapped(ds, DeciderActor, settings, wanted, model, workers, cpus, gpus, batch_size)


def choose_dataset(
    ds: Dataset,
    prompt: str | None = None,
    labels: Any = None,
    *,
    workers: int | tuple[int, int] = 1,
    cpus: float = 1.0,
    gpus: float = 0.0,
    batch_size: int = BATCH_ROWS,
    model: str | os.PathLike[str] | None = None,
    **more: Any,
) -> Dataset:
    """Return a dataset with a label for each row.

    >>> choose_dataset(ds, "{body} The team for this is ", ["a", "b"])  # doctest: +SKIP

    Parameters
    ----------
    ds, workers, cpus, gpus, batch_size, model
        See :func:`decide_dataset`, which also lists the errors.
    prompt, labels, **more
        See :class:`ChooserActor`.
    """
    if labels is not None:
        labels = as_label_set(labels)
    settings = {"prompt": prompt, "labels": labels, **more}
    wanted = [*fields_of(prompt or ""), more.get("labels_column"), more.get("messages_column")]
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
        raise InvalidArgumentError(
            f"workers must be 1 or more, or (minimum, maximum), got {workers}"
        )
    schema = ds.schema(fetch_if_missing=False)
    if schema is not None:
        check_columns(schema.names, [name for name in wanted if name is not None])
    name = None if model is None else name_for_workers(model)
    return ds.map_batches(
        kind,
        fn_constructor_kwargs={**settings, "model": name},
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        num_cpus=cpus,
        num_gpus=gpus or None,
        batch_size=batch_size,
        batch_format="pyarrow",
    )
