package trace

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/model"
	"lockkeeper/wire"
)

// Kind is the kind of an event.
type Kind string

// The kinds. The fields of Event that each has are in parentheses, beside At, On and Kind.
const (
	// Started: a process has opened the disk, and found this on it (Term, VoteTerm, Of, First,
	// Last, Snapshot; Entries has the entry 1 if it is there), and has this configuration file
	// (Lines).
	Started Kind = "start"
	// SetBack: the disk was exchanged for an earlier image of itself, while no process used it.
	SetBack Kind = "set back"
	// Damaged: bytes of the disk were changed, while no process used it.
	Damaged Kind = "damage"
	// Unreadable: a process could not open the disk, because of its content.
	Unreadable Kind = "unreadable"
	// SavedTerm: the term is durable (Term).
	SavedTerm Kind = "term"
	// SavedVote: the vote is durable (Term, Of).
	SavedVote Kind = "vote"
	// Stored: entries are durable in the log (Entries).
	Stored Kind = "store"
	// Removed: entries were removed from the log, at its beginning or its end (First, Last.Index).
	Removed Kind = "remove"
	// Asked: a request of another member has arrived (Number, Request, Term, Of, Last, Entries).
	Asked Kind = "ask"
	// Answered: the request is about to be answered (Number, Term, OK).
	Answered Kind = "answer"
	// Applied: the state has the entry (Last, Commands: all since the event before).
	Applied Kind = "apply"
	// Restored: a snapshot that a leader has sent has replaced the state (Zxid).
	Restored Kind = "restore"
	// Called: a request of a client is about to be taken (Session, Generation, Call).
	Called Kind = "call"
	// Sent: bytes leave for the client of a session (Session, Generation, Belief, Frames).
	Sent Kind = "send"
)

// Request is the kind of a request of raft.
type Request string

// The requests. Others are not recorded: they promise nothing.
const (
	Append  Request = "append"  // Last is the entry before Entries
	Vote    Request = "vote"    // Last is the candidate's last entry
	Install Request = "install" // Last is the snapshot's last entry
)

// Place is where a leader has put an entry. There is one entry at a place.
type Place model.Place

func (p Place) String() string { return model.Place(p).String() }

// upToDate reports whether a voter with the last entry p may vote for a candidate with the last
// entry of (Raft, section 5.4.1).
func (p Place) upToDate(of Place) bool { return model.Place(p).UpToDate(model.Place(of)) }

// Entry is an entry of a log.
type Entry struct {
	Place
	Digest uint64 `json:"digest"` // of its type and content
	// Voters are the voters from here on; nil in an entry that does not change the members.
	Voters []raft.ServerID `json:"voters,omitempty"`
}

// Deed is the effect of a command on its session.
type Deed string

// The deeds.
const (
	Wrote    Deed = "write"  // the session's next request, whether it succeeded or not
	Attached Deed = "attach" // a new session, or a new connection (Generation) of an old one
	Closed   Deed = "close"  // by its client with its last request, or by an operator
	Expired  Deed = "expire" // the session was silent for too long
	Reset    Deed = "reset"  // another state, with other sessions, has replaced this one
)

// Command is a command that took effect on a session or on nodes when the state executed it. A
// command that the state refuses, or knows, is none.
type Command struct {
	Index      uint64         `json:"index"`          // of its entry
	Deed       Deed           `json:"deed,omitempty"` // empty: none on a session
	Session    wire.SessionID `json:"session,omitempty"`
	Generation uint64         `json:"generation,omitempty"`
	Seq        uint64         `json:"seq,omitempty"`  // of a request
	Zxid       wire.Zxid      `json:"zxid,omitempty"` // of the state after it
	// Changed: it has created, changed or deleted nodes.
	Changed bool     `json:"changed,omitempty"`
	Changes []Change `json:"changes,omitempty"`
	Result  uint64   `json:"result,omitempty"` // a digest of its effects and its answer
	// MtimeMs is the time that it has given to the node of its answer, EntryMs the time of its
	// entry, in milliseconds since 1970; 0: it has given none, or its entry is compacted.
	MtimeMs int64 `json:"mtimeMs,omitempty"`
	EntryMs int64 `json:"entryMs,omitempty"`
	// Lines are the members that a leader takes over from its configuration file, as peer.Sum; 0:
	// it is no such command.
	Lines uint32 `json:"lines,omitempty"`
}

// Change is a change of a node that everybody may read. A later change of its ACL is none.
type Change struct {
	Type wire.EventType `json:"type"`
	Path string         `json:"path"`
}

// Call is a request of a client. Pings, which may be answered before their turn, are not recorded,
// nor are requests with a number that marks the server's own frames, which no library uses.
type Call struct {
	Xid wire.Xid `json:"xid"`
	Op  wire.Op  `json:"op"`
	// Watches are those that setWatches and setWatches2 set; nil for other operations, and in a
	// request that cannot be decoded.
	Watches *wire.SetWatchesRequest `json:"watches,omitempty"`
}

