"""What each library does when it is tried: ``python -m tools.features``."""
