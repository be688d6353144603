"""A kazoo lock for paths that programs with other libraries lock, too.

    with SharedLock(client, "/locks/report", "identifier"):
        ...

It waits for every node of the path with a smaller sequence number, whatever library
has made it, and is waited for by Curator's InterProcessMutex, by go-zookeeper, and by
lockkeeper's recipes. kazoo's own Lock knows the nodes only that are called __lock__,
and Curator does not know those.

Copy this file, or the class, into your project. docs/guarantees.md has the table of
who waits for whom.
"""
from kazoo.recipe.lock import Lock


class SharedLock(Lock):
    # What Curator's locks are called; kazoo puts a UUID in front, and the server the
    # sequence number behind it.
    _NODE_NAME = "-lock-"
    # What is in front of the sequence number, of whatever library.
    _EXCLUDE_NAMES = ["-", "__"]
