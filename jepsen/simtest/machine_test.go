package simtest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"lockkeeper/internal/clock"
)

// driftMost is by how much the clock of a machine may be too fast or too slow.
const driftMost = 0.02

// machine has the clocks of a member: a quartz of its own, which drifts. It can be suspended. Its
// programs go on then, because nobody can stop a part of a bubble; so its network has to be cut
// first, and their output meanwhile reaches nobody.
type machine struct {
	origin time.Time
	speed  float64

	mu     sync.Mutex
	asleep time.Duration // until since
	since  time.Time     // of the suspend that has not ended; zero: it is awake
	choice *rand.Rand    // of yield
}

func newMachine(rng *rand.Rand) *machine {
	return &machine{origin: time.Now(), speed: 1 + driftMost*(2*rng.Float64()-1), choice: rand.New(rand.NewPCG(rng.Uint64(), 0))}
}

// yield lets other goroutines go on where a term, a vote or a role is read or written, or does not:
// the seed chooses. A simulation has one processor, which alone would never show some races.
func (m *machine) yield() {
	m.mu.Lock()
	yields := m.choice.IntN(4) == 0
	m.mu.Unlock()
	if yields {
		runtime.Gosched()
	}
}

// passed is how much time the quartz has counted until at.
func (m *machine) passed(at time.Time) time.Duration {
	return time.Duration(float64(at.Sub(m.origin)) * m.speed)
}

func (m *machine) slept() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() {
		return m.asleep
	}
	return m.asleep + m.passed(time.Now()) - m.passed(m.since)
}

// awake is the monotonic clock.
func (m *machine) awake() time.Time {
	slept := m.slept()
	return m.origin.Add(m.passed(time.Now()) - slept)
}

// clock is the clock of a program that starts now.
func (m *machine) clock() *clock.Clock { return clock.New(m.awake, m.slept) }

func (m *machine) suspend() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since.IsZero() {
		m.since = time.Now()
	}
}

func (m *machine) wake() {
	slept := m.slept()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asleep, m.since = slept, time.Time{}
}

// suspendMember suspends a machine for a while. When it wakes, clients reach it at once, and the
// other members do not: the leases that it remembers are all that it has.
func (n *nemesis) suspendMember() func() {
	m := n.any()
	heal := n.isolate(m)
	for _, host := range n.clients {
		n.c.net.Partition(host, m.name)
	}
	n.note("suspend m%d", m.id)
	m.machine.suspend()
	if n.gentle {
		time.Sleep(silence)
	}
	n.pause(20)
	m.machine.wake()
	n.note("m%d wakes", m.id)
	for _, host := range n.clients {
		n.c.net.Heal(host, m.name)
	}
	return heal
}

// A member is suspended, and wakes without a connection to the others. Its client, which reads all
// the time, must know that it is cut off before its session ends (C6).
//
// Defends: C6.
func TestSuspendedMemberIsSilent(t *testing.T) {
	testMargin(t, func(c *cluster, rng *rand.Rand) *member {
		l := c.awaitLeader()
		return c.members[(int(l.id)+rng.IntN(2))%len(c.members)]
	}, func(c *cluster, m *member, rng *rand.Rand) {
		timeout := c.marginTimeout
		c.journal.printf("nemesis: %s", fmt.Sprintf("suspend m%d", m.id))
		for _, o := range c.members {
			if o != m {
				c.net.Partition(m.name, o.name)
			}
		}
		c.net.Partition(m.name, marginHost)
		m.machine.suspend()
		time.Sleep(timeout * time.Duration(30+rng.IntN(30)) / 100)
		m.machine.wake()
		c.net.Heal(m.name, marginHost)
	})
}
