"""Says whether kazoo's locks take their turn, for verdicts_test.go.

    python3 kazoo_queues.py SERVER
"""
import sys

from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1])
client.start()
kinds = {"Lock": client.Lock, "WriteLock": client.WriteLock, "ReadLock": client.ReadLock}
for line in sys.stdin:
    kind, path, node = line.split()
    first = kinds[kind](path)._get_predecessor(node) is None
    print("in" if first else "waits")
client.stop()
