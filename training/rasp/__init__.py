"""RASP programs, and a compiler that sets a Transformer's weights to compute them.

program.py    the operations: select, aggregate, count, share, map; their values in plain Python
residual.py   the directions of the residual stream that hold each operation's values
plan.py       the layer and head or MLP that computes each operation; the circuit
compiler.py   the weights
"""
