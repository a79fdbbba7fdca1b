"""What ``check_faults.py`` is made of: calls that fail, where, and what was being done."""
