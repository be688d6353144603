"""A client process of the jepsen tests: kazoo, unmodified.

    worker.py HARNESS NAME SERVERS SESSION_TIMEOUT_MS

It does what the harness tells it over TCP; the protocol is described in the
documentation of the Go package lockkeeper/jepsen.

Recipes: lock, read, write, semaphore, election.

With WORKER_SASL in the environment, USER:PASSWORD, it logs in with SASL.
"""

import logging
import os
import queue
import socket
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, KazooException, LockTimeout
from kazoo.protocol.states import KazooState


class Harness:
    """The connection to the test: commands in, replies and events out."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)))
        self.lock = threading.Lock()

    def send(self, *words):
        line = " ".join(str(w).replace("\n", " ") for w in words) + "\n"
        with self.lock:
            self.sock.sendall(line.encode())

    def lines(self):
        return self.sock.makefile("r")


def sasl_options():
    """Is how kazoo logs in, if it does."""
    if "WORKER_SASL" not in os.environ:
        return None
    user, _, password = os.environ["WORKER_SASL"].partition(":")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


class LockHandle:
    """Lock, ReadLock and WriteLock."""

    def __init__(self, client, lock):
        self.client = client
        self.lock = lock

    def acquire(self, timeout):
        """Returns the fencing token: the czxid of the lock's node."""
        if timeout == 0:
            got = self.lock.acquire(blocking=False)
        else:
            got = self.lock.acquire(timeout=timeout)
        if not got:
            return None
        return self.token()

    def token(self):
        path = self.lock.path + "/" + self.lock.node
        stat = self.client.retry(self.client.exists, path)
        # The node can only be gone if the session is.
        return stat.czxid if stat else 0

    def release(self):
        return self.lock.release()

    def cancel(self):
        self.lock.cancel()

    def contenders(self):
        return self.lock.contenders()


class SemaphoreHandle:
    def __init__(self, semaphore):
        self.semaphore = semaphore

    def acquire(self, timeout):
        if timeout == 0:
            got = self.semaphore.acquire(blocking=False)
        else:
            got = self.semaphore.acquire(timeout=timeout)
        return 0 if got else None

    def release(self):
        return self.semaphore.release()

    def cancel(self):
        self.semaphore.cancel()

    def contenders(self):
        return self.semaphore.lease_holders()


class ElectionHandle:
    """Election.run calls back while it leads; here it leads until release."""

    def __init__(self, client, election):
        self.client = client
        self.election = election

    def acquire(self, timeout):
        self.resign = threading.Event()
        self.events = queue.Queue()
        self.runner = threading.Thread(target=self.run, daemon=True)
        self.runner.start()
        try:
            what, value = self.events.get(timeout=timeout)
        except queue.Empty:
            self.election.cancel()
            what, value = self.events.get()
            if what == "elected":  # between the timeout and the cancel
                self.resign.set()
                self.runner.join()
            return None
        if what == "elected":
            return value
        self.runner.join()
        if what == "error":
            raise value
        raise CancelledError()

    def run(self):
        try:
            self.election.run(self.lead)
            self.events.put(("ended", None))
        except Exception as e:
            self.events.put(("error", e))

    def lead(self):
        lock = self.election.lock
        stat = self.client.retry(self.client.exists, lock.path + "/" + lock.node)
        self.events.put(("elected", stat.czxid if stat else 0))
        self.resign.wait()

    def release(self):
        self.resign.set()
        self.runner.join()
        what, value = self.events.get()
        if what == "error":
            raise value
        return True

    def cancel(self):
        self.election.cancel()

    def contenders(self):
        return self.election.contenders()


class Worker:
    def __init__(self, harness, name, servers, timeout_ms):
        self.harness = harness
        self.name = name
        self.handles = {}
        self.threads = {}
        retry = dict(max_tries=-1, delay=0.05, backoff=2, max_delay=1)
        self.client = KazooClient(
            hosts=servers,
            timeout=timeout_ms / 1000.0,
            connection_retry=retry,
            command_retry=retry,
            sasl_options=sasl_options(),
        )
        self.client.add_listener(self.state_changed)

    def state_changed(self, state):
        # Called by kazoo's connection thread, in order.
        if state == KazooState.CONNECTED:
            host, port = self.client._connection._socket.getpeername()[:2]
            self.harness.send(
                "event connected", "%s:%d" % (host, port), "0x%x" % (self.client.client_id[0] % 2**64)
            )
        elif state == KazooState.SUSPENDED:
            self.harness.send("event suspended")
        elif state == KazooState.LOST:
            self.harness.send("event expired")

    def open(self, handle, recipe, path, *options):
        options = dict(o.split("=", 1) for o in options)
        who = options.get("identifier", self.name + "/" + handle)
        c = self.client
        if recipe == "lock":
            patterns = [p for p in options.get("also", "").split(",") if p]
            made = LockHandle(c, c.Lock(path, who, extra_lock_patterns=patterns))
        elif recipe == "read":
            made = LockHandle(c, c.ReadLock(path, who))
        elif recipe == "write":
            made = LockHandle(c, c.WriteLock(path, who))
        elif recipe == "semaphore":
            made = SemaphoreHandle(c.Semaphore(path, who, max_leases=int(options["leases"])))
        elif recipe == "election":
            made = ElectionHandle(c, c.Election(path, who))
        else:
            return "fail", "unknown recipe " + recipe
        self.handles[handle] = made
        return "ok", ""

    def acquire(self, handle, timeout_ms):
        timeout = int(timeout_ms) / 1000.0
        try:
            token = self.handles[handle].acquire(None if timeout < 0 else timeout)
        except LockTimeout:
            return "fail", "timeout"
        except CancelledError:
            return "fail", "cancelled"
        if token is None:
            return "fail", "timeout"
        return "ok", token

    def release(self, handle):
        return ("ok", "") if self.handles[handle].release() else ("fail", "not-held")

    def cancel(self, handle):
        self.handles[handle].cancel()
        return "ok", ""

    def contenders(self, handle):
        return "ok", ",".join(self.handles[handle].contenders())

    def run(self, id, verb, args):
        try:
            if verb in ("open", "acquire", "release", "cancel", "contenders"):
                kind, text = getattr(self, verb)(*args)
            elif verb == "close":
                self.client.stop()
                self.client.close()
                kind, text = "ok", ""
            else:
                kind, text = "fail", "unknown command " + verb
        except KazooException as e:
            # kazoo gives up after all its retries: the outcome is unknown.
            kind, text = "info", "%s %s" % (type(e).__name__, e)
        except Exception as e:
            logging.exception("%s %s", verb, args)
            kind, text = "fail", "%s %s" % (type(e).__name__, e)
        self.harness.send(id, kind, text)
        return verb == "close"

    def thread(self, commands):
        while True:
            id, verb, args = commands.get()
            self.run(id, verb, args)

    def serve(self):
        for line in self.harness.lines():
            id, thread, verb, *args = line.split()
            if thread == "main":
                if self.run(id, verb, args):
                    return
                continue
            if thread not in self.threads:
                self.threads[thread] = queue.Queue()
                threading.Thread(
                    target=self.thread, args=(self.threads[thread],), daemon=True
                ).start()
            self.threads[thread].put((id, verb, args))


def main():
    harness_address, name, servers, timeout_ms = sys.argv[1:]
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    worker = Worker(Harness(harness_address), name, servers, int(timeout_ms))
    worker.client.start_async()
    worker.serve()


if __name__ == "__main__":
    main()
