package raftnet

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/znode"
)

// requestChecker validates the requests of other members before raft or the disk see them. The
// library (UPSTREAM.md, 5) believes its peers: it panics on a configuration that it cannot decode,
// after it has stored it, and accepts every term. A member of this version never sends a request
// that is refused here, so the stream is closed.
//
// It does not authenticate the sender: a process that passes for a member (peer.Port) can still
// send every request of a member.
type requestChecker struct {
	local Local
	terms termBudget
}

// requestErrorf is an ErrRefused that says why.
func requestErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: a request that no member sends: %s", peer.ErrRefused, fmt.Sprintf(format, args...))
}

// check validates a request that a server has sent. Errors: ErrRefused.
func (c *requestChecker) check(from raft.ServerID, req any) error {
	if err := checkRequest(from, req); err != nil {
		return err
	}
	switch q := req.(type) {
	case *raft.AppendEntriesRequest:
		if err := c.checkTerm(q.Term); err != nil {
			return err
		}
		return c.checkConfigurations(q)
	case *raft.RequestVoteRequest:
		return c.checkTerm(q.Term)
	case *raft.RequestPreVoteRequest:
		return c.checkTerm(q.Term)
	case *raft.InstallSnapshotRequest:
		return c.checkTerm(q.Term)
	case *raft.TimeoutNowRequest:
		if leader := c.local.Leader(); leader != from {
			return requestErrorf("server %s requests an election, and %s leads", from, leader)
		}
	}
	return nil
}

// checkTerm refuses a term that elections cannot have reached.
func (c *requestChecker) checkTerm(term uint64) error {
	now := c.local.Term()
	if limit := c.terms.limit(now, time.Now()); term > limit {
		return requestErrorf("term %d: this member is at %d, and accepts at most %d now", term, now, limit)
	}
	return nil
}

// A term is the upper half of zxids, which are signed.
const maxTerm = 1<<31 - 1

const (
	// termBurst is the most by which a term may exceed the member's own. It bounds the elections
	// that a member may have missed, each of which counts one: with pre-vote a member that is
	// cut off does not raise its term, and the end of a leader's process, or a transfer, raises it
	// once. A million are six days of an election each half a second, the shortest that an election
	// timeout can be.
	termBurst = 1 << 20
	// termsPerSecond is how fast terms may rise in the long run. It is several times as fast as
	// elections can follow each other, so a member that has missed more than termBurst of them is
	// behind for a while, and not for ever. At this speed maxTerm is reached after seven years.
	termsPerSecond = 10
)

// termBudget is by how much the term may still rise. Elections that this member itself holds count
// too.
type termBudget struct {
	mu   sync.Mutex
	seen uint64 // the term up to which it is accounted for
	left float64
	at   time.Time // when left was true; zero at the beginning
}

// limit is the highest term to be accepted from others by a member that is at term.
func (b *termBudget) limit(term uint64, now time.Time) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() {
		b.seen, b.left, b.at = term, termBurst, now
	}
	b.left = min(termBurst, b.left+termsPerSecond*now.Sub(b.at).Seconds())
	b.at = now
	if term > b.seen {
		b.left = max(0, b.left-float64(term-b.seen))
		b.seen = term
	}
	return min(term+uint64(b.left), maxTerm)
}

// checkRequest checks what needs no knowledge of this member.
func checkRequest(from raft.ServerID, req any) error {
	header := req.(raft.WithRPCHeader).GetRPCHeader()
	_, bare := req.(*raft.TimeoutNowRequest) // timeoutNow names nobody
	switch id := string(from); {
	case header.ProtocolVersion != raft.ProtocolVersionMax:
		return requestErrorf("version %d of raft's protocol", header.ProtocolVersion)
	case bare && len(header.ID) == 0 && len(header.Addr) == 0:
	case string(header.ID) != id || string(header.Addr) != id:
		return requestErrorf("on the stream of server %s it is of %.40q at %.40q", from, header.ID, header.Addr)
	}
	switch q := req.(type) {
	case *raft.AppendEntriesRequest:
		return checkAppend(q)
	case *raft.RequestVoteRequest:
		return checkCandidate(q.Term, q.LastLogIndex, q.LastLogTerm)
	case *raft.RequestPreVoteRequest:
		return checkCandidate(q.Term, q.LastLogIndex, q.LastLogTerm)
	case *raft.InstallSnapshotRequest:
		return checkSnapshotRequest(q)
	case *raft.TimeoutNowRequest:
		return nil
	}
	return requestErrorf("%T", req)
}

