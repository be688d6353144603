package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
)

// Wrong passwords are answered some times, for each network and for each session. Neither the
// connection of the session's holder nor its next attach is affected.
//
// Defends: C9.
func TestWrongPasswordsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		addr    func(i int) string
		session func(i int) int
		want    int
	}{
		"one address, one session":   {func(int) string { return "10.0.0.1" }, func(int) int { return 0 }, guessesPerSession},
		"one address, many sessions": {func(int) string { return "10.0.0.1" }, func(i int) int { return i % 10 }, guessesPerAddr},
		"one network of IPv6": {func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) },
			func(i int) int { return i % 10 }, guessesPerAddr},
		"many addresses": {func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/256, i%256) },
			func(int) int { return 0 }, guessesPerSession},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := newMember(t, Config{})
				var holders []*client
				for range 10 {
					holders = append(holders, mustConnect(t, m, 10*time.Second))
				}
				guess := func(i int) error {
					req := holders[tc.session(i)].reattach()
					req.Password = make([]byte, wire.PasswordLen)
					s, _, err := m.Connect(context.Background(), req, netip.MustParseAddr(tc.addr(i)))
					if s != nil {
						t.Fatal("attached with a wrong password")
					}
					return err
				}
				answered := 0
				const guesses = 300
				for i := range guesses {
					switch err := guess(i); {
					case err == nil:
						answered++
					case !errors.Is(err, errGuesses):
						t.Fatal(err)
					}
				}
				if n := m.Stats().WrongPasswords; answered != tc.want || n != guesses {
					t.Errorf("%d of %d wrong passwords were answered, %d counted", answered, guesses, n)
				}
				for _, c := range holders {
					c.send(wire.OpPing, nil)
					c.expect("-2 Ok")
				}
				if s, _, err := m.Connect(context.Background(), holders[0].reattach(), netip.MustParseAddr(tc.addr(0))); s == nil {
					t.Errorf("the holder is turned away: %v", err)
				} else {
					s.Detach()
				}
				time.Sleep(guessesPeriod) // virtual
				if err := guess(0); err != nil {
					t.Errorf("after a while: %v", err)
				}
			})
		})
	}
}

// An attach that is not committed leaves the older connection as it is.
func TestAttachThatIsNotCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		if _, err := connect(t, m, c.reattach()); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("attached: %v", err)
		}
		c.send(wire.OpExists, wire.PathWatchRequest{Path: "/"})
		c.expect("1 Ok")
		r.setHold(false)
		if _, _, err := c.next(); !errors.Is(err, errEnded) {
			t.Errorf("the attach has been committed after all, the older connection: %v", err)
		}
	})
}
