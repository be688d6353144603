"""Fencing tokens for the locks of kazoo (lockkeeper.locks), and fences for the data that the locks
protect. README.md shows both."""
