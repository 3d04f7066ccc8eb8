"""The supported families, one module each: the meaning of ``config.json``, the table of weights."""
