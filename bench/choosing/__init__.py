"""A choice, here and in other libraries: rounds of all methods, cells and tables."""
