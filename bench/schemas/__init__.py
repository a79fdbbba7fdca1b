"""Answers of JSON Schemas: who can give them, and what they cost."""
