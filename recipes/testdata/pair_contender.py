"""Holds kazoo's locks for live_pairs_test.go.

    pair_contender.py SERVER

Lines on standard input: "lock ID SIDE FORM PATH", answered with "in ID" when the lock
is held, or "failed ID REASON"; and "unlock ID", answered with "out ID". SIDE is 0 or 1:
each has a session of its own.
"""
import os
import sys
import threading

from kazoo.client import KazooClient

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))
from shared_lock import SharedLock  # noqa: E402

FORMS = {
    "Lock": lambda client, path: client.Lock(path),
    "patterns": lambda client, path: client.Lock(path, extra_lock_patterns=["-", "__"]),
    "SharedLock": SharedLock,
    "WriteLock": lambda client, path: client.WriteLock(path),
    "ReadLock": lambda client, path: client.ReadLock(path),
    "Semaphore": lambda client, path: client.Semaphore(path, max_leases=1),
}

output = threading.Lock()
releases = {}


def say(line):
    with output:
        print(line, flush=True)


def hold(id, client, form, path):
    try:
        lock = FORMS[form](client, path)
        lock.acquire()
        say("in " + id)
        releases[id].wait()
        lock.release()
        say("out " + id)
    except Exception as e:
        say("failed %s %r" % (id, e))


clients = [KazooClient(hosts=sys.argv[1]) for side in range(2)]
for client in clients:
    client.start()
say("ready")
for line in sys.stdin:
    words = line.split()
    if words[0] == "unlock":
        releases[words[1]].set()
        continue
    releases[words[1]] = threading.Event()
    args = (words[1], clients[int(words[2])], words[3], words[4])
    threading.Thread(target=hold, args=args, daemon=True).start()
os._exit(0)
