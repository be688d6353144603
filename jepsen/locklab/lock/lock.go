package lock

import (
	"context"
	"time"
)

// A Way is one way to lock.
type Way struct {
	// Name is its name in tables and in the flag -ways, such as "redis-setnx".
	Name string
	// System is the name of the servers that it needs (package system), such as "redis-sentinel".
	System string
	// Fenced says that its grants carry tokens that grow from holder to holder.
	Fenced bool
	// Broken says that this is a planted twin with a bug that the lab has to find. Twins are no
	// rows of the table.
	Broken bool
	// Only is the one story that shows a twin's bug; empty if several do.
	Only string
	// Twin is the name of the way without a fence that this one differs from by one line; empty for
	// others.
	Twin string
	// Optimistic says that this way lets everybody in, and compares versions when data are written
	// that are in the system itself (Store).
	Optimistic bool
	// ClientClock says that the library reads the wall clock through the C library, so that the lab
	// can have it jump.
	ClientClock bool
	// Open connects a client.
	Open func(ctx context.Context, c Config) (Client, error)
	// Ask connects a resource that asks the servers who holds a lock; nil if they cannot tell. Only
	// if Fenced.
	Ask func(ctx context.Context, c Config) (Asker, error)
}

// Config is the configuration of a client.
type Config struct {
	// Servers are the addresses of the servers, host:port, in the order of the system's servers. A
	// client that the lab cuts off is given the addresses of proxies.
	Servers []string
	// Node names this client: its host and thread in the lock table, the field of Redisson's hash.
	Node string
	// Lease is for how long a lock outlives the last sign of life of its holder: the session
	// timeout, the TTL of a key, the age at which the clean-up job removes a row.
	Lease time.Duration
}

// A Client is one client's connection. It is used by one goroutine at a time.
type Client interface {
	// Lock waits until it holds the lock of the resource, or ctx ends. After an error nothing is
	// held, as far as this way can tell.
	Lock(ctx context.Context, resource string) (Held, error)
	// Close ends the connection as a program that exits in good order does.
	Close() error
}

// Held is a lock from the point of view of its holder.
type Held interface {
	// Token grows from holder to holder; 0 if this way has none.
	Token() uint64
	// Lost is closed when the library knows that the lock can no longer be relied on; nil if the
	// library never tells.
	Lost() <-chan struct{}
	// Unlock gives the lock back. An error says that it was not held any more, or that nobody
	// knows.
	Unlock(ctx context.Context) error
}

// A Looker is a Held with a look at the lock that is as good as the clock, also where Lost comes a
// moment later.
type Looker interface {
	Held
	Holds() bool
}

// A Store is a Held of a way with a system that also has the protected data, and can refuse a write
// by itself. Versions count the writes of the resource's data.
type Store interface {
	Held
	// Load returns the version of the data.
	Load(ctx context.Context) (version int64, err error)
	// Save writes data that were made of this version, and returns the version that it found. An
	// error says that nothing was written, or that nobody knows.
	Save(ctx context.Context, version int64) (found int64, err error)
}

// A Place is a real store with counters under a fence.
type Place struct {
	// Kind is "file", "sqlite", "mariadb", "postgresql", "redis", "etcd" or "objects".
	Kind string `json:"kind"`
	// At is a directory, host:port or a URL.
	At string `json:"at"`
}

// A Counter has a counter for each resource in a store, behind the fence of that store. It is used
// by several goroutines.
type Counter interface {
	// Read shows the token to the fence and returns the counter. The error is fence.ErrStale if the
	// fence refuses.
	Read(ctx context.Context, resource string, token int64) (int64, error)
	// Write writes the counter if the fence accepts the token. An error other than fence.ErrStale
	// says that nobody knows whether it was written.
	Write(ctx context.Context, resource string, token, count int64) error
}

// Counting is a Client whose library has fences of its own.
type Counting interface {
	Client
	Counter(Place) (Counter, error)
}

// An Asker asks the servers who holds a lock. It is used by several goroutines.
type Asker interface {
	// Holds returns an error unless the holder with this token holds the lock of the resource now.
	Holds(ctx context.Context, resource string, token uint64) error
	// Close ends the connection.
	Close() error
}

// ClientsEnv is the environment variable with the directory in which a client's process finds how
// to start the libraries of other languages: NAME.json, a jepsen.Client each.
const ClientsEnv = "LOCKLAB_CLIENTS"
