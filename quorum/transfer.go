package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/quorum/peer"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
)

// Transfer stream, any member to the leader:
//
//	| to u8 | named u8 | proof length u16 | proof |
//
// To is the member that is to lead, if named is 1; with 0 any voter may. Proof is for the leader's
// Listener.MayTransfer; it is about this request alone (transferOccasion), so that it has no secret
// in it and is worth nothing afterwards. The answer is one zero byte when the leadership has been
// transferred, else a text that says why not.

// maxProof bounds the proof of the right to move the leadership.
const maxProof = 4 << 10

// Prove returns the proof that its caller may have the leadership transferred on an occasion, which
// is text that stands for one request.
type Prove func(occasion []byte) (proof string)

// transferOccasion is the subject of a proof: a member's request to a leader in its term, which
// ends when the leadership has been transferred.
func transferOccasion(cluster peer.ClusterID, term uint64, leader, from MemberID, request []byte) []byte {
	return fmt.Appendf(nil, "lockkeeper transfer\ncluster %v\nterm %d\nleader %d\nfrom %d\nto %x", cluster, term,
		leader, from, request)
}

// TransferLeadership is Replica.TransferLeadership.
func (l *leadership) TransferLeadership(ctx context.Context, to MemberID, prove Prove) error {
	from, epoch := l.leaderEpoch()
	switch {
	case from == NoMember:
		return fmt.Errorf("quorum: transfer leadership: %w", ErrNoLeader)
	case to == from:
		return nil
	}
	if err := l.requestTransfer(ctx, from, to, prove); err != nil {
		return fmt.Errorf("quorum: transfer leadership: %w", err)
	}
	for {
		select {
		case <-epoch.Done():
		case <-ctx.Done():
			return fmt.Errorf("quorum: transfer leadership: %w", ctx.Err())
		}
		var now MemberID
		now, epoch = l.leaderEpoch()
		switch {
		case now == NoMember || now == from:
			// A heartbeat that was on its way still names the one that led before.
		case to == NoMember || now == to:
			return nil
		default:
			return fmt.Errorf("quorum: transfer leadership: member %d leads instead", now)
		}
	}
}

// requestTransfer transfers the leadership of the leader, this member or another.
func (l *leadership) requestTransfer(ctx context.Context, leader, to MemberID, prove Prove) error {
	if leader == l.cfg.ID {
		return l.transferTo(to)
	}
	proof := ""
	if prove != nil {
		proof = prove(transferOccasion(l.roster.Cluster(), l.raft.CurrentTerm(), leader, l.cfg.ID,
			transferRequest(to, "")))
	}
	if len(proof) > maxProof {
		return fmt.Errorf("a proof of %d bytes; %d are the most", len(proof), maxProof)
	}
	c, err := l.port.Dial(ctx, leader, peer.StreamTransfer)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Write(transferRequest(to, proof)); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(c, 1<<10))
	switch {
	case err != nil:
		return err
	case len(answer) == 0:
		return fmt.Errorf("member %d: %w", leader, ErrNoLeader)
	case answer[0] != 0:
		return errors.New(string(answer))
	}
	return nil
}

func transferRequest(to MemberID, proof string) []byte {
	b := []byte{0, 0}
	if to != NoMember {
		b = []byte{byte(to), 1}
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(proof))), proof...)
}

func (l *leadership) serveTransfer(from peer.Identity, c *peer.Stream) error {
	_ = c.SetDeadline(time.Now().Add(peer.PrefaceTimeout))
	to, proof, err := readTransfer(c)
	if err != nil {
		return err
	}
	answer := []byte{0}
	occasion := transferOccasion(l.roster.Cluster(), l.raft.CurrentTerm(), l.cfg.ID, from.Member,
		transferRequest(to, ""))
	if err = l.cfg.Listener.MayTransfer(proof, occasion); err == nil {
		err = l.transferTo(to)
	}
	if err != nil {
		answer = []byte(err.Error())
	}
	_, err = c.Write(answer)
	return err
}

// readTransfer reads the request of a transfer stream.
func readTransfer(r io.Reader) (to MemberID, proof string, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return NoMember, "", err
	}
	n := binary.BigEndian.Uint16(head[2:])
	if n > maxProof || head[1] > 1 {
		return NoMember, "", fmt.Errorf("%w: a request to transfer the leadership", peer.ErrRefused)
	}
	b := make([]byte, n)
	if _, err = io.ReadFull(r, b); err != nil || head[1] == 0 {
		return NoMember, string(b), err
	}
	return MemberID(head[0]), string(b), nil
}

