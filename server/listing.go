package server

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// listing is the text of a four-letter word that lists what clients have made: watches, sessions,
// connections. It holds up to max bytes; what is written beyond that is dropped, and a last line
// says so.
type listing struct {
	b   strings.Builder
	max int
	cut bool
}

// listingCut is the last line of a listing that is not complete.
const listingCut = "(cut: the rest is longer than maxResponseBytes)\n"

// listingsAtOnce is how many listings there are at a time: each takes up to twice maxResponseBytes
// until it has been sent.
const listingsAtOnce = 2

func (s *Server) newListing() *listing { return &listing{max: s.cfg.Limits.Response} }

// Write implements io.Writer. It never fails.
func (l *listing) Write(p []byte) (int, error) {
	if l.cut = l.cut || l.b.Len()+len(p) > l.max; !l.cut {
		l.b.Write(p)
	}
	return len(p), nil
}

// String returns the text.
func (l *listing) String() string {
	if l.cut {
		return l.b.String() + listingCut
	}
	return l.b.String()
}

// idText is a session's id as the four-letter words write it.
func idText(id wire.SessionID) string { return fmt.Sprintf("0x%x", uint64(id)) }

// wchcText lists the paths of the data table that each session watches.
func (s *Server) wchcText() string {
	return grouped(s.newListing(), s.sessions.DataWatches(),
		func(w session.Watch) (string, string) { return idText(w.Session), plain(w.Path) })
}

// wchpText lists the sessions that watch each path of the data table.
func (s *Server) wchpText() string {
	watches := s.sessions.DataWatches()
	slices.SortStableFunc(watches, func(a, b session.Watch) int { return cmp.Compare(a.Path, b.Path) })
	return grouped(s.newListing(), watches, func(w session.Watch) (string, string) { return plain(w.Path), idText(w.Session) })
}

// plain returns a text of a client as it is, or quoted if a line of it could be taken for one of
// ours, or a terminal should not see it. A path that is watched can be any text.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// grouped writes each head once, its items below it, and an empty line at the end.
func grouped(b *listing, watches []session.Watch, text func(session.Watch) (head, item string)) string {
	last := ""
	for _, w := range watches {
		head, item := text(w)
		if head != last {
			fmt.Fprint(b, head+"\n")
			last = head
		}
		fmt.Fprint(b, "\t"+item+"\n")
	}
	fmt.Fprintln(b)
	return b.String()
}

// dumpText lists sessions, their ephemeral nodes, and connections. Only the leader knows when a
// session expires; other members list the timeouts.
func (s *Server) dumpText() string {
	b := s.newListing()
	fmt.Fprint(b, "SessionTracker dump:\n")
	owners := map[wire.SessionID][]string{}
	timeouts := map[wire.SessionID]int32{}
	s.eachSession(func(info znode.SessionInfo) {
		timeouts[info.ID] = info.TimeoutMs
		if info.Ephemerals > 0 {
			owners[info.ID] = nil
		}
	})
	for id := range owners { // one at a time: the state is locked for each
		owners[id] = s.ephemerals(id)
	}
	if deadlines, leads := s.sessions.Deadlines(); leads {
		sets := expirySets{}
		for _, d := range deadlines {
			sets.add(d.At, idText(d.Session))
		}
		sets.write(b, "Session Sets")
	} else {
		fmt.Fprintf(b, "Global Sessions(%d):\n", len(timeouts))
		for _, id := range slices.Sorted(maps.Keys(timeouts)) {
			fmt.Fprintf(b, "%s\t%dms\n", idText(id), timeouts[id])
		}
	}
	fmt.Fprintf(b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(owners))
	for _, id := range slices.Sorted(maps.Keys(owners)) {
		fmt.Fprintf(b, "%s:\n", idText(id))
		for _, path := range slices.Sorted(slices.Values(owners[id])) {
			fmt.Fprintf(b, "\t%s\n", plain(path))
		}
	}
	fmt.Fprint(b, "Connections dump:\n")
	s.connectionSets().write(b, "Connections Sets")
	return b.String()
}

// sessionStep is how many sessions are visited under one lock of the state.
const sessionStep = 1000

// eachSession calls f with the sessions, some at a time: one that is created or closed meanwhile
// may be missing, or come twice.
func (s *Server) eachSession(f func(znode.SessionInfo)) {
	for at := 0; at >= 0; {
		var some []znode.SessionInfo
		s.replica.View(func(store *znode.Store) { some, at = store.SessionsFrom(at, sessionStep) })
		for _, info := range some {
			f(info)
		}
	}
}

// ephemerals are the paths of a session's ephemeral nodes.
func (s *Server) ephemerals(id wire.SessionID) (paths []string) {
	s.replica.View(func(store *znode.Store) { paths = store.Ephemerals(id) })
	return paths
}

// connectionSets lists when each connection is closed if its client stays silent.
func (s *Server) connectionSets() expirySets {
	sets := expirySets{}
	for _, c := range s.sortedConns() {
		id, at := wire.SessionID(0), c.accepted.Add(s.cfg.HandshakeTimeout)
		if sess := c.session.Load(); sess != nil {
			st := sess.Stats()
			id, at = sess.ID(), st.LastHeard.Add(st.Timeout)
		}
		sets.add(at, fmt.Sprintf("ip: /%s sessionId: %s", c.remote, idText(id)))
	}
	return sets
}

// expirySets are members by the second in which they expire.
type expirySets map[time.Time][]string

func (e expirySets) add(at time.Time, member string) {
	// Rounded up: nothing expires before the second that is shown is over. Round(0) drops the
	// monotonic clock.
	second := at.Round(0).Add(time.Second - 1).Truncate(time.Second).UTC()
	e[second] = append(e[second], member)
}

// write writes the sets in ZooKeeper's form, which has the time as Java prints it.
func (e expirySets) write(b *listing, title string) {
	members := 0
	for _, set := range e {
		members += len(set)
	}
	fmt.Fprintf(b, "%s (%d)/(%d):\n", title, len(e), members)
	for _, at := range slices.SortedFunc(maps.Keys(e), time.Time.Compare) {
		set := e[at]
		fmt.Fprintf(b, "%d expire at %s:\n", len(set), at.Format("Mon Jan 02 15:04:05 MST 2006"))
		for _, member := range set {
			fmt.Fprintf(b, "\t%s\n", member)
		}
	}
}

// hashText is the digest of the tree at the zxid that this member has applied: members that show
// the same zxid must show the same digest. ZooKeeper has one line for every 128th zxid, of a digest
// of its own.
func (s *Server) hashText() string {
	zxid, digest := s.treeDigest()
	return fmt.Sprintf("%x: %d\n", uint64(zxid), int64(digest))
}

// treeDigest is computed of a snapshot: it takes a second for a million nodes.
func (s *Server) treeDigest() (zxid wire.Zxid, digest uint64) {
	frozen := s.replica.Freeze()
	defer frozen.Release()
	return frozen.Zxid(), frozen.TreeDigest()
}
