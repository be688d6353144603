package jepsen

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrReplicasDiffer says that two members hold different trees at one zxid.
var ErrReplicasDiffer = errors.New("replicas differ")

// digests are what members say of their states with the word hash: by zxid, the
// digest of the tree as it was then. lockkeeper has one, of its newest zxid;
// ZooKeeper has one for every 128th.
type digests map[string]int64

// AwaitAgreement waits until all members show the same digest for one zxid, and
// returns it. Nobody should write meanwhile. The error wraps ErrReplicasDiffer
// when they never will, or says at the end of ctx what is missing.
func (c *Cluster) AwaitAgreement(ctx context.Context) (zxid string, err error) {
	var differ error
	err = poll(ctx, 100*time.Millisecond, func() error {
		all := make([]digests, len(c.members))
		for i, m := range c.members {
			text, err := FourLetter(ctx, m.ClientAddr, "hash")
			if err != nil {
				return fmt.Errorf("%s does not say what it holds: %w", m, err)
			}
			all[i] = parseDigests(text)
		}
		var how string
		if zxid, how = compareDigests(all); how != "" {
			differ = fmt.Errorf("%w: %s", ErrReplicasDiffer, how)
			return nil
		}
		if zxid == "" {
			return errors.New("the members did not come to one zxid")
		}
		return nil
	})
	return zxid, errors.Join(err, differ)
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
