package quorum

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Hello stream: a member that knows no leader asks the others how things stand. The preface is all of the question; the answer:
//
//	 0       1        2    4         8         12        20                   21+n
//	+-------+--------+----+---------+---------+---------+-----+--------------+-----+-------------------+
//	| state | member | 0  | cluster | listed  | version | n   | role (n)     | m   | clientAddr (m)    |
//	+-------+--------+----+---------+---------+---------+-----+--------------+-----+-------------------+
//
// Member is 1 if the one that asks is a member, as far as the other knows. Cluster is the other's cluster (0: none), listed the
// checksum of the members in its configuration, version that of the members it knows. Role and clientAddr are texts, those of
// Report; older members send the first 20 bytes only.
const (
	helloLen    = 20
	helloMaxLen = helloLen + 2*(1+math.MaxUint8)
)

// helloState is how far a member has come.
type helloState byte

const (
	stateBlank helloState = 1 // it has no log
	stateFresh helloState = 2 // it has written the first configuration, and no leader has written anything yet
	stateUsed  helloState = 3
)

type hello struct {
	state   helloState
	member  bool
	cluster uint32
	listed  uint32
	version uint64
	Report
}

// Report is what a member says of itself. Its texts are at most 255 bytes long.
type Report struct {
	Role       string // as in Status
	ClientAddr string // host:port where clients connect; the host may be a wildcard
}

// state is how far this member has come.
func (r *Replica) state() helloState {
	switch {
	case len(r.servers()) == 0:
		return stateBlank
	case r.raft.LastIndex() <= 1:
		return stateFresh
	}
	return stateUsed
}

