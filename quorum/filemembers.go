package quorum

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/znode"
)

// As long as reconfig never was enabled the configuration files name the members of a cluster, and
// change them, as in ZooKeeper: an operator edits the server lines on each machine and restarts one
// member after the other. The leader begins the change of change.go when it has the new lines
// itself, and heard in one round of queries that
//
//   - a majority of the agreed voters has the same lines, itself among them;
//   - so has a majority of the voters to be;
//   - so has every member that is new or gets a vote, which also has a disk that may join;
//   - the live voters are a majority on the way and at the end.
//
// Two lists are the same if they have the same numbers in the same roles (peer.Sum): each member
// dials the others at the addresses of its own file. Only the leader's list enters the log, from
// its own file. The argument is in docs/decisions/019-members-of-the-files.md.

// filePause is between two looks at the files of the others.
const filePause = time.Second

// fileChange is a leader's finding about the members of its configuration file.
type fileChange struct {
	agree []MemberID // the members that have the same lines
	waits []string   // reasons to wait with the change; empty: it can begin
}

// adoptFile begins a change to the members of this leader's configuration file once enough others
// have the same. It returns when to look again; 0: the file has the members of the cluster, or does
// not count.
func (ms *members) adoptFile(ctx context.Context, ch *changer) (pause time.Duration) {
	members, version := ms.state.Members()
	wanted := ms.file
	if ms.cfg.Flags&znode.Reconfig != 0 || version != 0 || len(wanted) == 0 || znode.SameVotes(members, wanted) {
		return 0
	}
	if wait := time.Until(ch.look); wait > 0 {
		return wait
	}
	ch.look = time.Now().Add(filePause)
	p := ms.plan(ctx, ch, wanted)
	change := ms.judgeFile(p, members)
	adds, drops := differenceOf(members, wanted)
	if len(change.waits) > 0 {
		if time.Since(ch.led) > birthPatience {
			ms.trouble.Warn("file", "the server lines of this leader name other members than the cluster has: the "+
				"members change when a "+
				"majority of them and all new ones have the same server lines", "new", adds, "gone", drops, "same",
				change.agree,
				"waiting", strings.Join(change.waits, "; "))
		}
		return filePause
	}
	ms.log.Warn("the members change to those of the configuration files: a majority of the members and all new ones "+
		"have the same "+
		"server lines", "new", adds, "gone", drops, "same", change.agree)
	_ = ms.leadership.propose(ctx, &znode.Command{Seq: uint64(ms.cfg.Now().UnixNano()) | 1<<63,
		Body: &znode.ChangeMembers{Text: ms.cfg.ConfigText}})
	return filePause
}

// judgeFile decides whether a change from the agreed members to p's, the members of this member's
// configuration file, can begin.
func (ms *members) judgeFile(p *plan, agreed []znode.Member) (f fileChange) {
	own := peer.Sum(ms.cfg.Members)
	wait := func(format string, args ...any) { f.waits = append(f.waits, fmt.Sprintf(format, args...)) }
	voter := map[MemberID]bool{}
	for _, m := range agreed {
		voter[MemberID(m.ID)] = !m.Observer
	}
	before, after := tally{}, tally{}
	for _, m := range agreed {
		id := MemberID(m.ID)
		_, queried := p.answers[id]
		same := id == ms.cfg.ID || queried && p.answers[id].Listed == own && p.hasVote(id)
		if m.Observer {
			continue
		}
		before.add(same)
		switch {
		case same:
			f.agree = append(f.agree, id)
		case queried:
			wait("member %d has other server lines", id)
		default:
			wait("member %d does not answer", id)
		}
	}
	enough := before.majority()
	if enough {
		f.waits = nil // the rest may be down, or have another file
	}
	for _, m := range p.wanted {
		id := MemberID(m.ID)
		isVoter, known := voter[id]
		joins := !known || !isVoter && !m.Observer
		if joins {
			if why := ms.keepsOut(p, m, own); why != "" {
				wait("%s", why)
			} else if !m.Observer {
				f.agree = append(f.agree, id)
			}
		}
		if !m.Observer {
			after.add(slices.Contains(f.agree, id))
		}
	}
	switch {
	case len(f.waits) > 0:
	case !after.majority():
		wait("only %d of %d voters of the new list have it", after.yes, after.of)
	case !p.possible():
		wait("%s", p.missing())
	case !p.wantedMajority():
		wait("%s", p.whoIsMissing())
	default:
		for _, m := range p.wanted {
			if newest, _ := ms.port.VersionOf(MemberID(m.ID)); newest == 0 && MemberID(m.ID) != ms.cfg.ID {
				wait("member %d has not answered this leader yet", m.ID)
			}
		}
	}
	return f
}

