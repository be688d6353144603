package ops

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lockkeeper/quorum"
	"lockkeeper/quorum/peer"
	"lockkeeper/server/ops/door"
	"lockkeeper/server/zoocfg"
)

// reportsKept is for how long a report is not requested again, however many clients query.
const reportsKept = time.Second

// ClockLook is how often a member looks at its clocks: see Figures.Pauses.
const ClockLook = time.Second

// Reports are the reports that the members of the cluster exchange: this member's own, and the
// others'. Its methods may be called by several goroutines.
type Reports struct {
	member  Member
	started atomic.Bool

	turn    chan struct{} // capacity 1: full while the fields below are used
	asked   time.Time
	of      []zoocfg.Member // that were asked
	answers map[quorum.MemberID]quorum.Report
	details map[quorum.MemberID]reportDetails // of the answers
	clients map[quorum.MemberID]string        // the last that was reported, without a wildcard

	mu      sync.Mutex
	ownAt   time.Time
	ownTerm uint64
	own     []byte // as of ownAt, in that term
}

// reportDetails are the details of a quorum.Report.
type reportDetails struct {
	HTTP string `json:"http"`
	*Health
}

// NewReports returns the Reports of a member. Start begins its own.
func NewReports(m Member) *Reports {
	return &Reports{member: m, turn: make(chan struct{}, 1), clients: map[quorum.MemberID]string{}}
}

// Start is called when all ports of the member are open.
func (r *Reports) Start() { r.started.Store(true) }

// Own is this member's report to the others, as of the last second and the present term: they may
// ask often, and some of it is read from the disk. nil before Start.
func (r *Reports) Own() []byte {
	if !r.started.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if term := r.member.Replica().Term(); time.Since(r.ownAt) > reportsKept || r.ownTerm != term {
		f := r.member.Figures()
		b, err := json.Marshal(reportDetails{HTTP: f.httpAddress(), Health: health(r.member, f)})
		if err != nil || len(b) > 1<<10 {
			b = nil
		}
		r.ownAt, r.ownTerm, r.own = time.Now(), term, b
	}
	return r.own
}

// Cluster is Member.Cluster. It requests reports that are older than a second, or of other members.
func (r *Reports) Cluster() *Cluster {
	f := r.member.Figures()
	c := &Cluster{Standalone: f.Alone, Leader: f.Leader, Term: strconv.FormatUint(f.Replica.Term, 10),
		Version: Hex(f.Membership.Version), Members: r.members(f), Changes: []LeaderChange{},
		State: StateCounts{Nodes: f.State.Nodes, Ephemerals: f.State.Ephemerals, Sessions: f.State.Sessions,
			DataBytes: f.State.DataSizeBytes}}
	var commit uint64
	for i := range c.Members {
		m := &c.Members[i]
		if m.Health != nil {
			commit = max(commit, m.CommitIndex)
		}
		if m.Role == "participant" {
			c.Voters++
			if m.Up {
				c.VotersUp++
				if m.Readiness == ReadyText || m.Readiness == "" {
					c.VotersReady++
				}
			}
		}
	}
	for i := range c.Members {
		if h := c.Members[i].Health; h != nil {
			h.LagEntries = commit - min(commit, h.AppliedIndex)
		}
	}
	c.Majority = c.Voters/2 + 1
	// One that is behind can be a part of the majority, and replaces no other one.
	c.MayFail = max(c.VotersReady-c.Majority, min(c.VotersUp-c.Majority, 0))
	for _, l := range r.member.Replica().LeaderChanges() {
		c.Changes = append(c.Changes, LeaderChange{At: l.At.UTC(), Term: strconv.FormatUint(l.Term, 10),
			Leader: int(l.Leader), Before: memberNumber(l.Before), Cause: l.Cause, Detail: l.Detail,
			GapMs: l.Gap.Milliseconds()})
	}
	return c
}

// memberNumber is 0 for no member.
func memberNumber(id quorum.MemberID) int {
	if id == quorum.NoMember {
		return 0
	}
	return int(id)
}

