"""Writes under a fence, for jepsen/locklab/fences: one line of input, KIND RESOURCE TOKEN, with the
resource in base64, is one write; the answer is ok, stale NEWEST, invalid, damaged or error TEXT.
The arguments are KIND=PLACE."""

import base64
import sqlite3
import sys

from lockkeeper import fence


def file(path):
    f = fence.File(path)

    def write(resource, token):
        with f.hold(resource, token):
            with open(path + ".log", "a") as log:
                print(token, file=log)

    return write


def table(connection):
    t = fence.Table(connection)

    def write(resource, token):
        with t.hold(resource, token) as cursor:
            cursor.execute("SELECT COUNT(*) FROM log")
            cursor.execute(f"INSERT INTO log (seen, token) VALUES ({cursor.fetchone()[0]}, {token})")

    return write


def sqlite(path):
    return table(sqlite3.connect(path, timeout=60))


def postgresql(address):
    import psycopg2

    host, port = address.split(":")
    return table(psycopg2.connect(host=host, port=port, user="postgres", dbname="postgres"))


def mariadb(address):
    import pymysql

    host, port = address.split(":")
    return table(pymysql.connect(host=host, port=int(port), user="root", database="test"))


def redis(address):
    import redis

    host, port = address.split(":")
    r = fence.Redis(redis.Redis(host, int(port)))
    return lambda resource, token: r.do(resource, token, "RPUSH", ["log"], token)


def etcd(address):
    e = fence.Etcd("http://" + address)
    return lambda resource, token: e.do(resource, token, put={"log": f"{token}"})


def objects(url):
    o = fence.Objects(fence.HTTPStore(url), "python-")
    return lambda resource, token: o.update(resource, token, lambda old: (old or b"") + b"%d\n" % token)


def main():
    places = dict(arg.split("=", 1) for arg in sys.argv[1:])
    writers = {}
    for line in sys.stdin:
        kind, resource, token = line.split(" ")
        if kind not in writers:
            writers[kind] = globals()[kind](places[kind])
        try:
            writers[kind](base64.b64decode(resource).decode("utf-8", "surrogateescape"), int(token))
            answer = "ok"
        except fence.StaleError as e:
            answer = f"stale {e.newest}"
        except fence.InvalidError:
            answer = "invalid"
        except fence.DamagedError:
            answer = "damaged"
        except Exception as e:
            answer = f"error {e!r}"
        print(answer, flush=True)


main()