func checkCandidate(term, lastIndex, lastTerm uint64) error {
	if term == 0 || lastTerm >= term || (lastIndex == 0) != (lastTerm == 0) {
		return requestErrorf("a candidate of term %d whose log ends with entry %d of term %d", term, lastIndex,
			lastTerm)
	}
	return nil
}

// checkAppend checks the indexes and terms of a leader's entries, and their contents.
func checkAppend(q *raft.AppendEntriesRequest) error {
	switch {
	case q.Term == 0 || q.PrevLogTerm > q.Term || (q.PrevLogEntry == 0) != (q.PrevLogTerm == 0):
		return requestErrorf("a leader of term %d whose entries follow entry %d of term %d", q.Term, q.PrevLogEntry,
			q.PrevLogTerm)
	case len(q.Entries) > MaxAppendEntries:
		return requestErrorf("%d entries at once", len(q.Entries))
	case q.PrevLogEntry == 0 && len(q.Entries) == 0 && q.LeaderCommitIndex > 0:
		// The library would commit all that is in the log here, whether it is the leader's or not.
		return requestErrorf("a commit of entry %d of a log that is not compared", q.LeaderCommitIndex)
	}
	index, term := q.PrevLogEntry, q.PrevLogTerm
	for _, e := range q.Entries {
		if e.Index != index+1 || e.Term < max(term, 1) || e.Term > q.Term {
			return requestErrorf("entry %d of term %d after entry %d of term %d, from a leader of term %d", e.Index,
				e.Term, index, term, q.Term)
		}
		index, term = e.Index, e.Term
		if err := checkEntry(e); err != nil {
			return requestErrorf("entry %d of term %d: %v", e.Index, e.Term, err)
		}
	}
	return nil
}

// checkEntry checks the contents of an entry.
func checkEntry(e *raft.Log) error {
	if len(e.Extensions) > 0 {
		return errors.New("it has extensions")
	}
	switch e.Type {
	case raft.LogCommand:
		return znode.CheckEntry(e.Data)
	case raft.LogNoop, raft.LogBarrier:
		if len(e.Data) > 0 {
			return fmt.Errorf("type %v with %d bytes of data", e.Type, len(e.Data))
		}
		return nil
	case raft.LogConfiguration:
		_, err := decodeConfiguration(e.Data)
		return err
	}
	return fmt.Errorf("unknown type %d", e.Type)
}

func checkSnapshotRequest(q *raft.InstallSnapshotRequest) error {
	switch {
	case q.SnapshotVersion != raft.SnapshotVersionMax:
		return requestErrorf("version %d of snapshots", q.SnapshotVersion)
	case q.Term == 0 || q.LastLogTerm == 0 || q.LastLogTerm > q.Term || q.LastLogIndex == 0:
		return requestErrorf("a leader of term %d with a snapshot up to entry %d of term %d", q.Term, q.LastLogIndex,
			q.LastLogTerm)
	case q.ConfigurationIndex == 0 || q.ConfigurationIndex > q.LastLogIndex:
		return requestErrorf("a snapshot up to entry %d with the configuration of entry %d", q.LastLogIndex,
			q.ConfigurationIndex)
	case q.Size <= 0:
		return requestErrorf("a snapshot of %d bytes", q.Size)
	}
	if _, err := decodeConfiguration(q.Configuration); err != nil {
		return requestErrorf("snapshot up to entry %d: %v", q.LastLogIndex, err)
	}
	return nil
}

const (
	// maxConfigurationBytes is far more than a configuration of all numbers has.
	maxConfigurationBytes = 128 << 10
	maxServerAddrBytes    = 300
)

