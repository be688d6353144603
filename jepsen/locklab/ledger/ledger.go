package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"lockkeeper/jepsen"
)

// An Entry is the ledger's decision about one request in one of its books.
type Entry struct {
	At       time.Duration `json:"at"` // jepsen.Monotonic when it arrived
	Resource string        `json:"resource"`
	Rule     Rule          `json:"rule"`
	Write    bool          `json:"write,omitempty"` // else a read
	Holder   string        `json:"holder"`
	Token    uint64        `json:"token,omitempty"`
	// Base is the value that a write was made of, Before the value that it found.
	Base   int64 `json:"base"`
	Before int64 `json:"before"`
	// Refused is why it was refused; empty if it was not.
	Refused string `json:"refused,omitempty"`
	// Doubt says that the refusal is another error: the write may have happened. Only with Place.
	Doubt bool `json:"doubt,omitempty"`
}

// Lost says whether the entry is a write that undid an update: it was accepted, and made of a value
// that was no longer the newest.
func (e Entry) Lost() bool { return e.Write && e.Refused == "" && e.Before != e.Base }

// A Ledger serves on a port of the loopback interface.
type Ledger struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	ask     func(resource string, token uint64) error
	books   map[Rule]*book
	entries []Entry
	conns   map[net.Conn]struct{}
	closed  bool
}

// OpenLedger starts a ledger. All counters are 0.
func OpenLedger() (*Ledger, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l := &Ledger{listener: listener, books: make(map[Rule]*book), conns: make(map[net.Conn]struct{})}
	for _, rule := range Rules {
		l.books[rule] = newBook(rule)
	}
	l.running.Go(l.accept)
	return l, nil
}

// Addr is where it serves.
func (l *Ledger) Addr() string { return l.listener.Addr().String() }

// Ask sets the function that the book Asked calls with each request: an error refuses it. It is
// called by several goroutines. With nil there is no such book.
func (l *Ledger) Ask(f func(resource string, token uint64) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask = f
}

// Entries are the entries of a resource, in order of arrival.
func (l *Ledger) Entries(resource string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Entry
	for _, e := range l.entries {
		if e.Resource == resource {
			found = append(found, e)
		}
	}
	return found
}

// Forget drops the entries of a resource.
func (l *Ledger) Forget(resource string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = slices.DeleteFunc(l.entries, func(e Entry) bool { return e.Resource == resource })
}

// Close ends the ledger and its connections.
func (l *Ledger) Close() error {
	l.mu.Lock()
	l.closed = true
	err := l.listener.Close()
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
	return err
}

// accept serves every connection in a goroutine of its own.
func (l *Ledger) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // Close closes the listener
		}
		l.mu.Lock()
		if l.closed {
			_ = conn.Close()
		} else {
			l.conns[conn] = struct{}{}
			l.running.Go(func() { l.serve(conn) })
		}
		l.mu.Unlock()
	}
}

// request is one line from a client, reply one line to it. Bases and Values are by rule; a rule
// that refused a read has no value.
type request struct {
	Write    bool           `json:"write"`
	Resource string         `json:"resource"`
	Holder   string         `json:"holder"`
	Token    uint64         `json:"token"`
	Bases    map[Rule]int64 `json:"bases,omitempty"`
}

type reply struct {
	At     time.Duration  `json:"at"`
	Values map[Rule]int64 `json:"values"`
}

func (l *Ledger) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, conn)
	}()
	lines := json.NewDecoder(conn)
	answers := json.NewEncoder(conn)
	for {
		var r request
		if err := lines.Decode(&r); err != nil {
			return
		}
		// A dead client's request counts all the same: nobody waits for the answer.
		_ = answers.Encode(l.do(r))
	}
}

// do executes a request in all books: first in those that decide by themselves, and then in the one
// that asks, which may take its time.
func (l *Ledger) do(r request) reply {
	l.mu.Lock()
	answer := reply{At: jepsen.Monotonic(), Values: make(map[Rule]int64)}
	for _, rule := range Rules {
		if rule != Asked {
			l.enter(r, answer.At, rule, nil, answer)
		}
	}
	ask := l.ask
	l.mu.Unlock()
	if ask != nil {
		refused := ask(r.Resource, r.Token)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.enter(r, jepsen.Monotonic(), Asked, refused, answer)
	}
	return answer
}

// enter executes a request in a book, unless it is refused already.
func (l *Ledger) enter(r request, at time.Duration, rule Rule, refused error, answer reply) {
	e := Entry{At: at, Resource: r.Resource, Rule: rule, Write: r.Write, Holder: r.Holder, Token: r.Token}
	base, ok := r.Bases[rule]
	value := base + 1
	switch {
	case refused != nil:
	case !r.Write:
		e.Before, refused = l.books[rule].read(r.Resource, r.Token)
		value = e.Before
	case ok:
		e.Base = base
		e.Before, refused = l.books[rule].write(r.Resource, r.Token, base)
	default:
		refused = errors.New("its read was refused")
	}
	if refused == nil {
		answer.Values[rule] = value
	} else {
		e.Refused = refused.Error()
	}
	l.entries = append(l.entries, e)
}

// A Client is a holder's connection to a ledger, for one goroutine.
type Client struct {
	conn  net.Conn
	lines *bufio.Reader
}

// Dial connects to the ledger at an address.
func Dial(addr string) (*Client, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &Client{conn: conn, lines: bufio.NewReader(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Read returns the values, by rule, of the books that did not refuse the reader.
func (c *Client) Read(resource, holder string, token uint64) (map[Rule]int64, error) {
	if err := c.send(request{Resource: resource, Holder: holder, Token: token}); err != nil {
		return nil, err
	}
	return c.answer()
}

// Send writes values that are one more than those that were read, and does not wait for the answer.
func (c *Client) Send(resource, holder string, token uint64, bases map[Rule]int64) error {
	return c.send(request{Write: true, Resource: resource, Holder: holder, Token: token, Bases: bases})
}

// Write is Send with the answer: the values, by rule, of the books that did not refuse it.
func (c *Client) Write(resource, holder string, token uint64, bases map[Rule]int64) (map[Rule]int64, error) {
	if err := c.Send(resource, holder, token, bases); err != nil {
		return nil, err
	}
	return c.answer()
}

func (c *Client) send(r request) error {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

func (c *Client) answer() (map[Rule]int64, error) {
	line, err := c.lines.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return r.Values, nil
}
