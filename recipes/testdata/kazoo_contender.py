"""A contender of kazoo's Lock, for live_test.go.

    kazoo_contender.py SERVER PATH ROUNDS curator|patterns

curator: nodes are called as Curator calls them.
patterns: kazoo's own names, with extra_lock_patterns.

Each round it prints "enter TOKEN" while it holds the lock, waits for a line,
prints "leave", waits for a line, and releases.
"""
import sys

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock


class CuratorLock(Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-", "__lock__"]


def say(line):
    print(line, flush=True)


server, path, rounds, how = sys.argv[1:]
client = KazooClient(hosts=server)
client.start()
if how == "curator":
    lock = CuratorLock(client, path)
else:
    lock = Lock(client, path, extra_lock_patterns=["lock-"])
say("ready")
sys.stdin.readline()
for _ in range(int(rounds)):
    lock.acquire()
    say("enter %d" % client.exists(path + "/" + lock.node).czxid)
    sys.stdin.readline()
    say("leave")
    sys.stdin.readline()
    lock.release()
client.stop()
say("done")
