"""Fences: a resource refuses the late write of a holder that has lost its lock.

A fence remembers the largest token that it has seen for a resource, refuses a smaller one with
StaleError, and makes the check and the write one step. There is one for each place in which data
are: File, Table (PostgreSQL, MariaDB, MySQL, SQLite), Redis, Etcd and Objects (S3 and its kin). They
need no driver: a connection or a client is the caller's. The fences of Go (recipes/fence) and Java
(clients/java) have the same table, keys, objects and file, so programs of the three languages may
share a resource. README.md shows them, and docs/locks.md argues.

A name of a resource is a str. Bytes that are not UTF-8 are in it as with os.fsdecode.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import struct
import sys
import urllib.error
import urllib.parse
import urllib.request

try:
    import fcntl
except ImportError:  # Windows: there is no File
    fcntl = None

MAX_TOKEN = (1 << 63) - 1
_ATTEMPTS = 3
_OBJECT_ATTEMPTS = 20


class FenceError(Exception):
    """Any error of a fence of its own."""


class StaleError(FenceError):
    """A larger token has been seen. Nothing was written."""

    def __init__(self, resource, token, newest):
        super().__init__(f"token {token} for {resource!r} is stale: {newest} has been seen")
        self.resource, self.token, self.newest = resource, token, newest


class InvalidError(FenceError, ValueError):
    """A token that no lock has: it is below 1, or above 2**63 - 1."""


class DamagedError(FenceError):
    """The remembered token cannot be read. Nothing is accepted until an operator has looked at it."""


class ChangedError(FenceError):
    """An object is not the one that its ETag names."""


def _check(resource, token, newest):
    """The rule: tells whether token is to be remembered."""
    if isinstance(token, bool) or not isinstance(token, int) or not 1 <= token <= MAX_TOKEN:
        raise InvalidError(f"not a token: {token!r} for {resource!r}")
    if token < newest:
        raise StaleError(resource, token, newest)
    return token > newest


def _refusal(resource, token, newest, place):
    """The error for a token that a resource has refused; newest is the text that it remembers."""
    text = newest.decode("utf-8", "replace") if isinstance(newest, bytes) else str(newest)
    if re.fullmatch(r"[0-9]{1,19}", text) and token < int(text) <= MAX_TOKEN:
        return StaleError(resource, token, int(text))
    return DamagedError(f"damaged: {place} has {text[:40]!r}")


# --- A file

_HEAD = b"lockkeeper-fence 1\n"
_TAIL = b"crc32c "
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}
_UNESCAPES = {escape[1]: char for char, escape in _ESCAPES.items()}


def _bytes(name):
    return name.encode("utf-8", "surrogateescape")


def _quote(name):
    """Go's strconv.QuoteToASCII."""
    out = []
    for char in _bytes(name).decode("utf-8", "surrogateescape"):
        n = ord(char)
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif 0x20 <= n < 0x7F:
            out.append(char)
        elif n < 0x20 or n == 0x7F:
            out.append(f"\\x{n:02x}")
        elif 0xDC80 <= n <= 0xDCFF:  # a byte that is not UTF-8
            out.append(f"\\x{n - 0xDC00:02x}")
        else:
            out.append(f"\\u{n:04x}" if n < 0x10000 else f"\\U{n:08x}")
    return '"' + "".join(out) + '"'


_QUOTED = re.compile(r'"((?:[^"\\\n]|\\["\\abfnrtv]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})*)"')
_ESCAPE = re.compile(r"\\(?:x(..)|u(....)|U(........)|(.))")


def _unquote(text):
    match = _QUOTED.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:40]!r} is not quoted")

    def replace(m):
        byte, short, long, char = m.groups()
        if byte is not None:
            return bytes([int(byte, 16)]).decode("utf-8", "surrogateescape")
        return chr(int(short or long, 16)) if short or long else _UNESCAPES[char]

    name = _ESCAPE.sub(replace, match.group(1))
    return _bytes(name).decode("utf-8", "surrogateescape")


def _crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_CRC = _crc_table()


def _crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _tail(body):
    return _TAIL + b"%08x\n" % _crc32c(body)


def _encode(tokens):
    lines = [f"{tokens[name]} {_quote(name)}\n".encode() for name in sorted(tokens, key=_bytes)]
    body = _HEAD + b"".join(lines)
    return body + _tail(body)


