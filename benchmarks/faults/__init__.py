"""What is left of files whose writer was killed, ran out of disk space, or met another writer."""
