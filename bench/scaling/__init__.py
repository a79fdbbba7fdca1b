"""The measurements of bench/scale.py: passes, rows in this process, and rows on Ray workers."""
