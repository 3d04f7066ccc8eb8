"""The recorded activations of a run: stored, derived when they are read, saved to a file."""
