"""A command that keeps its partial result after each forward, and then waits for a line."""

PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
from apps.commands import partial_run
partial_run.SLICE, partial_run.PREPARATIONS = 0.0, 0
write = partial_run.PartialRun.write
def slowly(self, sweep, budget):
    write(self, sweep, budget)
    print(int(sweep.done.sum()), flush=True)
    sys.stdin.readline()
partial_run.PartialRun.write = slowly
from apps.cli import main
main(sys.argv[1:])
"""
"""For ``python -c``, with the words of the command; prints the number of cells that are done."""