def _decode(data):
    end = data.rfind(b"\n" + _TAIL) + 1
    if not data.startswith(_HEAD) or end == 0:
        raise ValueError("it does not begin or end as such a file does")
    if data[end:] != _tail(data[:end]):
        raise ValueError("the checksum is wrong")
    tokens = {}
    for line in data[len(_HEAD):end].decode("utf-8", "surrogateescape").split("\n")[:-1]:
        number, _, quoted = line.partition(" ")
        if not re.fullmatch(r"-?[0-9]{1,19}", number):
            raise ValueError(f"{number[:40]!r} is not a number")
        tokens[_unquote(quoted)] = int(number)
    return tokens


class File:
    """Remembers in a file that processes of one machine share. Any thread may use it.

    The file is the one of Go's fence.File: text with a checksum, replaced as a whole. A token is
    durable before it is accepted. A damaged file is never taken for an empty one. Beside it stands
    an empty file with ".lock" added to the name; do not delete it while a process runs.
    """

    def __init__(self, path):
        if fcntl is None:
            raise FenceError("File needs the locks of a Unix")
        self.path = os.fspath(path)
        self._durable = None
        self._read()

    def newest(self, resource):
        """The largest token seen; 0 if none."""
        return self._read()[0].get(resource, 0)

    def check(self, resource, token):
        """Accepts a token or refuses it."""
        with self.hold(resource, token):
            pass

    @contextlib.contextmanager
    def hold(self, resource, token):
        """Accepts a token for the block of a with statement. While the block runs every other check
        waits, in any process that uses the file, so the block's writes come in order."""
        with open(self.path + ".lock", "ab") as lock:
            _lock(lock)  # closing it unlocks
            tokens, data = self._read()
            larger = _check(resource, token, tokens.get(resource, 0))
            # A token that the file already has may not be durable: another process may have been
            # killed before it synced the directory.
            if larger or data != self._durable:
                tokens[resource] = token
                self._write(_encode(tokens))
            yield

    def _read(self):
        try:
            with open(self.path, "rb") as f:
                data = f.read()
        except FileNotFoundError:
            return {}, None
        try:
            return _decode(data), data
        except ValueError as e:
            raise DamagedError(f"damaged: {self.path}: {e}") from e

    def _write(self, data):
        self._durable = None
        temp = self.path + ".new"  # the lock is held: no other process writes to this name
        with contextlib.suppress(FileNotFoundError):
            os.remove(temp)
        with open(temp, "xb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.rename(temp, self.path)
        fd = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        self._durable = data


def _lock(file):
    """Locks an open file until it is closed. The lock excludes the ones of Go and of Java."""
    if hasattr(fcntl, "F_OFD_SETLKW"):
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.flock(file, fcntl.LOCK_EX)


# --- A table

_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class Table:
    """Remembers in a table of a database, through a DB-API connection: PostgreSQL, MariaDB, MySQL or
    SQLite. The table is the one of Go's fence.Table, whose documentation has the isolation levels.

    A Table has the connection's limits: most drivers' serve one thread at a time. The connection
    must not be in autocommit mode.
    """

    def __init__(self, connection, name="fence", paramstyle=None):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", name):
            raise FenceError(f"{name!r} is not the name of a table")
        if paramstyle is None:
            module = sys.modules[type(connection).__module__.partition(".")[0]]
            paramstyle = getattr(module, "paramstyle", None)
        if paramstyle not in _MARKS:
            raise FenceError(f"paramstyle {paramstyle!r} is none of {', '.join(_MARKS)}")
        self.connection, self.name, self._mark = connection, name, _MARKS[paramstyle]

    def create(self):
        """Makes the table if there is none. Fails if there is one that lacks a column."""
        with contextlib.closing(self.connection.cursor()) as cursor:
            # To databases other than MySQL and MariaDB the engine is a comment.
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self.name} (id VARCHAR(64) NOT NULL PRIMARY KEY, "
                           "resource VARCHAR(255) NOT NULL, token BIGINT NOT NULL, checks BIGINT NOT NULL) "
                           "/*! ENGINE=InnoDB */")
            cursor.execute(f"SELECT id, resource, token, checks FROM {self.name} WHERE 1 = 0")
            cursor.fetchall()
        self.connection.commit()

    @contextlib.contextmanager
    def hold(self, resource, token):
        """A transaction in which the token was accepted, for the block of a with statement: gives a
        cursor, commits at the end, and rolls back after an exception. The resource's row is locked
        until then. It begins a new transaction: changes that were not committed are rolled back."""
        cursor = self._begin(resource, token)
        try:
            yield cursor
        except BaseException:
            self.connection.rollback()
            raise
        finally:
            cursor.close()
        self.connection.commit()

    def _begin(self, resource, token):
        """A new transaction in which the token was accepted. A check that fails for no lasting reason
        (both insert the row of a new resource, say) is tried again."""
        if getattr(self.connection, "autocommit", False) is True or getattr(self.connection, "isolation_level", "") is None \
                and type(self.connection).__module__ == "sqlite3":
            raise FenceError("the connection is in autocommit mode: the check and the write would be two transactions")
        for attempt in range(_ATTEMPTS):
            self.connection.rollback()
            cursor = self.connection.cursor()
            try:
                self.check(cursor, resource, token)
                return cursor
            except BaseException as e:
                cursor.close()
                self.connection.rollback()
                if isinstance(e, FenceError) or not isinstance(e, Exception) or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("not reached")

    def check(self, cursor, resource, token):
        """Accepts a token or refuses it, within the caller's transaction, which has to be rolled back
        after an exception. An exception of the driver says nothing about the token.

        Invariant: it returns only after a statement of ours has changed the row, in this
        transaction. A row that was read is a snapshot's to some databases, and not locked."""
        _check(resource, token, 0)
        key = hashlib.sha256(_bytes(resource)).hexdigest()
        accept = "UPDATE {t} SET token = {m}, checks = checks + 1 WHERE id = {m} AND token <= {m}"
        if self._change(cursor, accept, token, key, token) == 1:
            return
        # There is no row, or one with a larger token. The database says for certain which, once the
        # row is locked.
        if self._change(cursor, "UPDATE {t} SET checks = checks + 1 WHERE id = {m}", key) == 0:
            display = _quote(resource)[1:-1].replace('\\"', '"')[:255]
            self._change(cursor, "INSERT INTO {t} (id, resource, token, checks) VALUES ({m}, {m}, {m}, 1)", key, display, token)
            return
        cursor.execute(self._text("SELECT token FROM {t} WHERE id = {m}"), (key,))
        newest = cursor.fetchone()[0]
        _check(resource, token, newest)
        # Another transaction has inserted the row meanwhile.
        if self._change(cursor, accept, token, key, token) != 1:
            raise RuntimeError(f"token {token} for {resource!r}: the database changed no row that has {newest}")

    def _text(self, statement):
        return statement.format(t=self.name, m=self._mark)

    def _change(self, cursor, statement, *args):
        """Executes a statement that changes one row, or none."""
        cursor.execute(self._text(statement), args)
        if cursor.rowcount not in (0, 1):
            raise RuntimeError(f"{statement}: the driver says that it changed {cursor.rowcount} rows")
        return cursor.rowcount


