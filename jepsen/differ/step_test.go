package differ

import (
	"slices"

	"lockkeeper/wire"
)

// Kind is the kind of a Step.
type Kind string

// The kinds of steps.
const (
	// Do sends requests on the slot's connection, all at once.
	Do Kind = ""
	// Connect opens a new session, if the slot has none.
	Connect Kind = "connect"
	// Drop closes the slot's connection. The session lives on.
	Drop Kind = "drop"
	// Attach makes a new connection for the slot's session. If there is still one, it is taken
	// over.
	Attach Kind = "attach"
	// Raw sends bytes on the slot's connection that need not be a frame, and waits for its end.
	Raw Kind = "raw"
	// Expire opens a session of its own with the shortest timeout, sends requests, drops the
	// connection and waits until the session has expired.
	Expire Kind = "expire"
	// Restart kills the servers and starts them on the same data. All connections end.
	Restart Kind = "restart"
)

// A Step is done to both servers before their answers are compared. A step that does not fit the
// state of its slot does nothing, so that any part of a sequence of steps is a sequence of steps.
type Step struct {
	// ID is the step's place in the sequence that was generated. Request.Since refers to it.
	ID   int
	Kind Kind
	Slot int
	// Requests of Do, and the requests of Connect, Attach and Expire right behind the handshake.
	Requests  []Request
	Handshake Handshake // of Connect and Attach
	Bytes     []byte    // of Raw
}

// Handshake is the connect request of a client.
type Handshake struct {
	TimeoutMs   int32
	ReadOnly    bool
	HasReadOnly bool
	Password    Password
	Zxid        LastZxid
	Foreign     bool // the id of a session that does not exist
	Tail        int  // number of extra bytes
}

// usualHandshake opens a session, or attaches to one, without anything unusual.
var usualHandshake = Handshake{TimeoutMs: sessionTimeoutMs, HasReadOnly: true}

// Password is which password an attaching client has. A connecting one sends something like it too.
type Password string

// The passwords.
const (
	RightPassword Password = ""
	WrongPassword Password = "wrong"
	ShortPassword Password = "short"
	NullPassword  Password = "null"
)

// LastZxid is which zxid a connecting client claims to have seen.
type LastZxid string

// The zxids.
const (
	SeenNothing LastZxid = ""
	SeenLast    LastZxid = "last"  // the last one that it can have seen
	SeenAhead   LastZxid = "ahead" // one more
)

// unordered says whether events of the step may come in any order: the ephemeral nodes of one
// session vanish together.
func (s *Step) unordered() bool {
	return s.Kind == Expire || slices.ContainsFunc(s.Requests,
		func(r Request) bool { return r.Op == wire.OpCloseSession })
}

// String is the step as a person would write it down.
func (s *Step) String() string {
	p := printer{}
	p.add("s%d %s", s.Slot, s.Kind)
	p.record(s.Handshake)
	if s.Kind == Raw {
		p.add(" %d bytes: %.40x", len(s.Bytes), s.Bytes)
	}
	for i, r := range s.Requests {
		if i > 0 || s.Kind != Do {
			p.add("\n     + ")
		}
		p.add("%v", r)
	}
	return p.text
}
