"""A Ray cluster for the tests, with two CPUs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from checkout import ROOT

from eliza_ffi.library.loading import Library


@pytest.fixture(scope="session")
def cluster(library: Library) -> Iterator[Any]:
    """Return the module ``ray``, connected to a local cluster."""
    reason = "Ray is not installed: pip install 'eliza-ffi[ray]'"
    ray = pytest.importorskip("ray", reason=reason)
    pytest.importorskip("ray.data", reason=reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Actors must find the modules of the tests, whatever the working directory is.
        folders = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
        patch.setenv("PYTHONPATH", folders, prepend=os.pathsep)
        ray.init(
            address="local",
            num_cpus=2,
            object_store_memory=2**27,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()