# --- Redis

# The same text in all languages; recipes/fence/redis.go has the reasons.
_SCRIPT = """local newest, token = redis.call('GET', KEYS[1]), ARGV[1]
if newest then
  if not string.match(newest, '^[1-9]%d*$') or #newest > 19 then return {-1, newest} end
  if #newest > #token or (#newest == #token and newest > token) then return {0, newest} end
end
if newest ~= token then redis.call('SET', KEYS[1], token) end
if ARGV[2] == '' then return {1} end
local command = {ARGV[2]}
for i = 2, #KEYS do command[#command + 1] = KEYS[i] end
for i = 3, #ARGV do command[#command + 1] = ARGV[i] end
return {1, redis.call(unpack(command))}
"""


class Redis:
    """Remembers in a key of a Redis server, and executes the write in the script that checks the
    token. client has the eval of redis-py: eval(script, number_of_keys, *keys_and_args). The key is
    the prefix and the resource's name; Go's fence.Redis says how durable that is."""

    def __init__(self, client, prefix="fence:"):
        self.client, self.prefix = client, prefix

    def check(self, resource, token):
        """Accepts a token or refuses it. A holder that reads before it writes begins with it."""
        self.do(resource, token, "", [])

    def do(self, resource, token, command, keys, *args):
        """Executes a command if the token is accepted, and returns its reply: command, keys and args
        in this order, as do("account", token, "SET", ["balance"], 10)."""
        _check(resource, token, 0)
        keys = [_bytes(self.prefix + resource), *keys]
        answer = self.client.eval(_SCRIPT, len(keys), *keys, str(token), command, *args)
        if int(answer[0]) == 1:
            return answer[1] if len(answer) > 1 else None
        raise _refusal(resource, token, answer[1], self.prefix + resource)


