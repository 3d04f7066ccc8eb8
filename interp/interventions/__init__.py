"""What can be taken out of a run, and what is put in its place: another run, a mean, nothing."""
