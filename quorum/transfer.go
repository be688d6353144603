package quorum

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Transfer stream, any member to the leader: one byte, the member that is to lead (0: any voter). The answer is text: empty
// when the leadership has been handed over, else why not.

// TransferLeadership makes another voter the leader: the one named, or with 0 the one that has most of the log. It may be called on any
// member, and returns when this member knows the new leader. Nothing is lost by it, and no client disconnected.
func (r *Replica) TransferLeadership(ctx context.Context, to MemberID) error {
	from, epoch := r.leaderEpoch()
	switch {
	case from == 0:
		return fmt.Errorf("quorum: hand on leadership: %w", ErrNoLeader)
	case to == from:
		return nil
	}
	if err := r.handOn(ctx, from, to); err != nil {
		return fmt.Errorf("quorum: hand on leadership: %w", err)
	}
	for {
		select {
		case <-epoch.Done():
		case <-ctx.Done():
			return fmt.Errorf("quorum: hand on leadership: %w", ctx.Err())
		}
		var now MemberID
		if now, epoch = r.leaderEpoch(); now != 0 && (to == 0 || now == to) {
			return nil
		} else if now != 0 {
			return fmt.Errorf("quorum: hand on leadership: member %d leads instead", now)
		}
	}
}

// handOn asks the leader, which may be this member.
func (r *Replica) handOn(ctx context.Context, leader, to MemberID) error {
	if leader == r.cfg.ID {
		return r.handOnTo(to)
	}
	c, err := r.port.dial(ctx, leader, streamTransfer)
	if err != nil {
		return err
	}
	defer r.port.forget(c)
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := c.Write([]byte{byte(to)}); err != nil {
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

func (r *Replica) serveTransfer(_ MemberID, c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(prefaceDeadline))
	var to [1]byte
	if _, err := io.ReadFull(c, to[:]); err != nil {
		return
	}
	answer := []byte{0}
	if err := r.handOnTo(MemberID(to[0])); err != nil {
		answer = []byte(err.Error())
	}
	_, _ = c.Write(answer)
}

// handOnTo hands the leadership of this member on.
func (r *Replica) handOnTo(to MemberID) error {
	if _, leads := r.leadingTerm(); !leads {
		return ErrNoLeader
	}
	if to == 0 {
		return r.raft.LeadershipTransfer().Error()
	}
	for _, s := range r.servers() {
		if s.ID != serverID(to) {
			continue
		}
		if s.Suffrage != raft.Voter {
			return fmt.Errorf("member %d is an observer and cannot lead", to)
		}
		if to == r.cfg.ID {
			return nil
		}
		return r.raft.LeadershipTransferToServer(s.ID, s.Address).Error()
	}
	return fmt.Errorf("there is no member %d", to)
}
