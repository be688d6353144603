package splitbrain

import (
	"context"
	"time"

	"lockkeeper/jepsen"
)

// probePause is between two looks at a member.
const probePause = 40 * time.Millisecond

// probe asks a member again and again what it is (srvr), and notes what it says, until ctx ends.
func probe(ctx context.Context, r *recorder, side int, m *jepsen.Member) {
	for ctx.Err() == nil {
		mode, err := m.Mode(ctx)
		if ctx.Err() != nil {
			return
		}
		r.note(func(r *recorder, now Instant) { r.sides[side].saw(m.ID, mode, err == nil, now) })
		jepsen.Sleep(ctx, probePause)
	}
}

// saw notes that a member said what it is, or that it serves nobody.
func (s *Seen) saw(id int, mode string, serves bool, now Instant) {
	if serves {
		delete(s.Stopped, id)
	} else {
		first(s.Stopped, id, now)
	}
	if serves && mode == "leader" {
		first(s.Leading, id, now)
	} else {
		delete(s.Leading, id)
	}
}
