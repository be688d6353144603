package session

import (
	"crypto/sha1"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/wire"
	"lockkeeper/znode"
)

const (
	testLimits = "/zookeeper/quota/a/zookeeper_limits"
	testStats  = "/zookeeper/quota/a/zookeeper_stats"
)

// setQuota makes the nodes of a quota on /a, of one node.
func setQuota(c *client) {
	c.send(wire.OpCreate, create("/zookeeper/quota/a", wire.ModePersistent))
	c.send(wire.OpCreate, &wire.CreateRequest{Path: testLimits, Data: []byte("countHardLimit=1"), ACL: wire.OpenACL})
	c.send(wire.OpCreate, create(testStats, wire.ModePersistent))
}

// keeper starts a member that keeps the quotas for super users, and connects one.
func keeper(t *testing.T, cfg Config) (*Manager, *replica, *client) {
	t.Helper()
	cfg.KeepQuotas, cfg.Auth.SuperDigest = true, DigestID(sha1.New, "super:pw")
	m, r := newMember(t, cfg)
	r.store.KeepQuotas()
	super := mustConnect(t, m, 10*time.Second)
	super.send(wire.OpAuth, wire.AuthPacket{Scheme: "digest", Auth: []byte("super:pw")})
	super.expect("1 Ok")
	return m, r, super
}

// With Config.KeepQuotas only super users set, lift and check quotas.
func TestQuotasAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, super := keeper(t, Config{})
		super.send(wire.OpCreate, create("/a", wire.ModePersistent))
		setQuota(super)
		super.expect("2 Ok", "3 Ok", "4 Ok", "5 Ok")

		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpCreate, create("/zookeeper/quota/b", wire.ModePersistent))
		c.send(wire.OpCreate2, create(testLimits+"/x", wire.ModeEphemeralSequential))
		c.send(wire.OpCreateContainer, create("/zookeeper/quota/b", wire.ModeContainer))
		c.send(wire.OpCreateTTL, wire.CreateTTLRequest{Path: "/zookeeper/quota/b", ACL: wire.OpenACL, Mode: wire.ModePersistentTTL, TTL: 1})
		c.send(wire.OpDelete, wire.DeleteRequest{Path: testLimits, Version: -1})
		c.send(wire.OpSetData, wire.SetDataRequest{Path: testLimits, Version: -1})
		c.send(wire.OpSetACL, wire.SetACLRequest{Path: "/zookeeper/quota", ACL: wire.OpenACL, Version: -1})
		c.send(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCreate, Record: create("/c", wire.ModePersistent)},
			{Op: wire.OpDelete, Record: &wire.DeleteRequest{Path: testLimits, Version: -1}},
		}})
		c.send(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{
			{Op: wire.OpCheck, Record: &wire.CheckVersionRequest{Path: testStats, Version: 0}},
		}})
		c.send(wire.OpExists, wire.PathWatchRequest{Path: "/c"})
		c.send(wire.OpCreate, create("/zookeeper/quotas", wire.ModePersistent))
		c.expect("1 NoAuth", "2 NoAuth", "3 NoAuth", "4 NoAuth", "5 NoAuth", "6 NoAuth", "7 NoAuth", "8 NoAuth", "9 NoAuth",
			"10 NoNode", "11 Ok")
		if n := m.Stats().QuotasKept; n != 9 {
			t.Errorf("%d requests were counted", n)
		}
		super.send(wire.OpSetData, wire.SetDataRequest{Path: testLimits, Data: []byte("countHardLimit=2"), Version: -1})
		super.send(wire.OpDelete, wire.DeleteRequest{Path: testLimits, Version: -1})
		super.expect("6 Ok", "7 Ok")
	})
}

// With Config.KeepQuotas clients read limits and usage of what they may read, and learn nothing of
// the others: neither from an answer nor from an event.
func TestQuotasAreHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, super := keeper(t, Config{})
		c := mustConnect(t, m, 10*time.Second)
		c.send(wire.OpAddWatch, wire.AddWatchRequest{Path: "/zookeeper", Mode: wire.AddWatchPersistentRecursive})
		c.expect("1 Ok")
		super.send(wire.OpCreate, &wire.CreateRequest{Path: "/a", ACL: digestACL("super:pw")})
		setQuota(super)
		super.expect("2 Ok", "3 Ok", "4 Ok", "5 Ok")
		reads := func(path string) {
			c.send(wire.OpGetData, wire.PathWatchRequest{Path: path})
			c.send(wire.OpExists, wire.PathWatchRequest{Path: path, Watch: true})
			c.send(wire.OpGetChildren, wire.PathWatchRequest{Path: path})
			c.send(wire.OpGetACL, wire.PathRequest{Path: path})
			c.send(wire.OpGetAllChildrenNumber, wire.PathRequest{Path: path})
		}
		reads("/zookeeper/quota/a")
		reads(testStats)
		reads("/zookeeper/quota/b") // there is neither a quota nor a node
		c.expect("2 NoAuth", "3 NoAuth", "4 NoAuth", "5 NoAuth", "6 NoAuth",
			"7 NoAuth", "8 NoAuth", "9 NoAuth", "10 NoAuth", "11 NoAuth",
			"12 NoAuth", "13 NoAuth", "14 NoAuth", "15 NoAuth", "16 NoAuth")
		c.send(wire.OpGetChildren, wire.PathWatchRequest{Path: "/zookeeper/quota"})
		c.expect("17 Ok") // as those of /

		open := wire.SetACLRequest{Path: "/a", ACL: []wire.ACL{{Perms: wire.PermRead, ID: wire.OpenACL[0].ID}}, Version: -1}
		super.send(wire.OpSetACL, open)
		super.expect("6 Ok")
		reads(testStats)
		c.expect("18 Ok", "19 Ok", "20 Ok", "21 Ok", "22 Ok")
	})
}

func digestACL(auth string) []wire.ACL {
	return []wire.ACL{{Perms: wire.PermAll, ID: wire.ID{Scheme: "digest", ID: DigestID(sha1.New, auth)}}}
}

// A request beyond a quota is answered with an error that all libraries know, in multis too, unless
// the configuration chooses ZooKeeper's.
func TestQuotaError(t *testing.T) {
	for want, configured := range map[wire.Code]wire.Code{wire.CodeBadArguments: 0, wire.CodeQuotaExceeded: wire.CodeQuotaExceeded} {
		synctest.Test(t, func(t *testing.T) {
			m, r, super := keeper(t, Config{QuotaError: configured})
			r.flags = znode.EnforceQuota
			super.send(wire.OpCreate, create("/a", wire.ModePersistent))
			setQuota(super)
			super.expect("2 Ok", "3 Ok", "4 Ok", "5 Ok")
			c := mustConnect(t, m, 10*time.Second)
			c.send(wire.OpCreate, create("/a/b", wire.ModePersistent))
			c.expect("1 " + want.Error())
			c.send(wire.OpMulti, wire.MultiRequest{Ops: []wire.MultiOp{{Op: wire.OpCreate, Record: create("/a/b", wire.ModePersistent)}}})
			_, body, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			var multi wire.MultiResponse
			if err := wire.Decode(body, &multi); err != nil || len(multi.Results) != 1 || multi.Results[0].Err != want {
				t.Errorf("multi: %+v, %v; want %v", multi, err, want)
			}
			if n := m.Stats().QuotaExceeded; n != 2 {
				t.Errorf("%d requests were counted", n)
			}
		})
	}
}
