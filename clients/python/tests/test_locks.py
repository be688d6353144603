"""Tests of the grants that need no server: events at a given step, nodes of another session. The
tests with servers are in jepsen/clients.

    python3 -m unittest discover tests
"""

from __future__ import annotations

import threading
import time
import unittest
from types import SimpleNamespace
from typing import Any, Callable, Optional

from kazoo.exceptions import LockTimeout, NoNodeError, SessionExpiredError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent

from lockkeeper import locks

SESSION = 7


class FakeClient:
    """As much of KazooClient as a grant uses, with one node."""

    handler = SimpleNamespace(
        lock_object=threading.Lock,
        event_object=threading.Event,
        sleep_func=time.sleep,
        spawn=lambda function: None,
        timeout_exception=TimeoutError,
    )

    _session_timeout = 10_000

    def __init__(self, owner: int = SESSION) -> None:
        self.client_id: Optional[tuple[int, bytes]] = (SESSION, b"")
        self.stat: Any = SimpleNamespace(czxid=42, ephemeralOwner=owner)
        self.listeners: set[Callable[[str], Any]] = set()
        self.during_read: list[Callable[[], None]] = []  # one for each of the next readings
        self.answers: list[Any] = []
        self.watches: list[Callable[[WatchedEvent], None]] = []
        self.readings = 0

    def add_listener(self, listener: Callable[[str], Any]) -> None:
        self.listeners.add(listener)

    def remove_listener(self, listener: Callable[[str], Any]) -> None:
        self.listeners.discard(listener)

    def become(self, state: str) -> None:
        for listener in list(self.listeners):
            listener(state)

    def retry(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return function(*args, **options)

    def exists(self, node: str, watch: Callable[[WatchedEvent], None]) -> Any:
        self.readings += 1
        self.watches.append(watch)
        if self.during_read:
            self.during_read.pop(0)()
        return self.stat

    def exists_async(self, node: str) -> Any:
        return self

    def get(self, timeout: float) -> Any:
        """The next of the answers to exists_async; None: it does not come."""
        answer = self.answers.pop(0)
        if answer is None:
            time.sleep(timeout)
            raise TimeoutError
        return answer

    def disconnect(self) -> None:
        self.client_id = None

    def connect(self) -> None:
        self.client_id = (SESSION, b"")


class GrantTest(unittest.TestCase):
    def test_losses(self) -> None:
        for state, reason in (KazooState.SUSPENDED, locks.SUSPENDED), (KazooState.LOST, locks.LOST):
            client: Any = FakeClient()
            grant = locks.Grant.of(client, "/lock/node")
            client.become(KazooState.CONNECTED)
            self.assertTrue(grant.held)
            client.become(state)
            client.become(KazooState.CONNECTED)
            self.assertEqual((grant.lost.is_set(), grant.reason, grant.token), (True, reason, 42))
            self.assertFalse(client.listeners)

    def test_deletion(self) -> None:
        client: Any = FakeClient()
        grant = locks.Grant.of(client, "/lock/node")
        for kind in EventType.CHANGED, EventType.DELETED:
            client.watches[0](WatchedEvent(kind, KeeperState.CONNECTED, "/lock/node"))
            self.assertEqual(grant.held, kind == EventType.CHANGED)
        self.assertEqual(grant.reason, locks.DELETED)

    def test_trouble_while_the_node_is_read(self) -> None:
        client: Any = FakeClient()
        client.during_read = [lambda: client.become(KazooState.SUSPENDED), client.disconnect, client.connect]
        grant = locks.Grant.of(client, "/lock/node")
        self.assertTrue(grant.held)
        self.assertEqual(client.readings, 3)
        self.assertEqual(len(client.listeners), 1)

    def test_proofs(self) -> None:
        for answer, reason in (None, locks.SILENT), (SimpleNamespace(czxid=43), locks.DELETED):
            client: Any = FakeClient()
            client._session_timeout = 600  # ms
            client.answers = [client.stat, client.stat, answer]
            grant = locks.Grant.of(client, "/lock/node")
            first = grant._proof
            grant._keep()
            self.assertGreater(grant._proof, first)
            self.assertEqual((grant.reason, client.listeners), (reason, set()))

    def test_clock(self) -> None:
        client: Any = FakeClient()
        grant = locks.Grant.of(client, "/lock/node")
        grant._proof -= 6
        self.assertTrue(grant.held)
        grant._proof -= 1  # two thirds of ten seconds have passed
        self.assertTrue(grant.lost.is_set())
        self.assertEqual(grant.reason, locks.SILENT)

    def test_node_of_another_session(self) -> None:
        client: Any = FakeClient(owner=SESSION + 1)
        with self.assertRaises(SessionExpiredError):
            locks.Grant.of(client, "/lock/node")
        client.stat = None
        with self.assertRaises(NoNodeError):
            locks.Grant.of(client, "/lock/node")
        self.assertFalse(client.listeners)


class Recipe:
    """A lock as kazoo has them."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.releases = 0
        self.free = True

    def acquire(self, blocking: bool = True, timeout: Optional[float] = None) -> bool:
        return self.free

    def release(self) -> bool:
        self.releases += 1
        return True


class Fenced(locks._Fenced, Recipe):
    def _node_path(self) -> str:
        return "/lock/node"


class FencedTest(unittest.TestCase):
    def test_context(self) -> None:
        lock = Fenced(FakeClient())
        with lock as grant:
            self.assertIs(lock.grant, grant)
            self.assertTrue(lock.acquire())  # as a semaphore that has its lease
            self.assertIs(lock.grant, grant)
        self.assertEqual((grant.reason, lock.releases), (locks.RELEASED, 1))
        lock.free = False
        self.assertFalse(lock.acquire())
        with self.assertRaises(LockTimeout):
            lock.__enter__()

    def test_lock_is_released_if_there_is_no_grant(self) -> None:
        lock = Fenced(FakeClient(owner=SESSION + 1))
        with self.assertRaises(SessionExpiredError):
            lock.acquire()
        self.assertEqual((lock.grant, lock.releases), (None, 1))


class Tree(FakeClient):
    """A client with a lock's path that somebody may delete."""

    def __init__(self, exists: bool) -> None:
        super().__init__()
        self.exists_now, self.forbidden, self.children = exists, False, list[str]()

    def ensure_path(self, path: str) -> None:
        self.exists_now = not self.forbidden

    def create(self, path: str, data: bytes, ephemeral: bool, sequence: bool) -> str:
        if not self.exists_now:
            raise NoNodeError
        node = f"{path}{len(self.children):010}"
        self.children.append(node.rsplit("/", 1)[1])
        return node

    def get_children(self, path: str) -> list[str]:
        if not self.exists_now:
            raise NoNodeError
        return self.children

    def delete(self, path: str) -> None:
        self.children.remove(path.rsplit("/", 1)[1])


class PathTest(unittest.TestCase):
    def test_path_that_is_gone(self) -> None:
        client: Any = Tree(exists=False)
        lock = locks.FencedLock(client, "/lock")
        for _ in range(2):
            self.assertTrue(lock.acquire(timeout=5))
            lock.release()
            client.exists_now = False

    def test_path_that_cannot_be_made(self) -> None:
        client: Any = Tree(exists=True)
        lock = locks.FencedLock(client, "/lock")
        self.assertTrue(lock.acquire(timeout=5))
        lock.release()
        client.exists_now, client.forbidden = False, True
        with self.assertRaises(NoNodeError):
            lock.acquire(timeout=5)


class LayoutTest(unittest.TestCase):
    # A reader waits for all but other readers; None: it waits for none of that name.
    names = {
        "_c_1b0c-lock-0000000003": (3, 3),
        "_c_1b0c-__WRIT__0000000003": (3, 3),
        "_c_1b0c-__READ__0000000003": (3, None),
        "1b0c__lock__0000000003": (3, 3),
        "1b0c__rlock__0000000003": (3, None),
        "x-72057594037927936-0000000003": (3, 3),
        "n_0000000003": (3, 3),
        "lease-of-nobody": (None, None),
    }

    def test_all_layouts(self) -> None:
        client: Any = FakeClient()
        for kind, column in (locks.FencedLock, 0), (locks.FencedWriteLock, 0), (locks.FencedReadLock, 1):
            lock = kind(client, "/lock", all_layouts=True)
            for name, numbers in self.names.items():
                match = lock._contenders_re.search(name)
                self.assertEqual(int(match.group(1)) if match else None, numbers[column], (kind, name))


if __name__ == "__main__":
    unittest.main()
