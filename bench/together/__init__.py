"""Many streams at once, here and elsewhere: cells and tables, and what they are compared with."""
