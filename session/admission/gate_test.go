package admission

import (
	"errors"
	"testing"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

// conn is a connection that never ends.
type conn struct{}

func (conn) Wake()      {}
func (conn) Over() bool { return false }

// payer is a session without ephemeral nodes.
type payer struct{ store *znode.Store }

func (p payer) View(f func(*znode.Store)) { f(p.store) }
func (payer) EphemeralCount() int         { return 0 }

// TestTickets: the share of a request is given back once, by itself or in a sum with others.
func TestTickets(t *testing.T) {
	g := New(Config{Limits: Limits{LargeRequest: 1000, LargeBytes: 50_000, Nodes: 10, Requests: 100}})
	p := payer{znode.New()}
	var sum Ticket
	for range 2 {
		ticket, err := g.Begin(20_000)
		if err != nil || g.Wait(conn{}, wire.OpCreate) || g.Turn(t.Context(), conn{}, &ticket, 20_000) != nil {
			t.Fatal(err)
		}
		price, code := g.Price(p, &Account{}, &wire.CreateRequest{Path: "/a", ACL: wire.OpenACL, Mode: wire.ModeEphemeral}, nil)
		if code != wire.CodeOK {
			t.Fatal(code)
		}
		g.Queue(&ticket, price, 20_300)
		sum.Add(ticket)
	}
	if sum.Bytes != 40_600 || sum.Ephemerals != 2 || g.Memory.Held() != 40_600 || g.Idle() {
		t.Errorf("%+v; %d bytes held", sum, g.Memory.Held())
	}
	if _, err := g.Begin(20_000); !errors.Is(err, ErrLarge) || g.Refused().TooLarge != 1 {
		t.Errorf("a third large request: %v", err)
	}
	g.Release(sum)
	if !g.Idle() || g.Memory.Held() != 0 {
		t.Errorf("%d bytes are held after all is released", g.Memory.Held())
	}
	sum.Sub(sum)
	if !sum.Empty() {
		t.Errorf("%+v", sum)
	}
}
