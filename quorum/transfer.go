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
)

// Transfer stream, any member to the leader:
//
//	| to u8 | named u8 | proof length u16 | proof |
//
// To is the member that is to lead, if named is 1; with 0 any voter may. Proof is what
// Config.MayTransfer of the leader wants to see; it is about this request alone (transferOccasion),
// so that it has no secret in it and is worth nothing afterwards. The answer is one zero byte when
// the leadership has been transferred, else a text that says why not.

// maxProof bounds the proof of the right to move the leadership.
const maxProof = 4 << 10

// Prove returns the proof that its caller may have the leadership transferred on an occasion, which
// is text that stands for one request.
type Prove func(occasion []byte) (proof string)

// transferOccasion is what a proof is about: a member's request to a leader in its term, which ends
// when the leadership has been transferred.
func transferOccasion(cluster peer.ClusterID, term uint64, leader, from MemberID, request []byte) []byte {
	return fmt.Appendf(nil, "lockkeeper transfer\ncluster %v\nterm %d\nleader %d\nfrom %d\nto %x", cluster, term, leader, from, request)
}

// TransferLeadership makes another voter the leader: the one named, or with NoMember the one that
// has most of the log. It may be called on any member, and returns when this member knows the new
// leader. Nothing is lost by it, and no client disconnected. The caller has seen to it that this
// may be done; prove is for the leader, if that is another member (Config.MayTransfer), and may be
// nil.
func (r *Replica) TransferLeadership(ctx context.Context, to MemberID, prove Prove) error {
	from, epoch := r.leaderEpoch()
	switch {
	case from == NoMember:
		return fmt.Errorf("quorum: transfer leadership: %w", ErrNoLeader)
	case to == from:
		return nil
	}
	if err := r.requestTransfer(ctx, from, to, prove); err != nil {
		return fmt.Errorf("quorum: transfer leadership: %w", err)
	}
	for {
		select {
		case <-epoch.Done():
		case <-ctx.Done():
			return fmt.Errorf("quorum: transfer leadership: %w", ctx.Err())
		}
		var now MemberID
		now, epoch = r.leaderEpoch()
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
func (r *Replica) requestTransfer(ctx context.Context, leader, to MemberID, prove Prove) error {
	if leader == r.cfg.ID {
		return r.transferTo(to)
	}
	proof := ""
	if prove != nil {
		proof = prove(transferOccasion(r.Cluster(), r.raft.CurrentTerm(), leader, r.cfg.ID, transferRequest(to, "")))
	}
	if len(proof) > maxProof {
		return fmt.Errorf("a proof of %d bytes; %d are the most", len(proof), maxProof)
	}
	c, err := r.port.Dial(ctx, leader, peer.StreamTransfer)
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

func (r *Replica) serveTransfer(from MemberID, c *peer.Stream) error {
	_ = c.SetDeadline(time.Now().Add(peer.PrefaceTimeout))
	to, proof, err := readTransfer(c)
	if err != nil {
		return err
	}
	answer := []byte{0}
	occasion := transferOccasion(r.Cluster(), r.raft.CurrentTerm(), r.cfg.ID, from, transferRequest(to, ""))
	if err = r.cfg.MayTransfer(proof, occasion); err == nil {
		err = r.transferTo(to)
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
func (r *Replica) transferTo(to MemberID) error {
	r.leaderMoves("this member transferred its leadership")
	epoch, err := r.leading()
	if err != nil {
		return err
	}
	if !r.transferring.CompareAndSwap(false, true) {
		return errors.New("the leadership is being transferred already")
	}
	defer r.transferring.Store(false)
	target, err := r.transferTarget(to)
	if err != nil || target.ID == r.self {
		return err
	}
	ctx, cancel := context.WithTimeout(epoch, r.peerTimeout())
	defer cancel()
	resume, err := r.batcher.pause(ctx)
	defer resume()
	if err == nil {
		err = r.electTarget(ctx, target)
	}
	if epoch.Err() != nil {
		return nil // this member leads no longer
	}
	return err
}

// leading returns a context that ends with the leadership of this member. Another member may hear
// of an election that this member has won before all entries from before its term are applied here;
// leading waits for that.
func (r *Replica) leading() (context.Context, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.peerTimeout())
	defer cancel()
	for {
		leader, epoch := r.leaderEpoch()
		if leader == r.cfg.ID {
			return epoch, nil
		}
		if r.raft.State() != raft.Leader {
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
func (r *Replica) transferTarget(to MemberID) (target raft.Server, err error) {
	var most uint64
	began, _ := r.LeaderKnown() // a voter that has not answered since then may be about to
	for _, s := range r.servers() {
		id, voter := peer.IDOf(s.ID), s.Suffrage == raft.Voter
		switch {
		case id == to && !voter:
			return target, fmt.Errorf("member %d is an observer and cannot lead", to)
		case id == to && id == r.cfg.ID:
			return s, nil
		case id == r.cfg.ID || !voter || to != NoMember && id != to:
			continue
		}
		switch acked, heard := r.transport.Progress(s.ID); {
		case r.cfg.Clock.Now().Sub(heard) > r.peerTimeout() && time.Since(began) > r.peerTimeout():
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
func (r *Replica) electTarget(ctx context.Context, target raft.Server) error {
	for !r.caughtUp(target.ID, r.raft.LastIndex()) {
		sleep(ctx, transferStep)
		if ctx.Err() != nil {
			return fmt.Errorf("member %s does not take the end of the log", target.ID)
		}
	}
	sent := make(chan error, 1)
	r.futures.Go(func() { // it may take the transport longer than anybody should wait for it
		sent <- r.transport.Elect(target.ID)
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