// transferTo transfers the leadership of this member to a voter, or with NoMember to the one that
// has most of the log, and returns when this member leads no longer. Commands that are submitted
// meanwhile wait.
//
// The library has a function for it, which is not used (UPSTREAM.md, 2): if it is tried again while
// the goroutine that replicates to the voter is held by the network, and the leadership ends then,
// it waits for ever, and from then on the library refuses all entries whenever this member leads.
func (l *leadership) transferTo(to MemberID) error {
	l.leaderMoves("this member transferred its leadership")
	epoch, err := l.leading()
	if err != nil {
		return err
	}
	if !l.transferring.CompareAndSwap(false, true) {
		return errors.New("the leadership is being transferred already")
	}
	defer l.transferring.Store(false)
	ctx, cancel := context.WithTimeout(epoch, l.peerTimeout())
	defer cancel()
	err = l.transferQuietly(ctx, to)
	if epoch.Err() != nil {
		return nil // this member leads no longer
	}
	return err
}

// transferQuietly has the target elected when no entry is in flight, and lets none be proposed
// meanwhile. It chooses the target behind a step under way, which may take the target's vote.
func (l *leadership) transferQuietly(ctx context.Context, to MemberID) error {
	select {
	case l.step <- struct{}{}:
		defer l.endStep()
	case <-ctx.Done():
		return errors.New("a change of the members is not committed in time")
	}
	target, err := l.transferTarget(to)
	if err != nil || target.ID == l.self {
		return err
	}
	resume, err := l.batcher.pause(ctx)
	defer resume()
	if err != nil {
		return err
	}
	return l.electTarget(ctx, target)
}

// beginStep returns false while the leadership is being transferred. Otherwise the transfer waits
// for endStep.
func (l *leadership) beginStep() bool {
	if l.transferring.Load() {
		return false
	}
	select {
	case l.step <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *leadership) endStep() { <-l.step }

// leading returns a context that ends with the leadership of this member. Another member may hear
// of an election that this member has won before all entries from before its term are applied here;
// leading waits for that.
func (l *leadership) leading() (context.Context, error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.peerTimeout())
	defer cancel()
	for {
		leader, epoch := l.leaderEpoch()
		if leader == l.cfg.ID {
			return epoch, nil
		}
		if l.raft.State() != raft.Leader {
			return nil, ErrNoLeader
		}
		select {
		case <-epoch.Done():
		case <-ctx.Done():
			return nil, ErrNoLeader
		}
	}
}

// transferTarget returns the voter that is to lead: the one that was named, or the one that has
// most of the log.
func (l *leadership) transferTarget(to MemberID) (target raft.Server, err error) {
	var most uint64
	began, _ := l.LeaderKnown() // a voter that has not answered since then may be about to
	for _, s := range l.Servers() {
		id, voter := raftnet.IDOf(s.ID), s.Suffrage == raft.Voter
		switch {
		case id == to && !voter:
			return target, fmt.Errorf("member %d is an observer and cannot lead", to)
		case id == to && id == l.cfg.ID:
			return s, nil
		case id == l.cfg.ID || !voter || to != NoMember && id != to:
			continue
		}
		switch acked, heard := l.transport.Progress(s.ID); {
		case l.cfg.Clock.Now().Sub(heard) > l.peerTimeout() && time.Since(began) > l.peerTimeout():
			err = fmt.Errorf("member %d does not answer", id)
		case target.ID == "" || acked > most:
			target, most = s, acked
		}
	}
	switch {
	case target.ID != "":
		return target, nil
	case err == nil && to != NoMember:
		err = fmt.Errorf("there is no member %d", to)
	case err == nil:
		err = errors.New("there is no other voter")
	}
	return target, err
}

// transferStep is how often a leader looks whether the target has all of the log.
const transferStep = time.Millisecond

// electTarget waits until the target has all of the log, has it stand for election, and waits until
// it has been elected. No entry is proposed meanwhile.
func (l *leadership) electTarget(ctx context.Context, target raft.Server) error {
	for !l.caughtUp(target.ID, l.raft.LastIndex()) {
		sleep(ctx, transferStep)
		if ctx.Err() != nil {
			return fmt.Errorf("member %s does not take the end of the log", target.ID)
		}
	}
	sent := make(chan error, 1)
	l.futures.Go(func() { // it may take the transport longer than anybody should wait for it
		sent <- l.transport.Elect(target.ID)
	})
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("member %s has not taken over", target.ID)
		case err := <-sent:
			if err != nil {
				return fmt.Errorf("send TimeoutNow to member %s: %w", target.ID, err)
			}
			sent = nil
		}
	}
}

