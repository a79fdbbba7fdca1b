"""What demo, evaluation and benchmarks share: cases, methods, figures, tables, pictures."""
