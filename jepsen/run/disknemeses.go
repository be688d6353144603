package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"lockkeeper/jepsen"
)

// Faults of members' disks. (jepsen.Op.F)
const (
	// FDiskFull, FDiskFree: there is no space left; there is again.
	FDiskFull = "disk-full"
	FDiskFree = "disk-free"
	// FDiskFail, FDiskNew: every access fails; the member was started again on the synced bytes.
	FDiskFail = "disk-fail"
	FDiskNew  = "disk-new"
)

// diskNemeses are those that need disks of their own for the members.
func diskNemeses() []nemesis {
	full := strike{ // a member that ends because of it is started again when there is space
		began: FDiskFull, over: FDiskFree, choose: anyOne, weakens: true,
		start: each(func(_ context.Context, f *field, m *jepsen.Member) error { return f.disks.Fill(m.ID) }),
		mend: each(func(_ context.Context, f *field, m *jepsen.Member) error {
			err := f.disks.Empty(m.ID)
			if m.Running() {
				return err
			}
			f.say("restart", m.String())
			return errors.Join(err, m.Start())
		}),
	}
	fail := strike{began: FDiskFail, over: FDiskNew, choose: anyOne, weakens: true, start: each(failDisk), mend: each(renew)}
	power := strike{
		began: jepsen.FKill, over: jepsen.FRestart,
		choose: amongAll(func(n int, rng *rand.Rand) int { return []int{1, minority(n), n}[rng.IntN(3)] }),
		// They are stopped first, so that not one instruction is carried out after it.
		start: inTurn(each(pauseMember), each(failDisk), each(killMember)),
		mend:  each(renew),
	}
	rest := seconds(3, 6)
	return []nemesis{
		full.nemesis("disk-full", "one member's disk has no space left", rest, seconds(3, 10), hasDisks),
		fail.nemesis("fsync-fail", "one member's disk fails: EIO for every write and every fsync", rest, seconds(2, 6),
			hasDisks),
		power.nemesis("power", "one, some or all members lose power, and what they had not synced", rest, seconds(0, 4),
			hasDisks),
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

func failDisk(_ context.Context, f *field, m *jepsen.Member) error { return f.disks.Fail(m.ID) }

// renew ends a member and starts it again on the fsynced bytes.
func renew(_ context.Context, f *field, m *jepsen.Member) error {
	return errors.Join(m.Kill(), f.disks.Renew(m.ID), m.Start())
}
