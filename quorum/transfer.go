package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Transfer stream, any member to the leader:
//
//	| to u8 | named u8 | proof length u16 | proof |
//
// To is the member that is to lead, if named is 1; with 0 any voter may. Proof is what Config.MayTransfer of the leader wants to
// see. The answer is one zero byte when the leadership has been transferred, else a text that says why not.

// maxProof bounds the proof of the right to move the leadership.
const maxProof = 4 << 10

// TransferLeadership makes another voter the leader: the one named, or with NoMember the one that has most of the log. It may be called on any
// member, and returns when this member knows the new leader. Nothing is lost by it, and no client disconnected. The caller has seen to it
// that this may be done; proof is for the leader, if that is another member (Config.MayTransfer).
func (r *Replica) TransferLeadership(ctx context.Context, to MemberID, proof string) error {
	from, epoch := r.leaderEpoch()
	switch {
	case from == NoMember:
		return fmt.Errorf("quorum: hand on leadership: %w", ErrNoLeader)
	case to == from:
		return nil
	}
	if err := r.handOn(ctx, from, to, proof); err != nil {
		return fmt.Errorf("quorum: hand on leadership: %w", err)
	}
	for {
		select {
		case <-epoch.Done():
		case <-ctx.Done():
			return fmt.Errorf("quorum: hand on leadership: %w", ctx.Err())
		}
		var now MemberID
		if now, epoch = r.leaderEpoch(); now != NoMember && (to == NoMember || now == to) {
			return nil
		} else if now != NoMember {
			return fmt.Errorf("quorum: hand on leadership: member %d leads instead", now)
		}
	}
}

// handOn asks the leader, which may be this member.
func (r *Replica) handOn(ctx context.Context, leader, to MemberID, proof string) error {
	if leader == r.cfg.ID {
		return r.handOnTo(to)
	}
	if len(proof) > maxProof {
		return fmt.Errorf("a proof of %d bytes; %d are the most", len(proof), maxProof)
	}
	c, err := r.port.dial(ctx, leader, streamTransfer)
	if err != nil {
		return err
	}
	defer r.port.forget(c)
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

func (r *Replica) serveTransfer(_ MemberID, c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(prefaceDeadline))
	to, proof, err := readTransfer(c)
	if err != nil {
		return
	}
	answer := []byte{0}
	if err = r.cfg.MayTransfer(proof); err == nil {
		err = r.handOnTo(to)
	}
	if err != nil {
		answer = []byte(err.Error())
	}
	_, _ = c.Write(answer)
}

// readTransfer reads what is asked on a transfer stream.
func readTransfer(r io.Reader) (to MemberID, proof string, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return NoMember, "", err
	}
	n := binary.BigEndian.Uint16(head[2:])
	if n > maxProof || head[1] > 1 {
		return NoMember, "", errPeerFrame
	}
	b := make([]byte, n)
	if _, err = io.ReadFull(r, b); err != nil || head[1] == 0 {
		return NoMember, string(b), err
	}
	return MemberID(head[0]), string(b), nil
}

// handOnTo hands the leadership of this member on, to a voter or with NoMember to the one that has most of the log, and returns when this
// member leads no longer. What is proposed meanwhile waits.
//
// The library has a function for it, which is not used (UPSTREAM.md, 2): if it is tried again while the goroutine that replicates to the voter
// is held by the network, and the leadership ends then, it waits for ever, and from then on the library refuses all entries whenever
// this member leads.
func (r *Replica) handOnTo(to MemberID) error {
	epoch, err := r.office()
	if err != nil {
		return err
	}
	if !r.handing.CompareAndSwap(false, true) {
		return errors.New("the leadership is being handed on already")
	}
	defer r.handing.Store(false)
	heir, err := r.heir(to)
	if err != nil || heir.ID == serverID(r.cfg.ID) {
		return err
	}
	ctx, cancel := context.WithTimeout(epoch, r.peerTimeout())
	defer cancel()
	resume, err := r.batcher.pause(ctx)
	defer resume()
	if err == nil {
		err = r.passOn(ctx, heir)
	}
	if epoch.Err() != nil {
		return nil // to whomever
	}
	return err
}

// office is the time for which this member leads. Another one may have heard of an election that this member has won before it has
// taken up its office, which is when all from before its term has been applied: that is waited for.
func (r *Replica) office() (context.Context, error) {
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

// heir is the voter that is to lead: the one that was named, or one that has all of the log, or as much as anybody.
func (r *Replica) heir(to MemberID) (heir raft.Server, err error) {
	var most uint64
	began, _ := r.LeaderKnown() // who has not answered since then may be about to
	for _, s := range r.servers() {
		id, voter := memberID(s.ID), s.Suffrage == raft.Voter
		switch {
		case id == to && !voter:
			return heir, fmt.Errorf("member %d is an observer and cannot lead", to)
		case id == to && id == r.cfg.ID:
			return s, nil
		case id == r.cfg.ID || !voter || to != NoMember && id != to:
			continue
		}
		switch acked, heard := r.transport.progress(id); {
		case time.Since(heard) > r.peerTimeout() && time.Since(began) > r.peerTimeout():
			err = fmt.Errorf("member %d does not answer", id)
		case heir.ID == "" || acked > most:
			heir, most = s, acked
		}
	}
	switch {
	case heir.ID != "":
		return heir, nil
	case err == nil && to != NoMember:
		err = fmt.Errorf("there is no member %d", to)
	case err == nil:
		err = errors.New("there is no other voter")
	}
	return heir, err
}

// handOnStep is how often a leader looks whether its heir has all of the log.
const handOnStep = time.Millisecond

// passOn waits until the heir has all of the log, tells it to stand for election, and waits until it has been elected. No entry is
// proposed meanwhile.
func (r *Replica) passOn(ctx context.Context, heir raft.Server) error {
	for !r.transport.caughtUp(memberID(heir.ID), r.raft.LastIndex()) {
		sleep(ctx, handOnStep)
		if ctx.Err() != nil {
			return fmt.Errorf("member %s does not take the end of the log", heir.ID)
		}
	}
	told := make(chan error, 1)
	r.futures.Go(func() { // it may take the transport longer than anybody should wait for it
		told <- r.transport.TimeoutNow(heir.ID, heir.Address, timeoutNow(), &raft.TimeoutNowResponse{})
	})
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("member %s has not taken over", heir.ID)
		case err := <-told:
			if err != nil {
				return fmt.Errorf("tell member %s to take over: %w", heir.ID, err)
			}
			told = nil
		}
	}
}
