package attack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"lockkeeper/jepsen"
)

const (
	// userTimeout is the session timeout of lock users.
	userTimeout = 6 * time.Second
	// userPace is how often a lock user sets a node and gets it.
	userPace = 50 * time.Millisecond
	// retryPause is how long a lock user waits after a request that failed.
	retryPause = 10 * time.Millisecond
)

// A user is a bystander: an unmodified go-zookeeper client with all addresses, of which it takes
// its own member's first, that holds a lock and sets and gets a node again and again.
type user struct {
	name    string
	member  *jepsen.Member
	history *jepsen.History
	conn    *jepsen.GoClient
	server  string // to which it was connected when the attack began: a restart may have moved it
	session int64
	lock    string // the node that is its place at the front of the queue
	czxid   int64

	mu       sync.Mutex
	samples  []sample
	due      time.Time // of the operation that is under way, or next
	resting  bool
	awakened chan struct{} // closed when it need not rest any more
	stopped  chan struct{} // closed when it has ended
}

// A sample is one operation. It counts from the moment at which it was due, so that one operation
// that takes long does not hide those that it has kept waiting.
type sample struct {
	due  time.Time
	took time.Duration
}

// ownFirst is a zk.HostProvider that begins with one server and goes round.
type ownFirst struct {
	servers []string
	next    int
}

// Init implements zk.HostProvider. It is given the servers in any order.
func (h *ownFirst) Init([]string) error { return nil }

// Len implements zk.HostProvider.
func (h *ownFirst) Len() int { return len(h.servers) }

// Next implements zk.HostProvider.
func (h *ownFirst) Next() (server string, retryStart bool) {
	server = h.servers[h.next%len(h.servers)]
	h.next++
	return server, h.next%len(h.servers) == 0
}

// Connected implements zk.HostProvider.
func (h *ownFirst) Connected() {}

// startUser connects at member i of the cluster, takes a lock and begins. It ends with ctx.
func startUser(ctx context.Context, cluster *jepsen.Cluster, i int, history *jepsen.History) (*user, error) {
	members := cluster.Members()
	hosts := &ownFirst{}
	for j := range members {
		hosts.servers = append(hosts.servers, members[(i+j)%len(members)].ClientAddr)
	}
	u := &user{name: fmt.Sprintf("user%d", i+1), member: members[i], history: history, stopped: make(chan struct{})}
	var err error
	u.conn, _, err = jepsen.OpenGoClient(jepsen.GoClientConfig{
		Servers: hosts.servers, SessionTimeout: userTimeout, Hosts: hosts,
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, u.conn.Close) // which ends the operation that is under way
	if err := u.takeLock(ctx); err != nil {
		u.conn.Close()
		return nil, fmt.Errorf("attack: %s at %s: %w", u.name, u.member, err)
	}
	go u.run(ctx)
	return u, nil
}

// takeLock waits for the session and takes the lock.
func (u *user) takeLock(ctx context.Context) error {
	if err := u.conn.AwaitSession(ctx); err != nil {
		return err
	}
	acl := zk.WorldACL(zk.PermAll)
	if _, err := u.conn.Create(u.node(), nil, 0, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	path := u.node() + "-lock"
	if err := zk.NewLock(u.conn.Conn, path, acl).Lock(); err != nil {
		return err
	}
	queue, _, err := u.conn.Children(path)
	if err != nil {
		return err
	}
	slices.Sort(queue)
	u.lock = path + "/" + queue[0]
	_, stat, err := u.conn.Get(u.lock)
	if err != nil {
		return err
	}
	u.session, u.czxid = u.conn.SessionID(), stat.Czxid
	if stat.EphemeralOwner != u.session {
		return fmt.Errorf("the lock is held by session 0x%x", stat.EphemeralOwner)
	}
	return nil
}

func (u *user) node() string { return "/" + u.name }

// run does the operations.
func (u *user) run(ctx context.Context) {
	defer close(u.stopped)
	due := time.Now()
	for u.rest(ctx, &due) {
		u.op(ctx, "set", due, func() error {
			_, err := u.conn.Set(u.node(), []byte(u.name), -1)
			return err
		})
		u.op(ctx, "get", time.Now(), func() error {
			_, _, err := u.conn.Get(u.node())
			return err
		})
		due = due.Add(userPace)
	}
}

// rest waits until the next operation is due, and while the user is to rest.
func (u *user) rest(ctx context.Context, due *time.Time) bool {
	u.mu.Lock()
	u.due = *due
	awakened := u.awakened
	resting := u.resting
	u.mu.Unlock()
	if resting {
		select {
		case <-awakened:
			*due = time.Now()
		case <-ctx.Done():
			return false
		}
	}
	return jepsen.Sleep(ctx, time.Until(*due))
}

// op does one operation until it succeeds, and notes how long it took since it was due.
func (u *user) op(ctx context.Context, f string, due time.Time, do func() error) {
	u.history.Add(jepsen.Op{Worker: u.name, Kind: jepsen.Invoke, F: f, Member: u.member.String()})
	for do() != nil {
		if !jepsen.Sleep(ctx, retryPause) {
			return
		}
	}
	u.history.Add(jepsen.Op{Worker: u.name, Kind: jepsen.OK, F: f, Member: u.member.String()})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.samples = append(u.samples, sample{due, time.Since(due)})
}

// setResting has the user do nothing, or go on.
func (u *user) setResting(rests bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if rests && !u.resting {
		u.awakened = make(chan struct{})
	} else if !rests && u.resting {
		close(u.awakened)
	}
	u.resting = rests
}

// awaitCaughtUp waits until all that was due before t is done.
func (u *user) awaitCaughtUp(ctx context.Context, t time.Time) error {
	for {
		u.mu.Lock()
		due := u.due
		u.mu.Unlock()
		if due.After(t) {
			return nil
		}
		if !jepsen.Sleep(ctx, 5*time.Millisecond) {
			return fmt.Errorf("%s at %s waits since %.1f s", u.name, u.member, time.Since(due).Seconds())
		}
	}
}

// took is how long the operations took that were due between two moments. One that is not done
// counts with the time since it was due.
func (u *user) took(from, to time.Time) []time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []time.Duration
	for _, s := range u.samples {
		if !s.due.Before(from) && s.due.Before(to) {
			all = append(all, s.took)
		}
	}
	for due := u.due; due.Before(to); due = due.Add(userPace) {
		if !due.Before(from) {
			all = append(all, time.Since(due))
		}
	}
	return all
}

// lost says how the user has lost its session or its lock; nil: both are as they were. ask does the
// question.
func (u *user) lost() error {
	if now := u.conn.SessionID(); now != u.session {
		return fmt.Errorf("%s at %s has lost its session and its lock", u.name, u.member)
	}
	exists, stat, err := u.conn.Exists(u.lock)
	switch {
	case err != nil:
		return fmt.Errorf("%s at %s cannot see its lock: %w", u.name, u.member, err)
	case !exists || stat.Czxid != u.czxid:
		return fmt.Errorf("%s at %s has lost its lock", u.name, u.member)
	}
	return nil
}
