"""A contender of kazoo's locks, for live_foreign_test.go.

    kazoo_contender.py SERVER PATH ROUNDS curator|patterns KIND...

curator: nodes are called as Curator calls them.
patterns: kazoo's own names, with extra_lock_patterns.
KIND is mutex, write, or, with curator, read. Of several, the rounds take turns.

Each round it prints "enter TOKEN KIND" while it holds the lock, waits for a line,
prints "leave", waits for a line, and releases.
"""
import sys

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, WriteLock


class CuratorLock(Lock):
    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["lock-", "__lock__"]


class CuratorWriteLock(Lock):
    _NODE_NAME = "-__WRIT__"
    _EXCLUDE_NAMES = ["__WRIT__", "__READ__"]


class CuratorReadLock(Lock):
    _NODE_NAME = "-__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]

    # kazoo's own waits for the newest writer, also for one that came later and
    # waits for it.
    def _get_predecessor(self, node):
        children = self.client.get_children(self.path)
        before = [c for c in children if "__WRIT__" in c and c[-10:] < node[-10:]]
        return max(before, key=lambda c: c[-10:], default=None)


def say(line):
    print(line, flush=True)


server, path, rounds, how = sys.argv[1:5]
kinds = sys.argv[5:]
client = KazooClient(hosts=server)
client.start()
if how == "curator":
    make = {
        "mutex": lambda: CuratorLock(client, path),
        "read": lambda: CuratorReadLock(client, path),
        "write": lambda: CuratorWriteLock(client, path),
    }
else:
    make = {
        "mutex": lambda: Lock(client, path, extra_lock_patterns=["lock-"]),
        "write": lambda: WriteLock(client, path, extra_lock_patterns=["__WRIT__", "__READ__"]),
    }
say("ready")
sys.stdin.readline()
for i in range(int(rounds)):
    kind = kinds[i % len(kinds)]
    lock = make[kind]()
    lock.acquire()
    czxid = client.exists(path + "/" + lock.node).czxid
    say("enter %d %s" % (czxid, "write" if kind == "mutex" else kind))
    sys.stdin.readline()
    say("leave")
    sys.stdin.readline()
    lock.release()
client.stop()
say("done")
