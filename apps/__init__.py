"""Apps: the command line, the HTML report and the explorer. They ask the analyses and show."""
