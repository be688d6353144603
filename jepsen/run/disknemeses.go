package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"lockkeeper/jepsen"
)

// What happens to members' disks. (jepsen.Op.F)
const (
	// FDiskFull, FDiskFree: there is no space left; there is again.
	FDiskFull = "disk-full"
	FDiskFree = "disk-free"
	// FDiskFail, FDiskNew: every access fails; the member was started again on
	// what had been synced.
	FDiskFail = "disk-fail"
	FDiskNew  = "disk-new"
)

// diskNemeses are those that need disks of their own for the members.
func diskNemeses() []nemesis {
	return []nemesis{
		{
			name: "disk-full", help: "one member's disk has no space left",
			usable: hasDisks, rest: seconds(3, 6), lasts: seconds(3, 10), plan: planDiskFull,
		},
		{
			name: "fsync-fail", help: "one member's disk fails: EIO for every write and every fsync",
			usable: hasDisks, rest: seconds(3, 6), lasts: seconds(2, 6), plan: planDiskFail,
		},
		{
			name: "power", help: "one, some or all members lose power, and what they had not synced",
			usable: hasDisks, rest: seconds(3, 6), lasts: seconds(0, 4), plan: planPower,
		},
	}
}

// needDisks are the names of the nemeses above.
func needDisks() []string {
	var names []string
	for _, n := range diskNemeses() {
		names = append(names, n.name)
	}
	return names
}

// hasDisks says why there are no disks, if so.
func hasDisks(f *field) error {
	if f.disks == nil {
		return fmt.Errorf("%w: %w", errUnusable, jepsen.FindDisks())
	}
	return nil
}

// restart starts a member that may have ended by itself.
func (f *field) restart(m *jepsen.Member) error {
	if m.Running() {
		return nil
	}
	f.say("restart", m.String())
	return m.Start()
}

// planDiskFull fills a disk. A member that ends because of it is started again
// when there is space.
func planDiskFull(_ context.Context, f *field, rng *rand.Rand) (*act, error) {
	victims, release := f.claimMembers("disk-full", rng, f.cluster.Members(), 1)
	if len(victims) == 0 {
		return nil, nil
	}
	m := victims[0]
	return &act{
		on: m.String(), begin: memberOps(FDiskFull, victims), end: memberOps(FDiskFree, victims),
		start:   func(context.Context) error { return f.disks.Fill(m.ID) },
		mend:    func(context.Context) error { return errors.Join(f.disks.Empty(m.ID), f.restart(m)) },
		release: release,
		harm:    stopped(victims),
	}, nil
}

// renew ends a member and starts it again on what its disk had been told to
// keep.
func (f *field) renew(m *jepsen.Member) error {
	return errors.Join(m.Kill(), f.disks.Renew(m.ID), m.Start())
}

// planDiskFail has a disk fail under a member that runs.
func planDiskFail(_ context.Context, f *field, rng *rand.Rand) (*act, error) {
	victims, release := f.claimMembers("fsync-fail", rng, f.cluster.Members(), 1)
	if len(victims) == 0 {
		return nil, nil
	}
	m := victims[0]
	return &act{
		on: m.String(), begin: memberOps(FDiskFail, victims), end: memberOps(FDiskNew, victims),
		start:   func(context.Context) error { return f.disks.Fail(m.ID) },
		mend:    func(context.Context) error { return f.renew(m) },
		release: release,
		harm:    stopped(victims),
	}, nil
}

// planPower cuts the power of members. They are stopped first, so that not one
// instruction is carried out after it.
func planPower(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
	all := f.cluster.Members()
	n := []int{1, max((len(all)-1)/2, 1), len(all)}[rng.IntN(3)]
	victims, release := f.claimMembers("power", rng, all, n)
	if len(victims) == 0 {
		return nil, nil
	}
	return &act{
		on: names(victims), begin: memberOps(jepsen.FKill, victims), end: memberOps(jepsen.FRestart, victims),
		start: func(ctx context.Context) error {
			return errors.Join(
				each(victims, func(m *jepsen.Member) error { return m.Pause(ctx) }),
				each(victims, func(m *jepsen.Member) error { return f.disks.Fail(m.ID) }),
				each(victims, func(m *jepsen.Member) error { return m.Kill() }))
		},
		mend:    func(context.Context) error { return each(victims, f.renew) },
		release: release,
		harm:    stopped(victims),
	}, nil
}
