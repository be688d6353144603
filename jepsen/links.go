package jepsen

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Links is the network between the members of a cluster, to be broken. A Network and Proxies are
// one each. Hosts are numbered from 1, as members are. Clients have links of their own, which
// nothing here touches.
type Links interface {
	// Size is the number of hosts.
	Size() int
	// Block loses packets from host from to host to, from now on and on existing connections too,
	// without a word to either. The other direction stays. Blocking twice is blocking once.
	Block(from, to int) error
	// Unblock ends it. Bytes that TCP has kept arrive late.
	Unblock(from, to int) error
	// Shape is how everything travels that a host sends to other hosts; the zero Shape is the way
	// it was. ErrMissing means that this system cannot do it.
	Shape(host int, shape Shape) error
}

// A Shape describes a bad link in one direction.
type Shape struct {
	// Delay is by how much everything comes later, Jitter how much more or less than that it may
	// be. Jitter is at most Delay.
	Delay, Jitter time.Duration
	// Loss is the probability, 0 to 1, that a packet is lost and has to be sent again.
	Loss float64
}

// errNoHost is a host number that is not there.
var errNoHost = errors.New("there is no such host")

// checkHost is the error of a host that is not there, checkPair the error of a block from from to
// to.
func checkHost(l Links, host int) error {
	if host < 1 || host > l.Size() {
		return fmt.Errorf("jepsen: host %d of %d: %w", host, l.Size(), errNoHost)
	}
	return nil
}

func checkPair(l Links, from, to int) error {
	if from == to {
		return fmt.Errorf("jepsen: host %d has no link to itself", from)
	}
	return errors.Join(checkHost(l, from), checkHost(l, to))
}

// Apart are the pairs of hosts 1 to n, from and to, that have no group in common. A host may be in
// several groups; one that is in none is alone.
func Apart(n int, groups [][]int) (pairs [][2]int) {
	for from := 1; from <= n; from++ {
		for to := 1; to <= n; to++ {
			together := slices.ContainsFunc(groups, func(group []int) bool {
				return slices.Contains(group, from) && slices.Contains(group, to)
			})
			if from != to && !together {
				pairs = append(pairs, [2]int{from, to})
			}
		}
	}
	return pairs
}

// Partition blocks all pairs of hosts that are Apart and unblocks all others.
func Partition(l Links, groups [][]int) error {
	var errs []error
	for _, host := range slices.Concat(groups...) {
		errs = append(errs, checkHost(l, host))
	}
	apart := Apart(l.Size(), groups)
	for _, pair := range Apart(l.Size(), nil) { // all pairs
		if slices.Contains(apart, pair) {
			errs = append(errs, l.Block(pair[0], pair[1]))
		} else {
			errs = append(errs, l.Unblock(pair[0], pair[1]))
		}
	}
	return errors.Join(errs...)
}

// HealAll unblocks everything. Shapes stay.
func HealAll(l Links) error {
	all := make([]int, l.Size())
	for i := range all {
		all[i] = i + 1
	}
	return Partition(l, [][]int{all})
}
