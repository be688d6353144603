package system

import (
	"context"
	"errors"
	"time"

	"lockkeeper/jepsen"
)

// ErrClock is the error of a server without a wall clock that can be set from outside.
var ErrClock = errors.New("the wall clock of this server cannot be set")

// A Kind is a kind of system that can be started.
type Kind struct {
	// Name is its name in the ways and in the flag -systems: "redis", "redis-sentinel", "redis-3",
	// "redis-5", "mariadb", "mariadb-replica", "postgresql", "etcd", "zookeeper", "lockkeeper".
	Name string
	// Needs returns an error that names the Debian package if something is not installed.
	Needs func() error
	// Start starts the servers and returns when they serve. Ports are free ones.
	Start func(ctx context.Context, site Site) (System, error)
	// Cuts are the possible sizes of the two sides of a cut, with the site's Places; none if the
	// system has but one server, or is another size of a kind that has them.
	Cuts [][2]int
}

// A Site is where a system is started.
type Site struct {
	// Dir, an empty directory, is for data and logs.
	Dir string
	// Lease is the lease for the servers' settings (the least session timeout); 0 for none.
	Lease time.Duration
	// Places are a place for each server, with links to the others that can be cut; with none all
	// servers, as many as the kind has, are on the loopback interface.
	Places []jepsen.Place
}

// size is the number of servers to start, if the kind has n.
func (s Site) size(n int) int {
	if s.Places != nil {
		return len(s.Places)
	}
	return n
}

// place is where the server with this index runs.
func (s Site) place(i int) jepsen.Place {
	if s.Places != nil {
		return s.Places[i]
	}
	return jepsen.Place{ClientHost: "127.0.0.1", PeerHost: "127.0.0.1"}
}

// A System is a set of servers that runs.
type System interface {
	// Servers are its servers. Their number and order never change; those that clients are given
	// the addresses of come first.
	Servers() []Server
	// Primary is the index in Servers of the one that takes writes now (primary, leader), or an
	// error if there is none.
	Primary(ctx context.Context) (int, error)
	// Failover makes a replica the primary, as the system's own operator or sentinel does after
	// the primary's death, and returns when it serves. Systems that do it by themselves wait for
	// it.
	Failover(ctx context.Context) error
	// Requests is the number of clients' requests that all servers have answered since they
	// started, for the cost of one acquisition; -1 if nothing counts them.
	Requests(ctx context.Context) int64
	// Close kills everything that was started.
	Close() error
}

// A Server is one process of a system. Its data survive Kill and Start.
type Server interface {
	Name() string // "redis-1"
	Addr() string // host:port for clients
	Data() string // the directory with its data
	Pause() error // SIGSTOP
	Resume() error
	Kill() error
	Start(ctx context.Context) error // after Kill; returns when it serves
	// SetClock makes its wall clock differ from the machine's by so much; ErrClock if that is not
	// possible. The monotonic clock goes on as it is.
	SetClock(ahead time.Duration) error
}
