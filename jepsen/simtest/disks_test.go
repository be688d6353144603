package simtest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"lockkeeper/internal/simdisk"
	"lockkeeper/quorum"
	"lockkeeper/quorum/model/trace"
	"lockkeeper/quorum/raftnet"
	"lockkeeper/quorum/store"
)

// The faults of this file hit disks: they are lost, replaced, come back and are damaged. They are
// played only while the voters with whole disks are a majority without the victim, in every
// configuration that any member has: then nothing may be lost, and nobody has to help.

// serverID is raft's id of the member with the disk that it runs on.
func (p *program) serverID() raft.ServerID {
	r := p.Replica()
	return raftnet.ServerID(r.ID(), r.Disk())
}

// spares reports whether the cluster has a majority without the disk of m. Members that are down
// may have another configuration than those that are up, so all have to be up, but for a spare
// machine that was never a member or is one no longer. The leader may be about to give a nonvoter
// its vote that is lost by then, so there has to be a majority with that vote, too. A disk that has
// joined and has no log yet is no help when the founder's is lost (docs/decisions/017, Not
// detected). While addresses are exchanged with another cluster no disk is spared (exchange).
func (c *cluster) spares(m *member) bool {
	if c.exchanged != nil && c.exchanged() {
		return false
	}
	whole, hasLog, promoted := map[raft.ServerID]bool{}, map[raft.ServerID]bool{}, map[raft.ServerID]bool{}
	var views [][]raft.Server
	for _, o := range c.machines() {
		p := o.running()
		if o == c.spare && p == nil && !o.used {
			continue
		}
		if p == nil || p.failure() != nil {
			return false
		}
		servers := p.Replica().Servers()
		whole[p.serverID()] = o != m && o.diskFault == nil
		hasLog[p.serverID()] = len(servers) > 0
		promoted[p.serverID()] = !o.observer || o == c.spare // whose role the operators choose
		if len(servers) > 0 {
			views = append(views, servers)
		}
	}
	for _, servers := range views {
		for _, soon := range []bool{false, true} {
			voters, left := 0, 0
			for _, s := range servers {
				if s.Suffrage == raft.Voter || soon && promoted[s.ID] && !whole[s.ID] {
					voters++
					if whole[s.ID] && hasLog[s.ID] {
						left++
					}
				}
			}
			if !quorum.NewMaj(voters).Quorum(left) {
				return false
			}
		}
	}
	return len(views) > 0
}

// uncounted names the members that the others do not count in their role, and with their disk; it
// is empty if all are, and nobody else is.
func (c *cluster) uncounted() string {
	var wrong []string
	for _, m := range c.members {
		p := m.running()
		if p == nil {
			continue
		}
		servers := p.Replica().Servers()
		if len(servers) != len(c.members) {
			wrong = append(wrong, fmt.Sprintf("m%d counts %v", m.id, servers))
		}
		for _, o := range c.members {
			q := o.running()
			if q != nil && !slices.ContainsFunc(servers, func(s raft.Server) bool {
				return s.ID == q.serverID() && (s.Suffrage == raft.Voter) != o.observer
			}) {
				wrong = append(wrong, fmt.Sprintf("m%d does not count m%d with %v", m.id, o.id, q.serverID()))
			}
		}
	}
	return strings.Join(wrong, ", ")
}

// replaceDisk ends the member and gives it another disk. It does nothing, and reports that, if the
// cluster does not spare the disk that it has.
func (m *member) replaceDisk(end func(string), left func(*simdisk.Disk, *rand.Rand) *simdisk.Disk, by func(old *simdisk.Disk) *simdisk.Disk) bool {
	m.lock()
	defer m.unlock()
	if !m.c.spares(m) {
		return false
	}
	m.dieLocked(end, left)
	m.disk = by(m.disk)
	m.c.witness.replaced(m)
	m.c.replaced++
	return true
}

// blank is a disk that nobody has used.
func blank() *simdisk.Disk {
	d := simdisk.New()
	d.SetSyncTime(syncTime)
	return d
}

// keepsSpares is the number of replaced disks of a member that may come back.
const keepsSpares = 2

// put keeps a disk that is replaced. No fault of its own time comes back with it.
func (m *member) put(old *simdisk.Disk) {
	old.SetSyncTime(syncTime)
	old.Hang(false)
	old.Fail(nil)
	old.FailReads(nil)
	m.spare = append(m.spare, old)
	m.spare = m.spare[max(0, len(m.spare)-keepsSpares):]
}

// mayReplaceDisk reports whether a member that fails with err sets its files aside, as a server
// with a data directory does (server/datadir/aside.go).
func mayReplaceDisk(err error) bool {
	return errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrOutdated)
}

