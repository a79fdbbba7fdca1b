"""Code that all benchmarks share: workloads, facts about the machine, statistics and output."""
