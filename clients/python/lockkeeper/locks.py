"""kazoo's locks with fencing tokens.

    with FencedLock(client, "/locks/report") as grant:
        store.write(row, token=grant.token)  # which refuses a token smaller than one it has seen
        if grant.lost.is_set():
            ...  # somebody else may get the lock now

FencedLock, FencedReadLock, FencedWriteLock and FencedSemaphore take the place of kazoo's Lock,
ReadLock, WriteLock and Semaphore, and add the attribute grant. They work with lockkeeper and with
ZooKeeper.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Optional

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout, NoNodeError, SessionExpiredError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.recipe import lock as kazoo_locks

SUSPENDED = "suspended"  # the connection broke, or was silent for two thirds of the session timeout
LOST = "lost"  # the session has ended
DELETED = "deleted"  # somebody deleted the lock's node
RELEASED = "released"

_LOSSES = {KazooState.SUSPENDED: SUSPENDED, KazooState.LOST: LOST}


class Grant:
    """A lock that is held. It ends when the lock is released, or when the lock can no longer be relied
    on, whichever comes first, and does not come back. It may be used in any thread.

    token   the fencing token: a number that is larger than every earlier holder's. It is the zxid
            that created the lock's node, its czxid
    node    the path of the lock's node
    lost    an event that is set when the grant ends; if the connection is the reason, before
            anybody else can get the lock
    reason  why it ended: SUSPENDED, LOST, DELETED or RELEASED; None while it stands
    """

    token: int
    node: str
    lost: threading.Event
    reason: Optional[str]

    @classmethod
    def of(cls, client: KazooClient, node: str) -> Grant:
        """Returns the grant of a lock that the client has just got with this node. The error is
        NoNodeError if the node is gone, SessionExpiredError if it belongs to an earlier session."""
        while True:
            grant = cls(client, node)
            try:
                if grant._confirm():
                    return grant
            except BaseException:
                grant._end(RELEASED)
                raise
            grant._end(SUSPENDED)

    def __init__(self, client: KazooClient, node: str) -> None:
        """Begins to listen; _confirm makes it a grant."""
        self.node = node
        self.lost, self.reason = client.handler.event_object(), None
        self._client = client
        self._mutex = client.handler.lock_object()
        client.add_listener(self._state_changed)

    def _confirm(self) -> bool:
        """Reads the node, and returns false if the connection was in trouble meanwhile.

        Order: the listener first, then the node. If the listener has heard nothing by the time that
        the node is read, it is ours, and the listener will hear of the connection that it was read
        on."""
        stat = self._client.retry(self._client.exists, self.node, watch=self._node_changed)
        session = self._client.client_id  # None: not connected
        if session is None or self.lost.is_set():
            return False
        if stat is None:
            raise NoNodeError(self.node)
        if stat.ephemeralOwner != session[0]:
            raise SessionExpiredError(self.node)
        self.token = stat.czxid
        return True

    @property
    def held(self) -> bool:
        """Whether the lock is neither lost nor released, as far as this process has heard."""
        return not self.lost.is_set()

    def _end(self, reason: str) -> None:
        with self._mutex:
            if self.reason is None:
                self.reason = reason
                self.lost.set()
        self._client.remove_listener(self._state_changed)

    def _state_changed(self, state: str) -> None:
        if state in _LOSSES:
            self._end(_LOSSES[state])

    def _node_changed(self, event: WatchedEvent) -> None:
        if event.type == EventType.DELETED:
            self._end(DELETED)


class _Fenced:
    """Adds the grant to one of kazoo's recipes, which follows it in the order of base classes."""

    client: KazooClient
    grant: Optional[Grant] = None  # of the newest acquire

    def _node_path(self) -> str:
        raise NotImplementedError

    def acquire(self, blocking: bool = True, timeout: Optional[float] = None) -> bool:
        """Acquires the lock as kazoo's method does. It also raises an error if the lock was lost
        before its token could be read."""
        if not super().acquire(blocking=blocking, timeout=timeout):  # type: ignore[misc]
            return False
        # A semaphore that has its lease already has its grant, too.
        if self.grant is None or not self.grant.held:
            try:
                self.grant = Grant.of(self.client, self._node_path())
            except BaseException:
                self.release()
                raise
        return True

    def release(self) -> bool:
        """Ends the grant, then releases the lock."""
        if self.grant is not None:
            self.grant._end(RELEASED)
        return bool(super().release())  # type: ignore[misc]

    def __enter__(self) -> Grant:
        if not self.acquire() or self.grant is None:
            raise LockTimeout("the lock was not acquired")
        return self.grant

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.release()


class _FencedLock(_Fenced, kazoo_locks.Lock):
    """One of kazoo's locks with a grant. It has no option to outlive its session."""

    # With all_layouts: the name of the lock's nodes, between kazoo's UUID and the server's sequence
    # number; and the characters in front of the number in the nodes that it waits for, as regular
    # expressions.
    _SHARED_NAME: str
    _SHARED_EXCLUDES = ["-", "_"]

    def __init__(
        self,
        client: KazooClient,
        path: str,
        identifier: Optional[str] = None,
        all_layouts: bool = False,
        **options: Any,
    ) -> None:
        """Makes a lock. With all_layouts it waits for every contender of the path with a smaller
        sequence number, whatever library has made the node, and its nodes have the names that
        Curator knows. The options are kazoo's."""
        if all_layouts:
            self._NODE_NAME, self._EXCLUDE_NAMES = self._SHARED_NAME, self._SHARED_EXCLUDES
        super().__init__(client, path, identifier, **options)

    def _node_path(self) -> str:
        return f"{self.path}/{self.node}"


class FencedLock(_FencedLock, kazoo_locks.Lock):
    """kazoo's Lock with a grant. With all_layouts Curator's InterProcessMutex, go-zookeeper's Lock
    and lockkeeper's own locks wait for it."""

    _SHARED_NAME = "-lock-"


class FencedWriteLock(_FencedLock, kazoo_locks.WriteLock):
    """kazoo's WriteLock with a grant. With all_layouts Curator's InterProcessReadWriteLock and
    lockkeeper's own locks wait for it, and kazoo's do not."""

    _SHARED_NAME = "__WRIT__"


class FencedReadLock(_FencedLock, kazoo_locks.ReadLock):
    """kazoo's ReadLock with a grant; for all_layouts see FencedWriteLock.

    Only a writer's token is for a fence: readers share, and an early one has a smaller token than a
    late one."""

    _SHARED_NAME = "__READ__"
    _SHARED_EXCLUDES = ["-", "(?<!__rlock_)(?<!__READ_)_"]


class FencedSemaphore(_Fenced, kazoo_locks.Semaphore):
    """kazoo's Semaphore with a grant. With more than one lease, older leases stand beside newer
    ones: a resource that refuses all but the newest token wants a semaphore of one lease."""

    def _node_path(self) -> str:
        return self.create_path