// keepsOut says why a member that is new, or gets a vote, cannot have its place yet; empty if it
// can.
func (ms *members) keepsOut(p *plan, m znode.Member, own uint32) string {
	id := MemberID(m.ID)
	if id == ms.cfg.ID {
		return ""
	}
	h, answered := p.answers[id]
	switch {
	case !answered:
		return fmt.Sprintf("new member %d does not answer at %s", id, m.PeerAddr())
	case h.Listed != own:
		return fmt.Sprintf("new member %d has other server lines", id)
	case h.Cluster != 0 && h.Cluster != ms.roster.Cluster():
		return fmt.Sprintf("new member %d at %s has the data of another cluster, %v", id, m.PeerAddr(), h.Cluster)
	case p.chosen[id] != raftnet.ServerID(id, h.Disk):
		return fmt.Sprintf("new member %d at %s has data of its own: it can join with an empty data directory", id,
			m.PeerAddr())
	}
	return ""
}

// yieldToLines transfers the leadership if a majority of the voters has one list of members, and
// this leader another: one of them can judge whether the members change. Answers are of members
// that raft counts.
func (ms *members) yieldToLines(answers map[MemberID]peer.Hello) {
	own := peer.Sum(ms.cfg.Members)
	others := map[uint32][]MemberID{}
	for _, s := range ms.Servers() {
		id := raftnet.IDOf(s.ID)
		if h, ok := answers[id]; ok && h.Listed != own && s.Suffrage == raft.Voter && h.Disk == raftnet.DiskOf(s.ID) {
			others[h.Listed] = append(others[h.Listed], id)
		}
	}
	if _, leads := ms.leadership.settledTerm(); !leads || len(others) == 0 || ms.cfg.Flags&znode.Reconfig != 0 {
		return
	}
	members, version, change := ms.state.change()
	for _, ids := range others {
		if change != nil || version != 0 || !NewMaj(max(1, znode.Voters(members))).Quorum(len(ids)) {
			continue
		}
		slices.Sort(ids)
		for _, id := range ids {
			ms.log.Warn("a majority of the members has other server lines than this leader: transferring the "+
				"leadership to one of them",
				"to", id, "same", ids)
			if err := ms.leadership.transferTo(id); err == nil {
				return
			}
		}
	}
}

// tally counts members that have the same lines.
type tally struct{ yes, of int }

func (t *tally) add(same bool) {
	t.of++
	if same {
		t.yes++
	}
}

func (t *tally) majority() bool { return NewMaj(max(1, t.of)).Quorum(t.yes) }

// differenceOf names the members of after that are not in before, or have another role there, and
// the members of before that are not in after.
func differenceOf(before, after []znode.Member) (adds, drops string) {
	role := func(m znode.Member) string {
		if m.Observer {
			return fmt.Sprintf("%d (observer)", m.ID)
		}
		return fmt.Sprint(m.ID)
	}
	minus := func(a, b []znode.Member, same func(x, y znode.Member) bool) string {
		var list []string
		for _, x := range a {
			if !slices.ContainsFunc(b, func(y znode.Member) bool { return same(x, y) }) {
				list = append(list, role(x))
			}
		}
		return strings.Join(list, ", ")
	}
	return minus(after, before, func(x, y znode.Member) bool { return x.ID == y.ID && x.Observer == y.Observer }),
		minus(before, after, func(x, y znode.Member) bool { return x.ID == y.ID })
}