// decodeConfiguration decodes the servers that raft is to count, and refuses all but a
// configuration of a cluster, or of the member that stood alone before there was one. The library's
// decoder panics.
func decodeConfiguration(b []byte) (conf raft.Configuration, err error) {
	if len(b) == 0 || len(b) > maxConfigurationBytes {
		return conf, fmt.Errorf("a configuration of %d bytes", len(b))
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a configuration that cannot be decoded: %v", p)
		}
	}()
	conf = raft.DecodeConfiguration(b)
	ids, addrs, voters := map[raft.ServerID]bool{}, map[raft.ServerAddress]bool{}, map[peer.MemberID]bool{}
	for _, s := range conf.Servers {
		member, _, ok := ParseServer(s.ID)
		switch {
		case !ok:
			return conf, fmt.Errorf("a configuration with the member %.40q", s.ID)
		case s.Suffrage != raft.Voter && s.Suffrage != raft.Nonvoter:
			return conf, fmt.Errorf("a configuration with the suffrage %d", s.Suffrage)
		case s.Address == "" || s.Address == AloneAddr && len(conf.Servers) > 1 || len(s.Address) > maxServerAddrBytes:
			return conf, fmt.Errorf("a configuration with the address %.40q", s.Address)
		case ids[s.ID] || addrs[s.Address]:
			return conf, fmt.Errorf("a configuration with server %s, or its address, twice", s.ID)
		case s.Suffrage == raft.Voter && voters[member]:
			return conf, fmt.Errorf("a configuration with two votes of member %d", member)
		}
		ids[s.ID], addrs[s.Address] = true, true
		if s.Suffrage == raft.Voter {
			voters[member] = true
		}
	}
	if len(voters) == 0 {
		return conf, errors.New("a configuration without a voter")
	}
	return conf, nil
}

// checkConfigurations refuses configurations that do not follow the one before: raft changes one
// member at a time. Only entries that are new here are compared. If the entries before them do not
// match this member's log, raft refuses them all, and has to answer the leader so.
//
// If the entries replace some that are here, the newest configuration may be among those: it was
// never committed, and the one before it counts, which is one step away from it. So two steps are
// allowed then.
func (c *requestChecker) checkConfigurations(q *raft.AppendEntriesRequest) error {
	var before []raft.Server
	steps := 0
	for _, e := range q.Entries {
		if e.Type != raft.LogConfiguration {
			continue
		}
		next, err := decodeConfiguration(e.Data)
		if err != nil {
			return requestErrorf("entry %d of term %d: %v", e.Index, e.Term, err)
		}
		if steps == 0 {
			if !c.matches(q.PrevLogEntry, q.PrevLogTerm) {
				return nil
			}
			if term, ok := c.local.EntryTerm(e.Index); ok && term == e.Term {
				continue // it is here
			}
			before, steps = c.local.Servers(), 1
			if c.replaced(q) {
				steps = 2
			}
		}
		if n := configurationSteps(before, next.Servers); len(before) > 0 && n > steps {
			return requestErrorf("entry %d of term %d: a configuration that changes %d members at once: from %v to %v",
				e.Index, e.Term, n, before, next.Servers)
		}
		before, steps = next.Servers, 1
	}
	return nil
}

// matches reports whether this member's log has that entry.
func (c *requestChecker) matches(index, term uint64) bool {
	if index == 0 {
		return true
	}
	if have, ok := c.local.EntryTerm(index); ok {
		return have == term
	}
	// The last entry of a snapshot: all of it is committed, and raft compares the terms.
	return index == c.local.LastIndex()
}

// replaced reports whether entries of a request replace others that are here.
func (c *requestChecker) replaced(q *raft.AppendEntriesRequest) bool {
	return slices.ContainsFunc(q.Entries, func(e *raft.Log) bool {
		term, ok := c.local.EntryTerm(e.Index)
		return ok && term != e.Term
	})
}

// configurationSteps counts the members that are in one of the two only, or have another role.
// Addresses do not count: members that begin with a file of their own may know each other by
// different ones (peer.Roster), and have them in their first configuration. A member that stood
// alone may have got another number (quorum, renumber).
func configurationSteps(a, b []raft.Server) (n int) {
	if len(a) == 1 && len(b) == 1 && a[0].Address == AloneAddr && b[0].Address == AloneAddr &&
		DiskOf(a[0].ID) == DiskOf(b[0].ID) {
		return 0
	}
	servers := map[raft.ServerID]raft.Server{}
	for _, s := range a {
		servers[s.ID] = s
	}
	for _, s := range b {
		if old, ok := servers[s.ID]; !ok || old.Suffrage != s.Suffrage {
			n++
		}
		delete(servers, s.ID)
	}
	return n + len(servers)
}