# --- HTTP, for etcd and S3

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def send(method, url, headers, body, timeout=30):
    """Sends a request, and returns (status, headers, body). Headers of the answer have names in lower
    case. Etcd and HTTPStore take another function in its place, which signs, say."""
    request = urllib.request.Request(url, data=body, headers=headers, method=method)
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, {k.lower(): v for k, v in e.headers.items()}, e.read()


class Etcd:
    """Remembers in a key of etcd, through the JSON gateway of every etcd server. The check and the
    writes are one transaction: the one that Go's fence.Etcd describes."""

    def __init__(self, url, send=send, prefix="fence/"):
        self.url, self.send, self.prefix = url.rstrip("/"), send, prefix

    def check(self, resource, token):
        """Accepts a token or refuses it. A holder that reads before it writes begins with it."""
        self.do(resource, token)

    def do(self, resource, token, put=None, delete=()):
        """Puts the keys of a dict and deletes those of a list, if the token is accepted. With an
        exception other than StaleError it may have been done, or may be done yet."""
        _check(resource, token, 0)

        def encode(value):
            return base64.b64encode(value if isinstance(value, bytes) else _bytes(value)).decode()

        key = encode(self.prefix + resource)
        accept = [{"requestPut": {"key": key, "value": encode(f"{token:019d}")}}]
        accept += [{"requestPut": {"key": encode(k), "value": encode(v)}} for k, v in (put or {}).items()]
        accept += [{"requestDeleteRange": {"key": encode(k)}} for k in delete]
        again = {"compare": [{"key": key, "target": "VALUE", "result": "LESS", "value": encode(f"{token + 1:019d}")},
                             {"key": key, "target": "VALUE", "result": "GREATER", "value": encode("0" * 19)}],
                 "success": accept, "failure": [{"requestRange": {"key": key}}]}
        first = {"compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "createRevision": "0"}],
                 "success": accept, "failure": [{"requestTxn": again}]}
        status, _, body = self.send("POST", self.url + "/v3/kv/txn", {"Content-Type": "application/json"},
                                    json.dumps(first).encode())
        if status != 200:
            raise OSError(f"etcd answers {status}: {body[:200]!r}")
        answer = json.loads(body)
        if answer.get("succeeded"):
            return
        inner = answer["responses"][0]["response_txn"]
        if inner.get("succeeded"):
            return
        value = inner["responses"][0]["response_range"]["kvs"][0].get("value", "")
        raise _refusal(resource, token, base64.b64decode(value), self.prefix + resource)


class HTTPStore:
    """A store of Objects that speaks S3's API over HTTP, without a signature: send signs, or the URL
    is of a server that needs none. url is the bucket's."""

    def __init__(self, url, send=send):
        self.url, self.send = url.rstrip("/"), send

    def _url(self, key):
        return self.url + "/" + urllib.parse.quote(_bytes(key), safe="/")

    def get(self, key):
        """(body, etag) of an object; None if there is none."""
        status, headers, body = self.send("GET", self._url(key), {}, None)
        if status == 404:
            return None
        if status != 200:
            raise OSError(f"get {key}: status {status}: {body[:200]!r}")
        return body, headers.get("etag", "")

    def put(self, key, body, etag):
        """Writes if the object has this ETag, or with None if there is none; else ChangedError."""
        headers = {"Content-Type": "application/octet-stream"}
        headers.update({"If-Match": etag} if etag else {"If-None-Match": "*"})
        status, _, answer = self.send("PUT", self._url(key), headers, body)
        if status in (409, 412) or status == 404 and etag:
            raise ChangedError(f"put {key}: the object has changed")
        if status not in (200, 201, 204):
            raise OSError(f"put {key}: status {status}: {answer[:200]!r}")

    def delete(self, key):
        """Deletes an object, if it is there."""
        status, _, body = self.send("DELETE", self._url(key), {}, None)
        if status // 100 != 2 and status != 404:
            raise OSError(f"delete {key}: status {status}: {body[:200]!r}")


class BotoStore:
    """A store of Objects over a client of boto3 whose put_object has IfMatch and IfNoneMatch (botocore
    1.35.69 or later; an earlier one refuses the parameters)."""

    def __init__(self, client, bucket):
        self.client, self.bucket = client, bucket

    def get(self, key):
        """(body, etag) of an object; None if there is none."""
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=key)
        except Exception as e:
            if _boto_code(e) in ("NoSuchKey", "404"):
                return None
            raise
        return answer["Body"].read(), answer["ETag"]

    def put(self, key, body, etag):
        """Writes if the object has this ETag, or with None if there is none; else ChangedError."""
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
        try:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, **condition)
        except Exception as e:
            code = _boto_code(e)
            if code in ("PreconditionFailed", "412", "ConditionalRequestConflict", "409") or etag and code in ("NoSuchKey", "404"):
                raise ChangedError(f"put {key}: the object has changed") from e
            raise

    def delete(self, key):
        """Deletes an object, if it is there."""
        self.client.delete_object(Bucket=self.bucket, Key=key)


