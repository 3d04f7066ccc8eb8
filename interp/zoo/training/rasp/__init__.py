"""Programs over rows of tokens, and a compiler that sets a Transformer's weights to compute them.

program.py    what can be said: select, aggregate, count, share, map; and what it means
residual.py   where each value lies in the stream
compiler.py   which layer, head and MLP computes what, and with which weights
"""
