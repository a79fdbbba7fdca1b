"""Decision models: models made to answer questions, asked in their own template."""
