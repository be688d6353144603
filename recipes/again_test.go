package recipes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestAgain(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *fakeCluster, s []*Session, conns []*fakeConn) {
		errOther := errors.New("other")
		var ids []int64
		calls := 0
		err := Again(t.Context(), s[0], func(context.Context) error {
			calls++
			ids = append(ids, conns[0].SessionID())
			switch calls {
			case 1:
				c.with(conns[0].expireLocked)
				return fmt.Errorf("wrapped: %w", ErrExpired)
			case 2:
				return ErrSilent
			}
			return errOther
		})
		if err != errOther || calls != 3 {
			t.Errorf("%v after %d calls", err, calls)
		}
		if ids[1] == ids[0] || ids[1] == 0 {
			t.Errorf("called again in session %d after %d", ids[1], ids[0])
		}
		unknown := fmt.Errorf("%w: %w", ErrUnknown, ErrExpired)
		if err := Again(t.Context(), s[0], func(context.Context) error { return unknown }); err != unknown {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Again(ctx, s[0], func(context.Context) error { return ErrExpired }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