// Frame is a reply, or a notification, in the bytes for a client.
type Frame struct {
	Xid  wire.Xid  `json:"xid"`
	Zxid wire.Zxid `json:"zxid"`           // of its header
	Code wire.Code `json:"code,omitempty"` // of a reply
	// Change is what a notification tells.
	Change Change `json:"change,omitzero"`
}

// String is the frame as words: xid, zxid, and its error or its event.
func (f Frame) String() string {
	text := fmt.Sprint(f.Xid, " ", f.Zxid)
	if f.Code != wire.CodeOK {
		text += fmt.Sprint(" ", f.Code)
	}
	if f.Change != (Change{}) {
		text += fmt.Sprint(" ", f.Change.Type, " ", f.Change.Path)
	}
	return text
}

// Event is something that a member did.
type Event struct {
	At   time.Duration `json:"at"` // by a clock that all members have in common
	On   raft.ServerID `json:"on"` // the member with its disk
	Kind Kind          `json:"kind"`

	Term     uint64        `json:"term,omitempty"`
	VoteTerm uint64        `json:"voteTerm,omitempty"`
	Of       raft.ServerID `json:"of,omitempty"` // who gets the vote, or who asks
	First    uint64        `json:"first,omitempty"`
	Last     Place         `json:"last"`
	Snapshot Place         `json:"snapshot"`
	Entries  []Entry       `json:"entries,omitempty"`
	Lines    uint32        `json:"lines,omitempty"`  // the members in the file, as peer.Sum
	Number   uint64        `json:"number,omitempty"` // joins an answer with its request
	Request  Request       `json:"request,omitempty"`
	OK       bool          `json:"ok,omitempty"` // the vote was given, or the entries are stored

	Commands   []Command      `json:"commands,omitempty"`
	Session    wire.SessionID `json:"session,omitempty"`
	Generation uint64         `json:"generation,omitempty"` // of the session's connection
	// Belief is for how long the client believes itself connected from now, if the bytes take as
	// long as they may (docs/decisions/002-leases-that-silence-a-member.md).
	Belief time.Duration `json:"belief,omitempty"`
	Call   *Call         `json:"call,omitempty"`
	// Frames are the frames that end in the bytes. Bytes that are sent again, because the
	// connection did not take them, have none.
	Frames []Frame   `json:"frames,omitempty"`
	Zxid   wire.Zxid `json:"zxid,omitempty"` // of the state
}

// words are a text, to which the fields that an event has are added.
type words struct{ strings.Builder }

func (b *words) add(name string, has bool, v any) {
	if has {
		fmt.Fprintf(b, " %s %v", name, v)
	}
}

// String is the command as words.
func (c Command) String() string {
	var b words
	fmt.Fprint(&b, c.Index)
	b.add(string(c.Deed), c.Deed != "", c.Session)
	b.add("generation", c.Generation > 0, c.Generation)
	b.add("seq", c.Seq > 0, c.Seq)
	b.add("zxid", true, c.Zxid)
	b.add("changes", c.Changed, c.Changes)
	b.add("mtime", c.MtimeMs > 0, c.MtimeMs)
	b.add("time", c.EntryMs > 0, c.EntryMs)
	b.add("lines", c.Lines > 0, c.Lines)
	b.add("result", true, c.Result)
	return b.String()
}

// String is the event as a line.
func (e Event) String() string {
	var b words
	fmt.Fprintf(&b, "%v %s %s", e.At, e.On, e.Kind)
	word := b.add
	word("#", e.Number > 0, e.Number)
	word("request", e.Request != "", e.Request)
	word("term", e.Term > 0, e.Term)
	word("vote term", e.VoteTerm > 0, e.VoteTerm)
	word("of", e.Of != "", e.Of)
	word("first", e.First > 0, e.First)
	word("last", e.Last.Index > 0, e.Last)
	word("snapshot", e.Snapshot.Index > 0, e.Snapshot)
	if n := len(e.Entries); n > 0 {
		fmt.Fprintf(&b, " entries %v to %v", e.Entries[0].Place, e.Entries[n-1].Place)
		for _, x := range e.Entries {
			word("voters", x.Voters != nil, x.Voters)
		}
	}
	word("lines", e.Lines > 0, e.Lines)
	word("ok", e.OK, true)
	word("commands", len(e.Commands) > 0, e.Commands)
	word("session", e.Session != 0, e.Session)
	word("generation", e.Generation > 0, e.Generation)
	word("belief", e.Belief > 0, e.Belief)
	if e.Call != nil {
		fmt.Fprintf(&b, " %v %d", e.Call.Op, e.Call.Xid)
		word("watches", e.Call.Watches != nil, e.Call.Watches)
	}
	word("frames", len(e.Frames) > 0, e.Frames)
	word("zxid", e.Zxid > 0, e.Zxid)
	return b.String()
}
