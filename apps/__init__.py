"""Apps: the command line, the HTML report and the explorer, on top of the analyses."""

from interp_command import check_packages

check_packages()
