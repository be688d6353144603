"""kazoo with TLS: holder.py SERVERS DIR

It takes a lock, says so, waits for a line, and says what became of its connection meanwhile.
DIR has kazoo.pem, kazoo.key and kazoo.ca.
"""

import sys

from kazoo.client import KazooClient

servers, directory = sys.argv[1:]
states = []
client = KazooClient(
    hosts=servers, use_ssl=True, verify_certs=True, timeout=10,
    certfile=directory + "/kazoo.pem", keyfile=directory + "/kazoo.key", ca=directory + "/kazoo.ca")
client.add_listener(lambda state: states.append(str(state)))
client.start(timeout=20)
lock = client.Lock("/lock", "kazoo")
lock.acquire(timeout=20)
print("locked", flush=True)
sys.stdin.readline()
client.set("/lock", b"still there")
print("states", *states, flush=True)
lock.release()
client.stop()
