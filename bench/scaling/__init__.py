"""What bench/scale.py measures: passes, rows on one machine, and rows on workers of Ray's."""
