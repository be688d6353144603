package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

func digest(user string) wire.AuthPacket {
	return wire.AuthPacket{Scheme: "digest", Auth: []byte(user + ":password")}
}

var mine = []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "auth"}}}

// A connection that shows too many identities, or too long ones, gets AuthFailed and ends; its
// session does not.
//
// Defends: C9.
func TestIdentitiesAreBounded(t *testing.T) {
	for name, user := range map[string]func(int) string{
		"number": func(i int) string { return fmt.Sprint("u", i) },
		"bytes":  func(i int) string { return strings.Repeat("u", 200) + fmt.Sprint(i) },
	} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := newMember(t, Config{Limits: Limits{Identities: 10, IdentityBytes: 1000}})
			c := mustConnect(t, m, 10*time.Second)
			fits := 10
			if name == "bytes" {
				fits = 4
			}
			for i := range fits {
				c.send(wire.OpAuth, digest(user(i)))
				c.expect(fmt.Sprintf("%d Ok", i+1))
			}
			c.send(wire.OpAuth, digest(user(0))) // known
			c.send(wire.OpAuth, digest(user(fits)))
			c.expect(fmt.Sprintf("%d Ok", fits+1), fmt.Sprintf("%d AuthFailed", fits+2), "EOF")
			if n := m.Stats().IdentitiesRefused; n != 1 {
				t.Errorf("%s: %d refusals are counted", name, n)
			}
			if again, err := connect(t, m, c.reattach()); err != nil || again.s == nil {
				t.Errorf("%s: the session has ended: %v", name, err)
			}
		})
	}
}

// Identities travel with the first write after they were shown, and with no other; and each write
// is judged by those that the connection had when it came.
func TestIdentitiesTravelOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/early", ACL: mine})
		c.send(wire.OpAuth, digest("ann"))
		c.send(wire.OpCreate, wire.CreateRequest{Path: "/mine", ACL: mine})
		c.send(wire.OpSetData, wire.SetDataRequest{Path: "/mine", Version: -1})
		c.send(wire.OpGetData, wire.PathWatchRequest{Path: "/mine"})
		c.send(wire.OpAuth, digest("bob"))
		c.send(wire.OpSetACL, wire.SetACLRequest{Path: "/mine", ACL: mine, Version: -1})
		c.send(wire.OpDelete, wire.DeleteRequest{Path: "/mine", Version: -1})
		var carried []int
		for _, cmd := range r.held {
			carried = append(carried, len(cmd.Body.(*znode.Request).Identities))
		}
		// the first is certain to be refused, so it is not proposed
		if got := fmt.Sprint(carried); got != "[1 0 2 0]" {
			t.Errorf("the commands carry %s identities", got)
		}
		r.setHold(false)
		c.expect("1 InvalidACL", "2 Ok", "3 Ok", "4 Ok", "5 Ok", "6 Ok", "7 Ok", "8 Ok")

		// Another connection of the session has identities of its own.
		again, err := connect(t, m, c.reattach())
		if err != nil || again.s == nil {
			t.Fatal(err)
		}
		again.send(wire.OpCreate, wire.CreateRequest{Path: "/other", ACL: mine})
		again.send(wire.OpAuth, digest("ann"))
		again.send(wire.OpCreate, wire.CreateRequest{Path: "/other", ACL: mine})
		again.expect("1 InvalidACL", "2 Ok", "3 Ok")
	})
}

// A request that cannot be delivered ends its connection, and neither the session nor another
// connection.
func TestUndeliverableRequestEndsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMember(t, Config{})
		c, other := mustConnect(t, m, 10*time.Second), mustConnect(t, m, 10*time.Second)
		r.setHold(true)
		c.send(wire.OpCreate, create("/a", 0))
		other.send(wire.OpCreate, create("/b", 0))
		m.Undeliverable(r.held[0].Key())
		// an older connection's
		m.Undeliverable(znode.Key{Kind: znode.KindRequest, Session: other.resp.SessionID, Generation: 9, Seq: 1})
		c.expect(errEnded.Error())
		r.setHold(false)
		other.expect("1 Ok")
		if n := m.Stats().Undeliverable; n != 2 {
			t.Errorf("%d are counted", n)
		}
		if again, err := connect(t, m, c.reattach()); err != nil || again.s == nil {
			t.Errorf("the session has ended: %v", err)
		}
	})
}
