package recipes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// hosts picks the servers of a Session. It takes them in the order of another zk.HostProvider, in
// which a server that hung loses its next turn: it is tried again when the others have been. hosts
// also knows for how long a server may be waited for, and which addresses cannot be connected to.
type hosts struct {
	inner  zk.HostProvider
	lookup func(ctx context.Context, host string) ([]string, error) // nil: inner resolves names

	unresolved []error // of the names that could not be resolved; written by Init only

	mu     sync.Mutex
	names  map[string]string // host names by address, as far as resolve found them
	hung   map[string]bool   // addresses that lose their next turn
	hangs  int               // connections that hung since a handshake succeeded
	silent int               // replies waited for in vain since a write was answered soon
	failed map[string]error  // addresses to which the last attempt to connect failed
	news   chan struct{}     // closed and replaced when failed changes
	// misfits are why servers that can be connected to do no handshake; nil: not known. They are
	// looked for until there has been a session, which is not to wait for that.
	misfits map[string]error
	served  bool // there has been a session
}

func newHosts(inner zk.HostProvider) *hosts {
	h := &hosts{
		inner:   inner,
		names:   make(map[string]string),
		hung:    make(map[string]bool),
		failed:  make(map[string]error),
		misfits: make(map[string]error),
		news:    make(chan struct{}),
	}
	if inner == nil {
		h.inner, h.lookup = zk.NewDNSHostProvider(), net.DefaultResolver.LookupHost
	}
	return h
}

// lookupTimeout is how long each lookup of a name may take; it is go-zookeeper's, for all together.
// The lookups run at the same time.
const lookupTimeout = 3 * time.Second

// Init resolves the names, as zk.DNSHostProvider does, but remembers them: a server's certificate
// is for its name. A name that cannot be resolved is left out, as long as another one can be: the
// name of a member that is down may be unknown. An address that several names have counts once.
func (h *hosts) Init(servers []string) error {
	if h.lookup == nil {
		return h.inner.Init(servers)
	}
	found, err := h.lookupAll(servers)
	if err != nil {
		return err
	}
	var addresses []string
	for n, server := range servers {
		host, port, _ := net.SplitHostPort(server) // lookupAll has checked it
		for _, ip := range found[n] {
			address := net.JoinHostPort(ip, port)
			if _, known := h.names[address]; known {
				continue
			}
			h.names[address] = host
			addresses = append(addresses, address)
		}
	}
	if len(addresses) == 0 && len(h.unresolved) > 0 {
		return errors.Join(h.unresolved...)
	}
	return h.inner.Init(addresses)
}

// lookupAll resolves the names of the servers. It fails if a server is no host:port; the errors of
// lookups are in unresolved.
func (h *hosts) lookupAll(servers []string) (found [][]string, err error) {
	names := make([]string, len(servers))
	for n, server := range servers {
		if names[n], _, err = net.SplitHostPort(server); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	found, errs := make([][]string, len(servers)), make([]error, len(servers))
	var wg sync.WaitGroup
	for n, name := range names {
		wg.Go(func() { found[n], errs[n] = h.lookup(ctx, name) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			h.unresolved = append(h.unresolved, err)
		}
	}
	return found, nil
}

// Len is the number of addresses.
func (h *hosts) Len() int { return h.inner.Len() }

// Next is the next address to connect to.
func (h *hosts) Next() (address string, retryStart bool) {
	for range h.inner.Len() {
		address, again := h.inner.Next()
		retryStart = retryStart || again
		if !h.passOver(address) {
			return address, retryStart
		}
	}
	address, again := h.inner.Next() // all of them hung
	return address, retryStart || again
}

func (h *hosts) passOver(address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	hung := h.hung[address]
	delete(h.hung, address)
	return hung
}

// Connected is called by go-zookeeper after a handshake.
func (h *hosts) Connected() {
	h.mu.Lock()
	h.hangs = 0
	h.served = true
	h.mu.Unlock()
	h.inner.Connected()
}

// isHung takes note that a server did not answer in time.
func (h *hosts) isHung(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hung[address] = true
	h.hangs++
}

// isSilent takes note that a server did not reply in time to a request after the handshake.
func (h *hosts) isSilent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent++
}

// repliesSoon takes note that a write was answered within a third of the timeout.
func (h *hosts) repliesSoon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent = 0
}

// misfit is why a server does no handshake. find finds it out, once for each address: it connects.
func (h *hosts) misfit(address string, find func() error) error {
	h.mu.Lock()
	cause, known := h.misfits[address]
	served := h.served
	h.mu.Unlock()
	if known || served {
		return cause
	}
	cause = find()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.misfits[address] = cause
	return cause
}

// dialed takes note of how an attempt to connect ended.
func (h *hosts) dialed(address string, err error) {
	if isTimeout(err) {
		h.isHung(address)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed[address] = err
	} else {
		delete(h.failed, address)
	}
	close(h.news)
	h.news = make(chan struct{})
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// name is the host name of an address, as it was given to Connect.
func (h *hosts) name(address string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name, ok := h.names[address]; ok {
		return name
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// maxPatience is how long a server is waited for at first, however long the session timeout: a
// server that is well answers within milliseconds.
const maxPatience = 2 * time.Second

// patience is for how long a server may be waited for: from the start of connecting to the end of
// the handshake.
//
// A connection that falls silent is given up when a third of the session timeout is left, or
// earlier (see serverConn). Of n servers fewer than half may hang if the cluster is to serve at
// all, so that with timeout/n for each there is time to find one of the others: 2/3 + 1/n * (n-1)/2
// is more than 1 only if the one that the session comes from, which is tried last, is counted
// twice.
//
// Each time that every server has hung, which leaves no session to be saved, they get twice as
// long: a cluster may be slow.
func (h *hosts) patience(timeout time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := max(1, h.inner.Len())
	return min(timeout/3, timeout/time.Duration(n), maxPatience) << min(h.hangs/n, 4)
}

// replyPatience is for how long a reply is waited for after the handshake: a third of the session
// timeout, so that another server can save a grant. When every server has kept silent for so long,
// it is the cluster that is slow, and going from one to the next would never get an answer. Then it
// is two thirds, after which a grant is lost anyway, until a write is answered within a third
// again.
func (h *hosts) replyPatience(timeout time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent >= max(1, h.inner.Len()) {
		return timeout * 2 / 3
	}
	return timeout / 3
}

// unreachable says why no address can be connected to, or nil if one can be or has not been tried
// yet. news is closed at the next attempt.
func (h *hosts) unreachable() (news <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.failed) < h.inner.Len() {
		return h.news, nil
	}
	format, args := "%w: %w", []any{ErrUnreachable}
	for n, address := range slices.Sorted(maps.Keys(h.failed)) {
		if n > 0 {
			format += "; %w"
		}
		args = append(args, h.failed[address])
	}
	return h.news, fmt.Errorf(format, args...)
}
