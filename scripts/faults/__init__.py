"""The parts of ``check_faults.py``: operations, failing calls, and the places of failures."""