// setAside gives the member, which does not run, an empty disk.
func (m *member) setAside(err error) {
	if !m.harmed {
		m.c.t.Errorf("m%d sets its files aside, and nobody has damaged them or brought an old disk back: %v", m.id, err)
	}
	m.harmed = false
	m.c.journal.printf("m%d sets its files aside: %v", m.id, err)
	m.disk, m.aside = blank(), true
	m.c.witness.replaced(m)
	m.c.setAside++
}

// spared is a member, drawn by chance, without the disk of which there is a majority; nil if there
// is none.
func (n *nemesis) spared() *member {
	for _, i := range n.rng.Perm(len(n.members)) {
		if m := n.members[i]; n.c.spares(m) {
			return m
		}
	}
	return nil
}

// loseDisk has a member come back with an empty disk.
func (n *nemesis) loseDisk() func() {
	m := n.spared()
	if m == nil || !n.lose(m) {
		return func() {}
	}
	if n.rng.IntN(2) == 0 {
		m.start()
	}
	return m.start
}

func (n *nemesis) lose(m *member) bool {
	end, left := n.c.net.Reset, (*simdisk.Disk).CrashTorn
	if n.rng.IntN(2) == 0 {
		end, left = n.c.net.Kill, (*simdisk.Disk).Killed
	}
	lost := m.replaceDisk(end, left, func(old *simdisk.Disk) *simdisk.Disk {
		m.put(old)
		return blank()
	})
	if lost {
		n.note("m%d has lost its disk", m.id)
	}
	return lost
}

// loseDisks has members lose their disks, one after the other, as soon as the others can do without
// them.
func (n *nemesis) loseDisks() func() {
	for range 2 + n.rng.IntN(2*len(n.members)) {
		m := n.any()
		if n.rng.IntN(3) == 0 {
			m = n.leader()
		}
		for wait := 0; wait < 200 && !n.c.spares(m); wait++ {
			time.Sleep(100 * time.Millisecond)
		}
		if n.lose(m) {
			n.pause(5)
			m.start()
		}
	}
	return func() {
		for _, m := range n.members {
			m.start()
		}
	}
}

// oldDiskBack has a member come back with a disk that another one has replaced.
func (n *nemesis) oldDiskBack() func() {
	for _, i := range n.rng.Perm(len(n.members)) {
		m := n.members[i]
		if len(m.spare) == 0 {
			continue
		}
		if m.replaceDisk(n.c.net.Kill, (*simdisk.Disk).Killed, func(now *simdisk.Disk) *simdisk.Disk {
			k := n.rng.IntN(len(m.spare))
			old := m.spare[k]
			m.spare = slices.Delete(m.spare, k, k+1)
			m.put(now)
			m.harmed = true
			return old
		}) {
			n.note("m%d has an old disk back", m.id)
			return m.start
		}
	}
	return func() {}
}

// setDiskBack has a member come back with its disk as it was some time ago. Nothing else is wrong
// meanwhile: nobody remembers the acknowledgements of the last moment before the leader is lost,
// too.
func (n *nemesis) setDiskBack() func() {
	m := n.any()
	if n.struck > 1 || m.running() == nil {
		return func() {}
	}
	m.lock()
	image := m.disk.Crash()
	m.unlock()
	id := m.running().serverID()
	n.pause(120)
	time.Sleep(5 * time.Second)
	if p := m.running(); n.c.leader() == nil || p == nil || p.serverID() != id || !m.replaceDisk(n.c.net.Kill, (*simdisk.Disk).Killed,
		func(*simdisk.Disk) *simdisk.Disk {
			m.harmed = true
			return image
		}) {
		return func() {}
	}
	n.c.explained.disk(image, trace.SetBack)
	n.note("the disk of m%d was set back", m.id)
	n.c.setBack++
	time.Sleep(5 * time.Second)
	m.start()
	for range 40 {
		time.Sleep(500 * time.Millisecond)
		if m.heal() {
			break
		}
	}
	return m.start
}

// heal starts a member again that has stopped because its files must not be used any more, as a
// supervisor does.
func (m *member) heal() bool {
	m.lock()
	p := m.running()
	failed := p != nil && mayReplaceDisk(p.failure())
	if failed {
		p.mayFail = true
		m.prog.Store(nil)
		m.c.wind(p)
	}
	m.unlock()
	if failed {
		m.start()
	}
	return failed
}

// damage changes some bytes of the log of the member, which does not run, and says where.
func (m *member) damage(rng *rand.Rand) string {
	m.harmed = true
	m.c.explained.disk(m.disk, trace.Damaged)
	return m.disk.Damage(rng)
}