func (r *Replica) serveHello(from MemberID, c net.Conn) {
	r.mu.RLock()
	_, version := r.store.Members()
	r.mu.RUnlock()
	b := []byte{byte(r.state()), 0, 0, 0}
	if r.roster.isPeer(from) {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint32(b, r.roster.cluster())
	b = binary.BigEndian.AppendUint32(b, r.cfg.membersSum())
	b = binary.BigEndian.AppendUint64(b, uint64(version))
	for _, text := range []string{r.Status().Role, r.cfg.ClientAddr()} {
		b = append(b, byte(min(len(text), math.MaxUint8)))
		b = append(b, text[:min(len(text), math.MaxUint8)]...)
	}
	_ = c.SetWriteDeadline(time.Now().Add(prefaceDeadline))
	_, _ = c.Write(b)
}

// hello asks a member how things stand with it.
func (r *Replica) hello(ctx context.Context, id MemberID) (h hello, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.peerTimeout())
	defer cancel()
	c, err := r.port.dial(ctx, id, streamHello)
	if err != nil {
		return h, err
	}
	defer r.port.forget(c)
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	b, err := io.ReadAll(io.LimitReader(c, helloMaxLen))
	if len(b) < helloLen {
		return h, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	report := b[helloLen:]
	next := func() (text string) {
		if len(report) > 0 && len(report) > int(report[0]) {
			text, report = string(report[1:1+report[0]]), report[1+report[0]:]
		}
		return text
	}
	return hello{Report: Report{Role: next(), ClientAddr: next()}, state: helloState(b[0]), member: b[1] == 1, cluster: binary.BigEndian.Uint32(b[4:]),
		listed: binary.BigEndian.Uint32(b[8:]), version: binary.BigEndian.Uint64(b[12:])}, nil
}

// helloAll asks several members at once; those that do not answer are not in the result.
func (r *Replica) helloAll(ctx context.Context, ids []MemberID) map[MemberID]hello {
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[MemberID]hello{}
	for _, id := range ids {
		wg.Go(func() {
			if h, err := r.hello(ctx, id); err == nil {
				mu.Lock()
				defer mu.Unlock()
				answers[id] = h
			}
		})
	}
	wg.Wait()
	return answers
}

// Reports asks other members how they are. Those that do not answer are not in the result.
func (r *Replica) Reports(ctx context.Context, others []MemberID) map[MemberID]Report {
	reports := map[MemberID]Report{}
	for id, h := range r.helloAll(ctx, others) {
		reports[id] = h.Report
	}
	return reports
}

const (
	askPauseMin = 10 * time.Millisecond
	askPauseMax = 500 * time.Millisecond
)

// askLoop asks around as long as this member is in no cluster, and when it has known no leader for some time.
func (r *Replica) askLoop(ctx context.Context) {
	defer r.wg.Done()
	pause := askPauseMin
	removed := false
	for ctx.Err() == nil {
		if r.state() == stateBlank {
			r.askToBegin(ctx)
			sleep(ctx, pause)
			pause = min(2*pause, askPauseMax)
			continue
		}
		if !removed && r.leaderlessFor() > 2*r.peerTimeout() {
			removed = r.askWhetherRemoved(ctx)
		}
		sleep(ctx, r.peerTimeout())
	}
}

// askToBegin finds out whether this is the first start of the cluster, and if so writes its first configuration.
//
// Every member has the same list then, and none has a log. When a majority of the voters, this one among them, is in that
// state and answers, and nobody who answers is further, there is no cluster yet: two majorities have a member in common. Otherwise this
// member waits for the leader of the cluster that there is: it may be new in it, or have lost its disk.
func (r *Replica) askToBegin(ctx context.Context) {
	listed := r.cfg.membersSum()
	var peers []MemberID
	for _, m := range r.cfg.Members {
		if m.ID != r.cfg.ID {
			peers = append(peers, m.ID)
		}
	}
	ready := 1
	answers := r.helloAll(ctx, peers)
	for id, h := range answers {
		switch {
		case h.state == stateUsed || h.cluster != 0 && h.cluster != listed:
			r.join(h.cluster)
			return
		case h.listed == listed && !r.cfg.member(id).Observer:
			ready++
		}
	}
	if c := r.roster.cluster(); r.cfg.member(r.cfg.ID).Observer || !r.cfg.maj().Quorum(ready) || c != 0 && c != listed {
		return
	}
	if r.join(listed) != nil {
		return
	}
	r.newcomer.end() // nothing has been committed that it could have lost
	if err := r.raft.BootstrapCluster(r.initialConfiguration()).Error(); err != nil && r.state() == stateBlank {
		r.log.Error("first configuration not written", "err", err)
		return
	}
}

// join makes a cluster this member's.
func (r *Replica) join(cluster uint32) error {
	r.joining <- struct{}{}
	defer func() { <-r.joining }()
	if cluster == 0 || r.roster.cluster() == cluster {
		return nil
	}
	if known := r.roster.cluster(); known != 0 {
		r.log.Error("the other members belong to another cluster than this one's data", "theirs", cluster, "ours", known)
		return errOtherCluster
	}
	if err := r.cfg.Stores.setCluster(cluster); err != nil {
		r.log.Error("cannot take note of the cluster", "err", err)
		return err
	}
	r.roster.setCluster(cluster)
	if cluster != r.cfg.membersSum() {
		r.log.Info("the others are a cluster already: waiting to be made a member of it")
	}
	return nil
}

// askWhetherRemoved says whether the others have removed this member.
func (r *Replica) askWhetherRemoved(ctx context.Context) bool {
	ms, version := r.Members()
	var peers []MemberID
	for _, m := range ms {
		if id := MemberID(m.ID); id != r.cfg.ID {
			peers = append(peers, id)
		}
	}
	for _, h := range r.helloAll(ctx, peers) {
		if h.version > uint64(version) && !h.member && h.cluster == r.roster.cluster() {
			r.log.Warn("this member has been removed from the cluster, and serves nobody: stop it, or add it again")
			return true
		}
	}
	return false
}

// leaderlessFor is for how long this member has known no leader; 0 if it knows one.
func (r *Replica) leaderlessFor() time.Duration {
	r.stateMu.Lock()
	defer r.stateMu.Unlock()
	if r.leader != NoMember {
		return 0
	}
	return time.Since(r.leaderFrom)
}

// servers are the members that raft counts, or is about to: the newest configuration in the log.
func (r *Replica) servers() []raft.Server {
	f := r.raft.GetConfiguration()
	if f.Error() != nil { // it never fails
		return nil
	}
	return f.Configuration().Servers
}
