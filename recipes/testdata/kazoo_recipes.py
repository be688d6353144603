"""kazoo's recipes that are no locks, for live_nolock_foreign_test.go.

    kazoo_recipes.py SERVER

It does what stdin says, a line at a time, and says one line when that is done:

    add PATH N             value N
    add8 PATH N            value N          (support_curator: SharedCount)
    enter PATH N           entered
    leave                  left
    join PATH DATA         joined
    members                members DATA,...     (sorted)
    quit                   gone
    stand PATH ID HOW      leads CZXID      (HOW: latch or patterns; waits for it)
    resign                 resigned
    put PATH DATA PRIORITY put
    get PATH               got DATA
    consume                consumed True
    release                released True
"""
import sys

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock


class LatchLock(Lock):
    _NODE_NAME = "-latch-"
    _EXCLUDE_NAMES = ["latch-"]


class State:
    barrier = party = lock = queue = None


def run(client, state, command, *args):
    if command in ("add", "add8"):
        counter = client.Counter(args[0], support_curator=command == "add8")
        counter += int(args[1])
        return "value %d" % counter.post_value
    if command == "enter":
        state.barrier = client.DoubleBarrier(args[0], int(args[1]))
        state.barrier.enter()
        return "entered"
    if command == "leave":
        state.barrier.leave()
        return "left"
    if command == "join":
        state.party = client.Party(args[0], args[1])
        state.party.join()
        return "joined"
    if command == "members":
        return "members " + ",".join(sorted(state.party))
    if command == "quit":
        state.party.leave()
        return "gone"
    if command == "stand":
        election = client.Election(args[0], args[1])
        if args[2] == "latch":
            election.lock = LatchLock(client, args[0], args[1])
        else:
            election.lock = client.Lock(args[0], args[1], extra_lock_patterns=["latch-"])
        state.lock = election.lock
        state.lock.acquire()
        return "leads %d" % client.exists(args[0] + "/" + state.lock.node).czxid
    if command == "resign":
        state.lock.release()
        return "resigned"
    if command == "put":
        client.LockingQueue(args[0]).put(args[1].encode(), int(args[2]))
        return "put"
    if command == "get":
        state.queue = client.LockingQueue(args[0])
        return "got " + state.queue.get().decode()
    if command == "consume":
        return "consumed %s" % state.queue.consume()
    if command == "release":
        return "released %s" % state.queue.release()
    return "unknown command"


client = KazooClient(hosts=sys.argv[1])
client.start()
print("ready", flush=True)
for line in sys.stdin:
    try:
        print(run(client, State, *line.split()), flush=True)
    except Exception as e:
        print("error", repr(e), flush=True)
        raise
client.stop()