// damageSnapshot damages the newest snapshot of the member, which does not run. It reports whether
// there is one.
func (m *member) damageSnapshot(rng *rand.Rand) bool {
	id := m.disk.DamageSnapshot(rng)
	if id == "" {
		return false
	}
	m.harmed, m.damaged = true, damagedSnapshot{m.disk, id}
	m.c.explained.disk(m.disk, trace.Damaged)
	m.c.journal.printf("damage to snapshot %s of m%d", id, m.id)
	m.c.damagedSnapshots++
	return true
}

// damagedSnapshot is one on a disk.
type damagedSnapshot struct {
	disk *simdisk.Disk
	id   string
}

// verified opens the snapshots of a disk as the store of real members does, which verifies a
// checksum of the whole file first.
type verified struct {
	*simdisk.Disk
	m *member
}

// Open implements raft.SnapshotStore.
func (v verified) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if v.m.damaged == (damagedSnapshot{v.Disk, id}) {
		return nil, nil, fmt.Errorf("snapshot %s: %w: its checksum does not match", id, store.ErrDamaged)
	}
	return v.Disk.Open(id)
}

// checkRefusal checks that a start on a disk with a damaged snapshot has failed, with an error that
// names it.
func (m *member) checkRefusal(err error) {
	if m.disk != m.damaged.disk {
		return
	}
	if !mayReplaceDisk(err) || !strings.Contains(err.Error(), "snapshot "+m.damaged.id) {
		m.c.t.Errorf("after %v: m%d starts with its damaged snapshot %s: %v", m.c.journal.age(), m.id, m.damaged.id, err)
	}
}

// damageDisk changes some bytes of a member's log, or of its newest snapshot, while it is down. It
// ends in an orderly way: in writes of the last second before a power cut, damage cannot be told
// from a torn write.
func (n *nemesis) damageDisk() func() {
	m := n.spared()
	if m == nil {
		return func() {}
	}
	m.lock()
	defer m.unlock()
	p := m.running()
	if p == nil || m.disk.Hangs() || !n.c.spares(m) {
		return func() {}
	}
	m.prog.Store(nil)
	n.c.wind(p)
	if n.rng.IntN(2) == 0 && m.damageSnapshot(n.rng) {
		return m.start
	}
	n.note("damage to the disk of m%d: %s", m.id, m.damage(n.rng))
	n.c.damaged++
	return m.start
}

// hangDisk has a member's disk answer nothing for minutes.
func (n *nemesis) hangDisk() func() {
	m := n.any()
	if n.rng.IntN(2) == 0 {
		m = n.leader()
	}
	n.note("disk of m%d hangs", m.id)
	m.lock()
	m.disk.Hang(true)
	m.unlock()
	n.pause(240)
	return func() {
		n.note("disk of m%d answers again", m.id)
		m.lock()
		defer m.unlock()
		m.disk.Hang(false)
	}
}

// pauseProcess stops a process for a while, as SIGSTOP does: nothing that it does meanwhile reaches
// anybody, or its disk.
func (n *nemesis) pauseProcess() func() {
	m := n.any()
	heal := n.isolate(m)
	for _, host := range n.clients {
		n.c.net.Partition(host, m.name)
	}
	m.lock()
	m.disk.Hang(true)
	m.unlock()
	n.note("pause m%d", m.id)
	if n.gentle {
		time.Sleep(silence)
	}
	n.pause(30)
	return func() {
		m.lock()
		m.disk.Hang(false)
		m.unlock()
		n.note("m%d goes on", m.id)
		for _, host := range n.clients {
			n.c.net.Heal(host, m.name)
		}
		heal()
	}
}

// firstStart starts the members for the first time. In a third of the simulations some are late:
// the others wait for them, or begin without them, if the operator says so.
func (c *cluster) firstStart(rng *rand.Rand) {
	if !c.shape.lateStarts || rng.IntN(3) > 0 {
		c.each((*member).start)
		return
	}
	var late []*member
	for _, i := range rng.Perm(len(c.members))[:1+rng.IntN(2)] {
		late = append(late, c.members[i])
	}
	var without []int
	if rng.IntN(2) == 0 {
		for _, m := range late {
			without = append(without, int(m.id))
		}
	}
	c.journal.printf("late: %d members, without %v", len(late), without)
	for _, m := range c.members {
		if !slices.Contains(late, m) {
			m.startWithout(without...)
		}
	}
	if len(without) > 0 {
		time.Sleep(10 * time.Second) // the others may be less than a majority of all
	}
	for _, m := range late {
		time.Sleep(time.Duration(rng.IntN(60_000)) * time.Millisecond)
		m.start()
	}
}
