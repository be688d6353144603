package differ

import (
	"errors"
	"fmt"
	"strings"

	"lockkeeper/wire"
)

// Kind says what a Step does.
type Kind int

// The kinds of steps.
const (
	// Do sends requests on the slot's connection, all at once.
	Do Kind = iota
	// Connect opens a new session, if the slot has none.
	Connect
	// Drop closes the slot's connection. The session lives on.
	Drop
	// Attach makes a new connection for the slot's session. If there is still one, it is taken over.
	Attach
	// Raw sends bytes on the slot's connection that need not be a frame, and waits for its end.
	Raw
	// Expire opens a session of its own with the shortest timeout, sends requests, drops the
	// connection and waits until the session has expired.
	Expire
	// Restart kills the servers and starts them on the same data. All connections end.
	Restart
)

// A Step is what is done to both servers before their answers are compared. Steps that do not fit the state of
// their slot do nothing, so that any part of a sequence of steps is a sequence of steps.
type Step struct {
	// ID is the step's place in the sequence that was generated. Request.Since and Handshake.Zxid refer to it.
	ID   int
	Kind Kind
	Slot int
	// Requests of Do, and what Connect, Attach and Expire send right behind the handshake.
	Requests  []Request
	Handshake Handshake // of Connect and Attach
	Bytes     []byte    // of Raw
}

// Handshake is what a client says of itself when it connects.
type Handshake struct {
	TimeoutMs   int32
	ReadOnly    bool
	HasReadOnly bool
	Password    Password
	Zxid        LastZxid
	Foreign     bool // the id of a session that does not exist
	Tail        int  // so many bytes too many
}

// Password is which password an attaching client has. A connecting one sends something like it too.
type Password int

// The passwords.
const (
	RightPassword Password = iota
	WrongPassword
	ShortPassword
	NullPassword
)

// LastZxid is which zxid a connecting client claims to have seen.
type LastZxid int

// The zxids.
const (
	SeenNothing LastZxid = iota
	SeenLast             // the last one that it can have seen
	SeenAhead            // one more
)

// unordered says whether events of the step may come in any order: those of the ephemeral nodes of one
// session, which vanish together.
func (s *Step) unordered() bool {
	if s.Kind == Expire {
		return true
	}
	for i := range s.Requests {
		if s.Requests[i].Op == wire.OpCloseSession {
			return true
		}
	}
	return false
}

func isUnknown(err error) bool { return errors.Is(err, wire.ErrUnknownOp) }

// String is the step as a person would write it down.
func (s *Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "s%d ", s.Slot)
	switch s.Kind {
	case Do:
	case Connect, Attach:
		b.WriteString(map[Kind]string{Connect: "connect", Attach: "attach"}[s.Kind])
		b.WriteString(s.Handshake.text())
	case Drop:
		b.WriteString("drop")
	case Raw:
		fmt.Fprintf(&b, "raw %d bytes: %.40x", len(s.Bytes), s.Bytes)
	case Expire:
		b.WriteString("expire")
	case Restart:
		b.Reset()
		b.WriteString("restart")
	}
	for i := range s.Requests {
		if i > 0 || s.Kind != Do {
			b.WriteString("\n     + ")
		}
		b.WriteString(s.Requests[i].String())
	}
	return b.String()
}

func (h Handshake) text() string {
	t := fmt.Sprintf(" timeout=%d", h.TimeoutMs)
	if h.HasReadOnly {
		t += fmt.Sprintf(" readOnly=%v", h.ReadOnly)
	}
	t += map[Password]string{WrongPassword: " wrong password", ShortPassword: " short password", NullPassword: " null password"}[h.Password]
	t += map[LastZxid]string{SeenLast: " seen=last", SeenAhead: " seen=ahead"}[h.Zxid]
	if h.Foreign {
		t += " foreign session"
	}
	if h.Tail > 0 {
		t += fmt.Sprintf(" +%d bytes", h.Tail)
	}
	return t
}