// members lists the members, this one with the figures f.
func (r *Reports) members(f *Figures) []ClusterMember {
	if f.Alone {
		return []ClusterMember{f.asMember(r.member, ListedMember{ID: f.ID, Role: "participant", State: f.Replica.Role,
			Clients: f.ClientAddr})}
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	agreed := f.Membership.Members
	if time.Since(r.asked) > reportsKept || !slices.Equal(r.of, agreed) {
		r.askLocked(agreed, f.Replica.ID)
	}
	r.answers[f.Replica.ID] = f.report()
	var list []ClusterMember
	for _, m := range agreed {
		id, l := quorum.MemberID(m.ID), Listed(m)
		if report, ok := r.answers[id]; ok {
			l.State, l.Protocol, l.PeerAuth = report.Role, report.Protocol, report.PeerAuth
			l.Readiness = readinessText(report)
			if addr := reachable(m, report.ClientAddr); addr != "" {
				r.clients[id] = addr
			}
		}
		if addr := r.clients[id]; addr != "" {
			l.Clients = addr
		}
		if id == f.Replica.ID {
			list = append(list, f.asMember(r.member, l))
			continue
		}
		o := ClusterMember{ListedMember: l, Up: l.State != NoAnswer && l.State != quorum.RoleApart}
		if d, ok := r.details[id]; ok {
			own := *d.Health // the caller adds to it
			o.HTTP, o.Health, o.Term = d.HTTP, &own, own.Term
			o.ListedMember.Term, _ = strconv.ParseUint(own.Term, 10, 64) // 0 if it is no number
		}
		list = append(list, o)
	}
	return list
}

// askLocked requests the reports of the other members. The caller has the turn.
func (r *Reports) askLocked(members []zoocfg.Member, self quorum.MemberID) {
	var others []quorum.MemberID
	for _, m := range members {
		if id := quorum.MemberID(m.ID); id != self {
			others = append(others, id)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), door.Timeout)
	defer cancel()
	r.answers = r.member.Replica().Reports(ctx, others)
	r.details = map[quorum.MemberID]reportDetails{}
	for id, a := range r.answers {
		var d reportDetails
		if len(a.Details) > 0 && json.Unmarshal(a.Details, &d) == nil && d.Health != nil {
			r.details[id] = d
		}
	}
	r.asked, r.of = time.Now(), members
}

// report is the member's own report, without the details.
func (f *Figures) report() quorum.Report {
	own := quorum.Report{Role: f.Mode(), ClientAddr: f.ClientAddr, Protocol: f.Peers.Version, PeerAuth: f.PeerAuth,
		Ready: peer.IsReady}
	if !f.Ready {
		own.Ready, own.NotReady = peer.IsNotReady, f.NotReady
	}
	return own
}

// asMember is the member itself in the list of members.
func (f *Figures) asMember(m Member, l ListedMember) ClusterMember {
	l.Term = f.Replica.Term
	h := health(m, f)
	return ClusterMember{ListedMember: l, Self: true, Up: true, HTTP: f.httpAddress(), Health: h, Term: h.Term}
}

// httpAddress is where the member serves HTTP, as others reach it; empty if it does not.
func (f *Figures) httpAddress() string {
	if self, ok := f.Membership.Member(f.ID); ok && f.HTTPAddr != "" {
		return reachable(self, f.HTTPAddr)
	}
	return f.HTTPAddr
}

// health makes the Health of the member itself.
func health(m Member, f *Figures) *Health {
	replica := m.Replica()
	h := &Health{
		LogHealth: LogHealth{Term: strconv.FormatUint(f.Replica.Term, 10), AppliedIndex: f.Replica.AppliedIndex,
			CommitIndex: f.Replica.CommitIndex, LastIndex: f.Replica.LastIndex, Zxid: Hex(f.Zxid)},
		StateBytes: f.Work.StateBytes, Connections: f.Work.Connections,
		Outstanding: f.Work.Outstanding, UptimeMs: f.Uptime.Milliseconds(), Build: f.Version,
		Nodes: f.State.Nodes, Disk: replica.Disk().String(), Joining: !replica.Counted(),
		DisksReplaced: f.OfLog.DisksReplaced.Load(),
	}
	if c := replica.Cluster(); c != 0 {
		h.Cluster = c.String()
	}
	if d := f.inMs(&f.OfLog.Fsync); d.Recent.Count > 0 {
		mean, longest := d.Recent.Mean()*inMs, float64(d.Recent.Quantile(1))*inMs
		h.FsyncMs, h.FsyncMaxMs = &mean, &longest
	}
	if silence, follows := replica.LeaderSilence(); follows {
		ms := silence.Milliseconds()
		h.LeaderHeardMs = &ms
	}
	h.PausedPart, h.PauseMaxMs = f.paused()
	if n := f.Work.Leases; n >= 0 {
		h.Leases = &n
	}
	if info, err := replica.Snapshot(); err == nil && info.Index > 0 {
		h.SnapshotBytes = info.Bytes
	}
	u := m.Usage()
	h.LogBytes, h.SnapshotAt = u.RaftBytes, u.SnapshotAt
	return h
}

// paused is the part of the last five to ten minutes during which this process did not run, and the
// longest pause: it, or its machine, was stopped or had no processor. Both are nil when a member
// has just started.
func (f *Figures) paused() (part, longestMs *float64) {
	d := f.inMs(f.Pauses)
	if d.Recent.Count == 0 {
		return nil, nil
	}
	pausedMs, longest := d.Recent.Mean()*inMs*float64(d.Recent.Count), float64(d.Recent.Quantile(1))*inMs
	share := pausedMs / (pausedMs + float64(d.Recent.Count)*float64(ClockLook.Milliseconds()))
	share = math.Round(share*1000) / 1000
	return &share, &longest
}
