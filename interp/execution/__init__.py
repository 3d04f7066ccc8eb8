"""How a run is planned, executed and recorded; text generation; provenance."""