def _boto_code(error):
    return getattr(error, "response", {}).get("Error", {}).get("Code")


class Objects:
    """Fences objects of a store with conditional writes: S3 and its kin. store is an HTTPStore, a
    BotoStore, or an object with their three methods.

    The token is in a sidecar, NAME.fence, which names the data and never has the same content twice:
    an ETag is the MD5 of the content, and comes again with it. Go's fence.Objects argues. It first
    probes the store with an object of this prefix: one that ignores conditions is an error.
    """

    def __init__(self, store, prefix=""):
        self.store = store
        key = prefix + "fence-probe-" + secrets.token_hex(8)
        try:
            store.put(key, key.encode(), None)
            for etag in None, '"00000000000000000000000000000000"':
                try:
                    store.put(key, key.encode(), etag)
                except ChangedError:
                    continue
                raise FenceError(f"the store writes {key} whatever the condition (If-Match, If-None-Match) says")
        finally:
            store.delete(key)

    def check(self, name, token):
        """Accepts a token or refuses it."""
        self._accept(name, token)

    def put(self, name, token, body):
        """Writes the object if the token is accepted. With an exception other than StaleError it may
        have been written, or may be written yet, but not after a larger token."""
        self._update(name, token, lambda data: body)

    def update(self, name, token, change):
        """Writes the result of change, which gets the object; None if there is none. If another write
        was accepted between the two, change is called again."""
        def changed(data):
            if data == "":
                return change(None)
            old = self.store.get(f"{name}.{data}")
            return None if old is None else change(old[0])

        self._update(name, token, changed)

    def get(self, name):
        """(object, token); (None, token) if there is none."""
        for _ in range(_OBJECT_ATTEMPTS):
            token, data, _ = self._read(name)
            if data == "":
                return None, token
            found = self.store.get(f"{name}.{data}")
            if found is not None:  # else a newer write has replaced it
                return found[0], token
        raise ChangedError(f"{name}.fence changes all the time")

    def _read(self, name):
        """(token, data, etag) of the sidecar; (0, "", None) if there is none."""
        found = self.store.get(name + ".fence")
        if found is None:
            return 0, "", None
        match = re.fullmatch(rb"lockkeeper-fence-object 1\ntoken ([0-9]{1,19})\ndata ([^\n]*)\nwrite [^\n]+\n", found[0])
        if match is None or not found[1] or not 1 <= int(match.group(1)) <= MAX_TOKEN:
            raise DamagedError(f"damaged: {name}.fence")
        return int(match.group(1)), match.group(2).decode(), found[1]

    def _replace(self, name, etag, token, data):
        """Writes the sidecar in the place of the one with this ETag. False: another write came first."""
        text = f"lockkeeper-fence-object 1\ntoken {token}\ndata {data}\nwrite {secrets.token_hex(8)}\n"
        try:
            self.store.put(name + ".fence", text.encode(), etag)
            return True
        except ChangedError:
            # Or it was this very write, of which a connection's loss has made two.
            return data != "" and self._read(name)[1] == data

    def _accept(self, name, token):
        _check(name, token, 0)
        for _ in range(_OBJECT_ATTEMPTS):
            newest, data, etag = self._read(name)
            if not _check(name, token, newest):
                return data, etag
            self._replace(name, etag, token, data)  # and read it, for its ETag
        raise ChangedError(f"{name}.fence changes all the time")

    def _update(self, name, token, change):
        for _ in range(_OBJECT_ATTEMPTS):
            old, etag = self._accept(name, token)
            body = change(old)
            if body is None:
                continue  # a newer write has replaced the old one
            data = f"{token}-{secrets.token_hex(8)}"
            self.store.put(f"{name}.{data}", body, None)
            done = self._replace(name, etag, token, data)  # after an exception the data stay: it may name them
            unused = old if done else data
            if unused:
                with contextlib.suppress(Exception):
                    self.store.delete(f"{name}.{unused}")  # nothing names it, and nothing will
            if done:
                return
        raise ChangedError(f"{name}.fence changes all the time")
