"""Linear maps fitted by least squares."""
