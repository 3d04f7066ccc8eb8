"""Planning, executing and recording a run; text generation; provenance."""
