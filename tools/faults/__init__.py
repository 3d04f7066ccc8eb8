"""The state of files whose writer is killed, runs out of disk space, or meets another writer."""
