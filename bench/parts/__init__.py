"""What the benchmarks share: what is measured, on which machine, and how results are shown."""
