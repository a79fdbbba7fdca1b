"""The samplers in numpy: a class for each of llama.cpp, and the stages of a CPU sampler."""

from __future__ import annotations