// A leader with a disk that hangs keeps its followers: heartbeats do not wait for the disk. Its
// entries are not committed meanwhile, because the followers' answers are held back until they are
// durable here (type backlog). So the leader hands over: when a write to its log has been under way
// for an election timeout, and that write is the only thing that the cluster waits for, the leader
// has another voter stand for election (docs/decisions/011-parallel-disk-write.md).
//
// "The only thing" means: voters that are a majority without this member have the entries of that
// write on their disks, each stored its newest entries within half an election timeout, and each
// has answered a heartbeat of this term within the last half. Where all disks are slow no voter is
// prompt, and the leadership stays. Where disks are slow in turns, the leader waits for twice as
// long for each change of leader that it saw in the last minute (handOverWait).
//
// Nothing of this needs the main loop of the library, which may be blocked by the same disk, on the
// leader before and after the election: the others elect and commit without it.

// handOverMemory is for how long a change of leader makes the next hand-over wait for longer.
const handOverMemory = time.Minute

// handOverDoublings bounds how often the wait is doubled.
const handOverDoublings = 4

// diskLoop watches the writes to the log of this member.
func (l *leadership) diskLoop(ctx context.Context) {
	step := time.NewTicker(l.cfg.heartbeatTimeout() / 4)
	defer step.Stop()
	last := NoMember // the voter that was tried last
	for {
		select {
		case <-ctx.Done():
			return
		case <-step.C:
		}
		w := l.disk.Writing()
		if w == nil {
			last = NoMember
			continue
		}
		took := time.Since(w.Since)
		if limit := l.cfg.SlowFsync; limit > 0 && took >= max(limit, l.cfg.heartbeatTimeout()) {
			l.trouble.Warn("hang", "the disk of the log hangs: a write to it has not returned, and this member "+
				"stores nothing "+
				"until it does", "for", took.Round(time.Millisecond), "index", w.Last)
		}
		if took >= l.handOverWait() {
			last = l.handOver(w, last)
		}
	}
}

// handOverWait is how long a write to the log may take before this leader hands over.
func (l *leadership) handOverWait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	lately := 0
	for _, c := range l.changes.list {
		if time.Since(c.seen) < handOverMemory {
			lately++
		}
	}
	return l.cfg.heartbeatTimeout() << min(max(lately-1, 0), handOverDoublings)
}

// handOver has another voter elected, if this member leads and the cluster waits for this write
// alone. It returns the voter that it has tried; if it tries none, last.
func (l *leadership) handOver(w *store.Write, last MemberID) MemberID {
	leader, epoch := l.leaderEpoch()
	if leader != l.cfg.ID {
		return last
	}
	target, ok := l.promptVoter(w.Last, last)
	if !ok || !l.transferring.CompareAndSwap(false, true) {
		return last
	}
	defer l.transferring.Store(false)
	to := raftnet.IDOf(target.ID)
	l.measures.HandOvers.Add(1)
	l.log.Warn("the disk of this leader hangs, and the other voters wait for it alone: handing the leadership over",
		"to", to, "hangs", time.Since(w.Since).Round(time.Millisecond), "index", w.Last)
	l.leaderMoves(fmt.Sprintf("a write to the log of this member did not return, and it handed the leadership to "+
		"member %d", to))
	ctx, cancel := context.WithTimeout(epoch, l.peerTimeout())
	defer cancel()
	defer l.batcher.hold()()
	if err := l.electTarget(ctx, target); err != nil && epoch.Err() == nil {
		l.log.Info("leadership not handed over", "to", to, "err", err)
	}
	return to
}

// promptVoter returns the voter that is to lead instead of this member: one that has most of the
// log, and another one than last if there is one. False: the voters that are prompt and have the
// log up to index are no majority without this member.
func (l *leadership) promptVoter(index uint64, last MemberID) (target raft.Server, ok bool) {
	half, now := l.cfg.heartbeatTimeout()/2, l.cfg.Clock.Now()
	voters, prompt := 0, 0
	var most uint64
	for _, s := range l.Servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		id := raftnet.IDOf(s.ID)
		matched, heard := l.transport.Progress(s.ID)
		if id == l.cfg.ID || matched < index || l.transport.Took(s.ID) > half || now.Sub(heard) > half {
			continue
		}
		prompt++
		if target.ID == "" || id != last && (matched > most || raftnet.IDOf(target.ID) == last) {
			target, most = s, matched
		}
	}
	return target, voters > 0 && NewMaj(voters).Quorum(prompt)
}
