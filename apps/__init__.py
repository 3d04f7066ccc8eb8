"""Apps: the command line, the HTML report and the explorer, on top of the analyses."""
