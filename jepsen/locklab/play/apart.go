package play

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lockkeeper/jepsen"
)

// hitApart cuts the network in two: between servers, and between each client and the servers of the
// other side. Where an operator or sentinels would, a replica is made the primary of its side.
func (s *Stage) hitApart(ctx context.Context, f Fault, trios []*trio, primary int) error {
	n := len(s.sys.Servers())
	sides := make([][]int, 2) // servers, as hosts of the network
	left := make([]bool, n)
	for i := range n {
		server := (primary + i) % n
		left[server] = i < f.Left
		side := 1
		if left[server] {
			side = 0
		}
		sides[side] = append(sides[side], 1+server)
	}
	// Clients may learn of the first part of the cut before the last part is made.
	s.note(trios, Apart, "the network is cut: A and %s | B, C and %s", s.names(sides[0]), s.names(sides[1]))
	err := jepsen.Partition(s.network, sides)
	together(trios, func(t *trio) {
		for server := range n {
			t.fail(errors.Join( // both ways
				t.a.block(server, !left[server], !left[server]),
				t.b.block(server, left[server], left[server]),
				t.c.block(server, left[server], left[server])))
		}
	})
	if err != nil || !s.replicated() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := s.sys.Failover(ctx); err != nil {
		s.note(trios, Healed, "nobody has taken over: %v", err)
	}
	return nil
}

// replicated says whether the system is a primary with a replica, and no majority decides.
func (s *Stage) replicated() bool { return slices.Contains(s.kind.Cuts, [2]int{1, 1}) }

// names are the names of servers, given as hosts.
func (s *Stage) names(hosts []int) (text string) {
	for i, host := range hosts {
		if i > 0 {
			text += " "
		}
		text += s.sys.Servers()[host-1].Name()
	}
	return text
}

// heal joins the network again. The system is whole when it has one that decides.
func (s *Stage) heal(ctx context.Context) error {
	if err := jepsen.HealAll(s.network); err != nil {
		return err
	}
	if s.replicated() { // there are two primaries now
		s.failed = true
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if err := s.sys.Failover(ctx); err != nil {
		return fmt.Errorf("play: after a cut: %w", err)
	}
	return nil
}
