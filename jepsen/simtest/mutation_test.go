package simtest

import (
	"flag"
	"testing"
	"time"

	"lockkeeper/internal/simdisk"
	"lockkeeper/jepsen/mutant"
)

var simMutation = flag.String("sim.mutation", "", "planted bug that the simulations are to catch (needs the overlay of jepsen/mutant)")

// mutationLag is the greatest age of unsynced bytes that a power cut destroys: Linux writes back
// after 30 s.
const mutationLag = 30 * time.Second

// plant switches the mutation of the command line on.
func plant(t *testing.T) {
	if err := mutant.Use(*simMutation); err != nil {
		t.Fatal(err)
	}
}

// forgetful makes the member's program one that forgets to sync, if that is the planted bug.
func forgetful(m *member) {
	m.lock()
	defer m.unlock()
	d := m.disk
	if mutant.On(mutant.VoteNotSynced) {
		d.SetWriteBack(simdisk.VoteStore, mutationLag)
	}
	if mutant.On(mutant.EarlySnapshot) {
		d.SetWriteBack(simdisk.SnapshotStore, mutationLag)
	}
}
