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
import time
from types import TracebackType
from typing import Any, Optional

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    KazooException,
    LockTimeout,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.recipe import lock as kazoo_locks
from kazoo.retry import ForceRetryError

SUSPENDED = "suspended"  # the connection broke, as kazoo has said
LOST = "lost"  # the session has ended, as kazoo has said
SILENT = "silent"  # there was no proof for two thirds of the session timeout
DELETED = "deleted"  # the lock's node was deleted
RELEASED = "released"

_LOSSES = {KazooState.SUSPENDED: SUSPENDED, KazooState.LOST: LOST}
_PROOFS_PER_TIMEOUT = 6


class LockLostError(KazooException):
    """The refusal of a guarded transaction: nothing was done, as the grant has ended. reason is the
    grant's."""

    def __init__(self, node: str, reason: Optional[str]) -> None:
        super().__init__(f"the lock of {node} is not held: {reason}")
        self.reason = reason


class Grant:
    """A lock that is held. It ends when the lock is released, or when the lock can no longer be
    relied on, whichever comes first, and does not come back. It may be used in any thread.

    token   the fencing token: a number that is larger than every earlier holder's. It is the zxid
            that created the lock's node, its czxid
    node    the path of the lock's node
    lost    an event that is set when the grant ends; unless the node was deleted, before anybody
            else can get the lock
    held    whether it has not ended
    reason  why it ended: SUSPENDED, LOST, SILENT, DELETED or RELEASED; None while it stands

    While it stands, a thread asks for a reading of its node six times per session timeout. Each
    answer proves that the session lived when it was asked for; two thirds of the timeout after the
    newest proof the grant ends. So it ends in time also if kazoo says nothing: kazoo 2.8 notices no
    silent connection while a program sends requests. lost and held look at the clock, so they are
    right from the first moment after a pause of the process.

    kazoo does not tell which timeout the servers have granted. Give KazooClient one that they
    grant: at most 20 ticks, where they have no maxSessionTimeout.
    """

    token: int
    node: str
    reason: Optional[str]

    @classmethod
    def of(cls, client: KazooClient, node: str) -> Grant:
        """Returns the grant of a lock that the client has just got with this node. The error is
        NoNodeError if the node is gone, SessionExpiredError if it belongs to an earlier session."""
        while True:
            grant = cls(client, node)
            try:
                if grant._confirm():
                    client.handler.spawn(grant._keep)
                    return grant
            except BaseException:
                grant._end(RELEASED)
                raise
            grant._end(SUSPENDED)

    def __init__(self, client: KazooClient, node: str) -> None:
        """Begins to listen; _confirm makes it a grant."""
        self.node, self.reason = node, None
        self._client = client
        self._lost = client.handler.event_object()
        self._mutex = client.handler.lock_object()
        self._proof = time.monotonic()  # when the newest proof was asked for
        self._timeout = client._session_timeout / 1000  # of the session, in s, as the program asked
        client.add_listener(self._state_changed)

    def _confirm(self) -> bool:
        """Reads the node, and returns false if the connection was in trouble meanwhile.

        Order: the listener first, then the node. If the listener has heard nothing by the time that
        the node is read, it is ours, and the listener will hear of the connection that it was read
        on."""
        stat = self._client.retry(self._client.exists, self.node, watch=self._node_changed)
        session = self._client.client_id  # None: not connected
        if session is None or not self.held:
            return False
        if stat is None:
            raise NoNodeError(self.node)
        if stat.ephemeralOwner != session[0]:
            raise SessionExpiredError(self.node)
        self.token = stat.czxid
        return True

    def _keep(self) -> None:
        """Asks for proofs until the grant ends. There is one request at a time: with more, kazoo
        would not notice a silent connection, and keep to it."""
        while self.held and not self._lost.wait(min(self._timeout / _PROOFS_PER_TIMEOUT, self._remaining())):
            asked = time.monotonic()
            try:
                stat = self._client.exists_async(self.node).get(timeout=self._remaining())
            except (KazooException, self._client.handler.timeout_exception):
                continue  # no proof: the listener or the clock ends the grant
            if stat is not None and stat.czxid == self.token:
                self._proof = asked
            else:
                self._end(DELETED)

    def _remaining(self) -> float:
        """Returns for how many seconds the newest proof is good."""
        return max(0, self._proof + self._timeout * 2 / 3 - time.monotonic())

    @property
    def held(self) -> bool:
        if self._remaining() == 0:
            self._end(SILENT)
        return not self._lost.is_set()

    @property
    def lost(self) -> threading.Event:
        _ = self.held
        return self._lost

    def guard(self) -> Guard:
        """Returns a transaction on nodes of the cluster that is done only if the lock is still held
        when the cluster gets to it, however long this process was stopped before:

            with grant.guard() as transaction:
                transaction.set_data("/balance", b"1")
        """
        return Guard(self)

    def _end(self, reason: str) -> None:
        with self._mutex:
            if self.reason is None:
                self.reason = reason
                self._lost.set()
        self._client.remove_listener(self._state_changed)

    def _state_changed(self, state: str) -> None:
        if state in _LOSSES:
            self._end(_LOSSES[state])

    def _node_changed(self, event: WatchedEvent) -> None:
        if event.type == EventType.DELETED:
            self._end(DELETED)


class Guard(TransactionRequest):
    """kazoo's transaction, which also checks that the lock's node is there. With it, data that are
    in the cluster itself need no token.

    commit returns the results of the other operations, in their order, and so does the attribute
    results after a with block. The error is LockLostError if the grant has ended, and the error of
    an operation that failed; nothing was done then. With any other error, as of a connection that
    broke, all or nothing may have been done, or may be done yet, but nothing after the end of the
    grant.
    """

    results: list[Any]

    def __init__(self, grant: Grant) -> None:
        super().__init__(grant._client)
        self._grant, self.results = grant, []
        self.check(grant.node, -1)

    def commit(self) -> list[Any]:
        if not self._grant.held:
            raise LockLostError(self._grant.node, self._grant.reason)
        checked, *results = self.commit_async().get()
        if isinstance(checked, NoNodeError):
            self._grant._end(DELETED)
            raise LockLostError(self._grant.node, self._grant.reason)
        for result in results:
            if isinstance(result, KazooException) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                raise result
        self.results = results
        return results


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

    def _inner_acquire(self, *args: Any, **options: Any) -> bool:
        """Tries once to acquire the lock, as kazoo's method does. kazoo creates the path once for
        each object and then fails with NoNodeError for ever if the path is gone: an empty container
        of Curator's, a state that was restored from a backup. Here the next try creates it anew."""
        believed = self.assured_path
        try:
            return bool(super()._inner_acquire(*args, **options))
        except NoNodeError:
            self.assured_path = False
            if not believed:
                raise
            raise ForceRetryError from None

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
