"""Randomly damaged files of every kind: reading one succeeds, or raises an error of the package.

kinds.py       the kinds of files: how a valid one is written, and how a user reads it
written.py     the kinds of files that commands write
mutations.py   damage to bytes, JSON, safetensors headers and paths
worker.py      a process that reads damaged files one after another, and measures each read
campaign.py    worker processes, their time limit, and the counts of outcomes
"""
