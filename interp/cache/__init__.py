"""What a run recorded: kept, derived when it is read, saved to a file."""
