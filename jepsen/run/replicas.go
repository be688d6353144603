package run

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
	"lockkeeper/jepsen/workload"
)

// replicaPatience is how long it may take until all members show the same
// state, when nobody changes it any more.
const replicaPatience = 30 * time.Second

// digests are what members say of their states with the word hash: by zxid, the
// digest of the tree as it was then. lockkeeper has one, of its newest zxid;
// ZooKeeper has one for every 128th.
type digests map[string]int64

// checkReplicas says whether all members hold the same: whatever the clients
// saw, two replicas with one zxid and two states are a broken promise.
func (s *stage) checkReplicas(ctx context.Context) workload.Verdict {
	ctx, cancel := context.WithTimeout(ctx, replicaPatience)
	defer cancel()
	members := s.field.cluster.Members()
	v := workload.Verdict{Checker: "replicas", Promise: "C1", Valid: workload.Unknown}
	for {
		all := make([]digests, len(members))
		for i, m := range members {
			text, err := jepsen.FourLetter(ctx, m.ClientAddr, "hash")
			if err != nil {
				v.Text = fmt.Sprintf("%s does not say what it holds: %v", m, err)
				break
			}
			all[i] = parseDigests(text)
		}
		zxid, differ := compareDigests(all)
		switch {
		case differ != "":
			v.Valid, v.Text = workload.No, differ
			v.Violations = []workload.Violation{{Text: differ}}
			return v
		case zxid != "":
			v.Valid, v.Text = workload.Yes, fmt.Sprintf("%d members hold the same at zxid 0x%s", len(members), zxid)
			return v
		case v.Text == "":
			v.Text = "the members did not come to one zxid"
		}
		if !pause(ctx, 100*time.Millisecond) {
			return v
		}
	}
}

// parseDigests reads the answer to hash.
func parseDigests(text string) digests {
	found := make(digests)
	for line := range strings.Lines(text) {
		zxid, digest, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseInt(digest, 10, 64); ok && err == nil {
			found[zxid] = n
		}
	}
	return found
}

// compareDigests finds a zxid that all have with one digest, and a zxid that two
// have with different ones.
func compareDigests(all []digests) (zxid, differ string) {
	for at, digest := range all[0] {
		everybody := true
		for _, other := range all[1:] {
			d, has := other[at]
			everybody = everybody && has && d == digest
		}
		if everybody {
			zxid = max(zxid, at)
		}
	}
	for i, one := range all {
		for j, other := range all[:i] {
			for at, digest := range one {
				if d, both := other[at]; both && d != digest {
					return "", fmt.Sprintf("at zxid 0x%s member %d holds something else than member %d (digests %d and %d)", at, i+1, j+1, digest, d)
				}
			}
		}
	}
	return zxid, ""
}
