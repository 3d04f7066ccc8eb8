"""Files of every kind that is read, damaged at random: each is read, or refused with its reason.

kinds.py       what is read: a valid file of each kind, and how a user reads it
mutations.py   damage to bytes, to JSON, to safetensors headers, to what a path leads to
worker.py      a process that reads damaged files, one after another, and measures each
campaign.py    workers, their time limit, and the count of outcomes
"""
