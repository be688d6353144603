"""Programs of kazoo for the lock lab (jepsen/locklab), any number in one process. Each has a
FencedLock and counters in stores, behind the fences of lockkeeper.fence. A line of input is a step
of one of them, and the answer begins with its number:

    N open SERVERS SESSION_TIMEOUT_MS PATH     N ok
    N lock WAIT_MS                             N ok TOKEN; later, perhaps, N lost
    N held                                     N ok true, or N ok false
    N unlock                                   N ok
    N read KIND AT RESOURCE TOKEN              N ok COUNT, or N stale TEXT
    N write KIND AT RESOURCE TOKEN COUNT       N ok, or N stale TEXT
    N close                                    N ok

or N error TEXT. jepsen/locklab/store has the names of the counters."""

import base64
import json
import os
import queue
import sqlite3
import sys
import threading
import time

from kazoo.client import KazooClient

from lockkeeper import fence
from lockkeeper.locks import FencedLock

output = threading.Lock()


def number(digits):
    return int(digits or 0)


class InFile:
    def __init__(self, at):
        self.at = at

    def hold(self, resource, token):
        return fence.File(os.path.join(self.at, resource)).hold(resource, token)

    def path(self, resource):
        return os.path.join(self.at, resource + ".count")

    def read(self, resource, token):
        with self.hold(resource, token):
            if not os.path.exists(self.path(resource)):
                return 0
            with open(self.path(resource)) as file:
                return number(file.read())

    def write(self, resource, token, count):
        with self.hold(resource, token):
            with open(self.path(resource), "w") as file:
                file.write(count)


class InTable:
    def __init__(self, connect):
        self.connect = connect

    def read(self, resource, token):
        connection = self.connect(resource)
        try:
            with fence.Table(connection).hold(resource, token) as cursor:
                cursor.execute(f"SELECT count FROM counter WHERE resource = '{resource}'")
                return cursor.fetchone()[0]
        finally:
            connection.close()

    def write(self, resource, token, count):
        connection = self.connect(resource)
        try:
            with fence.Table(connection).hold(resource, token) as cursor:
                cursor.execute(f"UPDATE counter SET count = {int(count)} WHERE resource = '{resource}'")
        finally:
            connection.close()


def address(at):
    host, port = at.rsplit(":", 1)
    return {"host": host, "port": int(port)}


def sqlite(at):
    return InTable(lambda resource: sqlite3.connect(os.path.join(at, resource + ".db"), timeout=60))


def postgresql(at):
    import psycopg2

    return InTable(lambda resource: psycopg2.connect(user="postgres", dbname="postgres", **address(at)))


def mariadb(at):
    import pymysql

    return InTable(lambda resource: pymysql.connect(user="root", database="test", **address(at)))


class InRedis:
    def __init__(self, at):
        import redis

        self.fence = fence.Redis(redis.Redis(**address(at)))

    def read(self, resource, token):
        return number(self.fence.do(resource, token, "GET", ["count/" + resource]))

    def write(self, resource, token, count):
        self.fence.do(resource, token, "SET", ["count/" + resource], count)


class InEtcd:
    def __init__(self, at):
        self.url = "http://" + at
        self.fence = fence.Etcd(self.url)

    def read(self, resource, token):
        self.fence.check(resource, token)
        body = json.dumps({"key": base64.b64encode(b"count/" + resource.encode()).decode()}).encode()
        status, _, answer = fence.send("POST", self.url + "/v3/kv/range", {}, body)
        if status != 200:
            raise OSError(answer)
        kvs = json.loads(answer).get("kvs")
        return number(base64.b64decode(kvs[0]["value"])) if kvs else 0

    def write(self, resource, token, count):
        self.fence.do(resource, token, put={"count/" + resource: count})


class InObjects:
    def __init__(self, at):
        self.fence = fence.Objects(fence.HTTPStore(at), f"python-{os.getpid()}-")

    def read(self, resource, token):
        self.fence.check(resource, token)
        return number(self.fence.get(resource)[0])

    def write(self, resource, token, count):
        self.fence.put(resource, token, count.encode())


KINDS = {"file": InFile, "sqlite": sqlite, "postgresql": postgresql, "mariadb": mariadb, "redis": InRedis, "etcd": InEtcd,
         "objects": InObjects}
counters = {}
opening = threading.Lock()


def counter(kind, at):
    with opening:
        if kind not in counters:
            counters[kind] = KINDS[kind](at)
        return counters[kind]


class Holder(threading.Thread):
    def __init__(self, name):
        super().__init__(daemon=True)
        self.name, self.steps = name, queue.Queue()

    def say(self, *words):
        with output:
            print(self.name, *(str(w).replace("\n", " ") for w in words), flush=True)

    def run(self):
        while True:
            verb, *args = self.steps.get()
            try:
                self.say("ok", getattr(self, verb)(*args))
            except fence.StaleError as e:
                self.say("stale", e)
            except Exception as e:
                self.say("error", repr(e))

    def open(self, servers, timeout_ms, path):
        retry = dict(max_tries=-1, delay=0.05, backoff=2, max_delay=0.5)
        self.client = KazooClient(servers, int(timeout_ms) / 1000, connection_retry=retry, command_retry=retry)
        self.client.start(timeout=60)
        self.lock_of_path = FencedLock(self.client, path)  # was: self.client.Lock(path)
        return ""

    def lock(self, wait_ms):
        if not self.lock_of_path.acquire(timeout=int(wait_ms) / 1000):
            raise TimeoutError("the lock was not free in time")
        grant = self.lock_of_path.grant
        threading.Thread(target=self.follow, args=(grant,), daemon=True).start()
        return grant.token

    def follow(self, grant):
        grant.lost.wait()
        if grant.reason != "released":
            self.say("lost")

    def held(self):
        return "true" if self.lock_of_path.grant.held else "false"

    def unlock(self):
        self.lock_of_path.release()
        return ""

    def read(self, kind, at, resource, token):
        return counter(kind, at).read(resource, int(token))

    def write(self, kind, at, resource, token, count):
        counter(kind, at).write(resource, int(token), count)
        return ""

    def close(self):
        self.client.stop()
        return ""


def main():
    holders = {}
    for line in sys.stdin:
        name, *step = line.split()
        if name not in holders:
            holders[name] = Holder(name)
            holders[name].start()
        holders[name].steps.put(step)
    os._exit(0)


if __name__ == "__main__":
    main()
