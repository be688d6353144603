package recipes

import (
	"strings"
	"testing"

	"lockkeeper/locknode"
)

// TestAwaitedLayouts: the inspection is certain that a lock waits for
// another, is so in the table that TestLivePairs compares with the libraries.
func TestAwaitedLayouts(t *testing.T) {
	table := readPairTable(t)
	columns := map[string]string{
		lockName: "lock-", writeName: "WRIT", readName: "READ", locknode.LayoutKazooLock: "lock", locknode.LayoutKazooRead: "rlock",
		locknode.LayoutSession: "x-", leaseName: "Curator lease", locknode.LayoutKazooLease: "kazoo lease",
	}
	seen := 0
	for _, f := range pairForms {
		if f.in == "go" || f.name == "SharedLock" || f.name == "SharedMutex" || f.name == "patterns" {
			continue // no library's own
		}
		layout := ""
		for l, column := range columns {
			if column == f.column {
				layout = l
			}
		}
		for other, column := range columns {
			cell := table[[2]string{f.title, column}]
			waits := cell == pairWaits || cell == pairNever
			if locknode.Awaits(layout, other) && !waits {
				t.Errorf("%s is taken to wait for %s; the table has %q", f.title, other, cell)
			}
			seen += strings.Count(cell, pairWaits)
		}
	}
	if seen == 0 {
		t.Error("no lock waits for any other")
	}
}
