package simtest

import (
	"math/rand/v2"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum"
	"lockkeeper/quorum/store"
	"lockkeeper/wire"
	"lockkeeper/znode"
)

// The fault of this file is import=auto in the configuration of a member that loses its disk: it
// comes back with ZooKeeper's old data, and a cluster that counts other data is at work (C1).

// importedPath is a node of the imported data.
const importedPath = "/imported"

// importedDisk is a blank disk of the member on which ZooKeeper's data were imported.
func (m *member) importedDisk(index uint64) *simdisk.Disk {
	d := blank()
	d.SetSyncTime(0)
	defer d.SetSyncTime(syncTime)
	stores, err := store.OpenOn(d.Files(), segmentBytes, d, d)
	if err != nil {
		m.c.t.Errorf("m%d: import: %v", m.id, err)
		return d
	}
	node := znode.Node{Path: importedPath, ACL: wire.OpenACL, Czxid: 1, Mzxid: 1, Pzxid: 1, CtimeMs: 1, MtimeMs: 1}
	state, err := znode.FromContent(znode.Content{Zxid: wire.Zxid(index), Sessions: func(func(znode.Session) bool) {},
		Nodes: func(yield func(znode.Node) bool) { yield(node) }})
	if err == nil {
		cfg := quorum.Config{ID: quorum.MemberID(m.id), Members: make([]quorum.Member, len(m.c.members)), Stores: stores}
		err = quorum.Import(cfg, quorum.Origin{Term: 1, StateTerm: 1, Index: index}, state)
	}
	if err != nil {
		m.c.t.Errorf("m%d: import: %v", m.id, err)
	}
	if err := stores.Close(); err != nil {
		m.c.t.Errorf("m%d: import: %v", m.id, err)
	}
	return d
}

// importAgain has a member lose its disk and come back with imported data.
func (n *nemesis) importAgain() func() {
	m := n.spared()
	if m == nil {
		return func() {}
	}
	disk := m.importedDisk(1 + n.rng.Uint64N(1<<n.rng.IntN(34)))
	if !m.replaceDisk(n.c.net.Kill, (*simdisk.Disk).Killed, func(*simdisk.Disk) *simdisk.Disk {
		m.harmed, m.imported = true, disk
		return disk
	}) {
		return func() {}
	}
	n.note("m%d comes back with imported data", m.id)
	n.c.imports++
	m.start()
	n.supervise(m)
	return m.start
}

// supervise starts the member again until it has set its imported data aside, for 20 s at most. It
// reports whether it has.
func (n *nemesis) supervise(m *member) bool {
	for wait := 0; wait < 40 && m.disk == m.imported; wait++ {
		time.Sleep(500 * time.Millisecond)
		m.heal()
	}
	return m.disk != m.imported
}

// outdateImports checks that no member keeps the data that it has imported beside the cluster. All
// is healed.
func (n *nemesis) outdateImports() {
	for _, m := range n.members {
		if !n.supervise(m) {
			n.c.t.Errorf("after %v: m%d keeps the data that it has imported", n.c.journal.age(), m.id)
		}
	}
}

// A member that was never started comes to a cluster at work with imported data. They do not count.
func TestImportFindsAClusterAtWork(t *testing.T) {
	inDisks(t, directedShape, func(c *cluster) {
		late := c.members[2]
		for _, m := range c.members[:2] {
			m.startWithout(int(late.id))
		}
		c.awaitLeader()
		if !c.members[0].write("/kept") {
			c.t.Error("members 1 and 2 do not work without member 3")
		}
		late.disk = late.importedDisk(1<<32 + 20)
		late.harmed, late.imported = true, late.disk
		late.start()
		n := &nemesis{c: c, members: c.members, rng: rand.New(rand.NewPCG(1, 1))}
		n.outdateImports()
		time.Sleep(10 * time.Second)
		c.settled(30 * time.Second)
		for _, m := range c.members {
			if !m.has("/kept") || m.has(importedPath) {
				c.t.Errorf("m%d does not have the data of the cluster", m.id)
			}
		}
	})
}
