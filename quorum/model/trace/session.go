package trace

import (
	"fmt"
	"sort"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/model"
	"lockkeeper/wire"
)

// sessions are the sessions of the state, as all members execute the same commands.
type sessions struct {
	index uint64    // of the newest entry with a command that is taken over
	shown wire.Zxid // the newest that any client has seen
	all   map[wire.SessionID]*session
}

// session is what the events have shown of a session.
type session struct {
	// commands are those that took effect; known is false until one has been seen.
	commands model.Commands
	known    bool
	expired  bool
	// sent is the generation of the newest connection that was used, and until the moment at which
	// its client knows itself disconnected.
	sent  uint64
	until time.Duration
	conn  connection
}

func (s *sessions) get(id wire.SessionID) *session {
	x := s.all[id]
	if x == nil {
		x = new(session)
		s.all[id] = x
	}
	return x
}

// called is a request of a client. Connections of read-only mode have no generation by which one
// could be told from the next, so their replies are not compared with their requests.
func (s *sessions) called(e Event) {
	if x := s.get(e.Session); x.follow(e) && e.Generation > 0 {
		x.conn.called(call{*e.Call, s.shown})
	}
}

// follow takes the connection of an event for the session's, if it is not an older one: the client
// of that has left it, and knows that.
func (x *session) follow(e Event) bool {
	if e.Generation < x.sent || x.known && e.Generation < x.commands.Generation {
		return false
	}
	if e.Generation > x.sent {
		x.until, x.conn = 0, connection{}
	}
	x.sent, x.conn.on = e.Generation, e.On
	return true
}

// told is bytes that a member sends to the client of a session.
func (s *sessions) told(e Event, history nodes) error {
	for _, f := range e.Frames {
		s.shown = max(s.shown, f.Zxid)
	}
	x := s.get(e.Session)
	if !x.follow(e) {
		return nil
	}
	if x.expired && e.Generation == x.commands.Generation {
		return fmt.Errorf("session %v has ended (docs/decisions/002: its member is silent)", e.Session)
	}
	x.until = max(x.until, e.At+e.Belief)
	for _, f := range e.Frames {
		if err := x.conn.send(f); err != nil {
			return err
		}
		if e.Generation == 0 {
			continue
		}
		if err := x.conn.answer(f, history); err != nil {
			return err
		}
	}
	return nil
}

// replaced is the replacement of a member's state, which had the zxid had as far as is known.
func (s *sessions) replaced(on raft.ServerID, had, by wire.Zxid) {
	for _, x := range s.all {
		if x.conn.on == on && max(had, x.conn.zxid) < by {
			x.conn.replaced = by
		}
	}
}

// execute is a command that took effect. ended is the moment at which a majority had its entry.
func (s *sessions) execute(c Command, ended time.Duration) error {
	if c.Deed == "" {
		return nil
	}
	x := s.get(c.Session)
	switch c.Deed {
	case Attached:
		*x = session{known: true, commands: model.Commands{Generation: c.Generation}, sent: x.sent, until: x.until,
			conn: x.conn}
		if c.Generation > x.sent {
			x.sent, x.until, x.conn = c.Generation, 0, connection{}
		}
	case Expired:
		if x.known && c.Generation != x.commands.Generation {
			return fmt.Errorf("session %v ends with its connection %d, and has connection %d (C7)",
				c.Session, c.Generation, x.commands.Generation)
		}
		if x.expired {
			return fmt.Errorf("session %v has ended before, and ends again (C7: its end is one command)", c.Session)
		}
		x.expired, x.known, x.commands.Generation = true, true, c.Generation
		if x.sent == c.Generation && x.until > ended {
			return fmt.Errorf("session %v ended at %v, and its client believes in it until %v "+
				"(docs/decisions/002, the arithmetic)", c.Session, ended, x.until)
		}
	case Reset:
		for _, x := range s.all { // the connections have their last replies
			*x = session{sent: x.sent, conn: connection{on: x.conn.on, calls: x.conn.calls}}
		}
		s.shown = 0
	case Wrote, Closed:
		if turn := x.commands.Turn(c.Generation, c.Seq); x.known && c.Seq > 0 && turn != model.Next {
			return fmt.Errorf("session %v executes command %d of connection %d behind command %d of connection %d "+
				"(C2, C5: each once, in order, of the newest connection)", c.Session, c.Seq, c.Generation,
				x.commands.Seq, x.commands.Generation)
		}
		x.known, x.commands = true, model.Commands{Generation: c.Generation, Seq: c.Seq}
		if c.Deed == Closed { // its connection has the last replies
			*x = session{sent: x.sent, conn: x.conn}
		}
	}
	return nil
}

// committing is the moments at which the commit index moved, the oldest first.
type committing []commit

type commit struct {
	index uint64
	at    time.Duration
}

// at is the moment at which the entry at an index was committed; or, if no majority that the events
// have shown holds it.
func (c committing) at(index uint64, or time.Duration) time.Duration {
	if rest := c.behind(index - 1); len(rest) > 0 {
		return rest[0].at
	}
	return or
}

// behind is the moments for the entries behind an index.
func (c committing) behind(index uint64) committing {
	return c[sort.Search(len(c), func(i int) bool { return c[i].index > index }):]
}
