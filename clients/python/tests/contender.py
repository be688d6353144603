"""A process that locks, for the tests in jepsen/clients, which describe the protocol.

contender.py SERVERS SESSION_TIMEOUT_MS
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from typing import Any

from kazoo.client import KazooClient

from lockkeeper.locks import FencedLock, FencedReadLock, FencedSemaphore, FencedWriteLock, LockLostError

KINDS: dict[str, Any] = {"mutex": FencedLock, "read": FencedReadLock, "write": FencedWriteLock}
output = threading.Lock()


def say(*words: Any) -> None:
    """Prints a line with the time, which is CLOCK_MONOTONIC."""
    now = time.monotonic_ns()
    with output:
        print(now, *(str(w).replace("\n", " ") for w in words), flush=True)


class Handle:
    """A lock, with the thread that uses it."""

    def __init__(self, client: KazooClient, name: str, kind: str, path: str) -> None:
        self.name = name
        kind, _, option = kind.partition("=")
        if kind == "lease":
            self.lock: Any = FencedSemaphore(client, path, max_leases=int(option))
        else:
            self.lock = KINDS[kind](client, path, all_layouts=option == "all")
        self.commands: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            verb = self.commands.get()
            try:
                getattr(self, verb)()
            except Exception as e:
                say("failed", self.name, verb, repr(e))

    def acquire(self) -> None:
        self.lock.acquire()
        grant = self.lock.grant
        say("granted", self.name, grant.token, grant.node)
        threading.Thread(target=self.follow, args=(grant,), daemon=True).start()

    def follow(self, grant: Any) -> None:
        grant.lost.wait()
        say("ended", self.name, grant.reason)

    def release(self) -> None:
        self.lock.release()
        say("released", self.name)

    def write(self) -> None:
        """Prints the token that a write would carry, and whether it would be made."""
        say("wrote", self.name, self.lock.grant.token, self.lock.grant.held)

    def guard(self, data: bytes = b"held") -> None:
        """Writes to the node beside the lock's path, if the lock is held."""
        grant = self.lock.grant
        path = grant.node.rsplit("/", 1)[0] + "-data"
        try:
            with grant.guard() as transaction:
                transaction.set_data(path, data)
            say("guarded", self.name, transaction.results[0].version)
        except LockLostError as e:
            say("refused", self.name, e.reason)

    def late(self) -> None:
        """Has the lock's node deleted, and writes before it can know."""
        self.lock.client.delete_async(self.lock.grant.node)
        self.guard(b"late")


def trouble(client: KazooClient, name: str) -> None:
    """Sends requests all the time: kazoo 2.8 does not notice then that the connection is silent."""
    client.exists("/")
    say("troubled", name)
    while True:
        client.exists_async("/")
        time.sleep(0.05)


def main() -> None:
    servers, timeout_ms = sys.argv[1:]
    retry = dict(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5)
    client = KazooClient(servers, int(timeout_ms) / 1000, connection_retry=retry, command_retry=retry)
    client.start()
    say("ready")
    handles: dict[str, Handle] = {}
    for line in sys.stdin:
        name, verb, *args = line.split()
        if verb == "open":
            handles[name] = Handle(client, name, *args)
        elif verb == "trouble":
            threading.Thread(target=trouble, args=(client, name), daemon=True).start()
        elif verb == "close":
            client.stop()
            say("closed", name)
        else:
            handles[name].commands.put(verb)


if __name__ == "__main__":
    main()
