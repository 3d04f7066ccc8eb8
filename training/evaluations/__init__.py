"""Measurements that support the claims of the cards.

induction.py    previous-token and induction scores, loss on repeated random tokens
tables.py       held-out loss, and the losses of unigram and bigram tables
completion.py   accuracy on prompts with one-token targets
masked.py       accuracy on masked tokens
fourier.py      share of the logits' variance explained by each frequency
alignment.py    cross-attention to the part of a date that is being written
live_edges.py   edges of a known circuit that change the logits when ablated alone
"""
