"""Libraries written for TransformerLens, run on it and on ``interp.compat``, and compared."""
