package jepsen

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Links is the network between the members of a cluster, seen from one who breaks it. A Network and
// Proxies are one each. Hosts are numbered from 1, as members are. Clients have links of their own,
// which nothing here touches.
type Links interface {
	// Size is how many hosts there are.
	Size() int
	// Block loses what host from sends to host to, from now on and on existing connections too,
	// without a word to either. The other direction stays. Blocking twice is blocking once.
	Block(from, to int) error
	// Unblock ends it. What TCP has kept arrives late.
	Unblock(from, to int) error
	// Partition blocks, both ways, all pairs of hosts that have no group in common, and unblocks
	// all others. A host may be in several groups; one that is in none is alone.
	Partition(groups [][]int) error
	// HealAll unblocks everything. Shapes stay.
	HealAll() error
	// Shape is how everything travels that a host sends to other hosts; the zero Shape is the way
	// it was. ErrMissing means that this system cannot do it.
	Shape(host int, shape Shape) error
}

// A Shape is what a bad link does to what passes in one direction.
type Shape struct {
	// Delay is by how much everything comes later, Jitter how much more or less than that it may
	// be. Jitter is at most Delay.
	Delay, Jitter time.Duration
	// Loss is the probability, 0 to 1, that a packet is lost and has to be sent again.
	Loss float64
}

// errNoHost is a host number that is not there.
var errNoHost = errors.New("there is no such host")

// checkPair is the error of a block from from to to.
func checkPair(l Links, from, to int) error {
	for _, host := range []int{from, to} {
		if host < 1 || host > l.Size() {
			return fmt.Errorf("jepsen: host %d of %d: %w", host, l.Size(), errNoHost)
		}
	}
	if from == to {
		return fmt.Errorf("jepsen: host %d has no link to itself", from)
	}
	return nil
}

// partition is Links.Partition for all kinds of links.
func partition(l Links, groups [][]int) error {
	var errs []error
	for _, group := range groups {
		for _, host := range group {
			if host < 1 || host > l.Size() {
				return fmt.Errorf("jepsen: partition: host %d of %d: %w", host, l.Size(), errNoHost)
			}
		}
	}
	for from := 1; from <= l.Size(); from++ {
		for to := 1; to <= l.Size(); to++ {
			if from == to {
				continue
			}
			together := slices.ContainsFunc(groups, func(group []int) bool {
				return slices.Contains(group, from) && slices.Contains(group, to)
			})
			if together {
				errs = append(errs, l.Unblock(from, to))
			} else {
				errs = append(errs, l.Block(from, to))
			}
		}
	}
	return errors.Join(errs...)
}
