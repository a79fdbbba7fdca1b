"""Rows too many for one machine: decisions and choices on a Ray cluster."""
