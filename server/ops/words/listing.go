package words

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"lockkeeper/server/ops"
	"lockkeeper/session"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// listing is the text of a four-letter word that lists watches, sessions or connections of clients.
// It holds up to max bytes; the rest is dropped, and a last line
// says so.
type listing struct {
	b   strings.Builder
	max int
	cut bool
}

// listingCut is the last line of a listing that is not complete.
const listingCut = "(cut: the rest is longer than maxResponseBytes)\n"

func (s *Words) newListing() *listing { return &listing{max: s.Config().Limits.Response} }

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

// wchcText lists the paths of the data table that each session watches.
func (s *Words) wchcText() string {
	return grouped(s.newListing(), s.Sessions().Watches().Data(),
		func(w session.Watch) (string, string) { return ops.Hex(w.Session), plain(w.Path) })
}

// wchpText lists the sessions that watch each path of the data table.
func (s *Words) wchpText() string {
	watches := s.Sessions().Watches().Data()
	slices.SortStableFunc(watches, func(a, b session.Watch) int { return cmp.Compare(a.Path, b.Path) })
	return grouped(s.newListing(), watches,
		func(w session.Watch) (string, string) { return plain(w.Path), ops.Hex(w.Session) })
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
func (s *Words) dumpText() string {
	b := s.newListing()
	fmt.Fprint(b, "SessionTracker dump:\n")
	owners := map[wire.SessionID][]string{}
	timeouts := map[wire.SessionID]int32{}
	ops.EachSession(s, func(info znode.SessionInfo) {
		timeouts[info.ID] = info.TimeoutMs
		if info.Ephemerals > 0 {
			owners[info.ID] = nil
		}
	})
	for id := range owners { // one at a time: the state is locked for each
		owners[id] = ops.Ephemerals(s, id)
	}
	if deadlines, leads := s.Sessions().Deadlines(); leads {
		sets := expirySets{}
		for _, d := range deadlines {
			sets.add(d.At, ops.Hex(d.Session))
		}
		sets.write(b, "Session Sets")
	} else {
		fmt.Fprintf(b, "Global Sessions(%d):\n", len(timeouts))
		for _, id := range slices.Sorted(maps.Keys(timeouts)) {
			fmt.Fprintf(b, "%s\t%dms\n", ops.Hex(id), timeouts[id])
		}
	}
	fmt.Fprintf(b, "ephemeral nodes dump:\nSessions with Ephemerals (%d):\n", len(owners))
	for _, id := range slices.Sorted(maps.Keys(owners)) {
		fmt.Fprintf(b, "%s:\n", ops.Hex(id))
		for _, path := range slices.Sorted(slices.Values(owners[id])) {
			fmt.Fprintf(b, "\t%s\n", plain(path))
		}
	}
	fmt.Fprint(b, "Connections dump:\n")
	s.connectionSets().write(b, "Connections Sets")
	return b.String()
}

// connectionSets lists when each connection is closed if its client stays silent.
func (s *Words) connectionSets() expirySets {
	sets := expirySets{}
	for _, c := range s.Connections() {
		id, at := wire.SessionID(0), c.Accepted.Add(s.Config().Client.HandshakeTimeout)
		if c.Session != nil {
			st := c.Session.Stats()
			id, at = c.Session.ID(), st.LastHeard.Add(st.Timeout)
		}
		sets.add(at, fmt.Sprintf("ip: /%s sessionId: %s", c.Remote, ops.Hex(id)))
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

// hashText is the digest of the tree. ZooKeeper has one line for every 128th zxid, of a digest of
// its own.
func (s *Words) hashText() string {
	zxid, digest := ops.TreeDigest(s)
	return fmt.Sprintf("%x: %d\n", uint64(zxid), int64(digest))
}
