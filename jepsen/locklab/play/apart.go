package play

import (
	"context"
	"errors"
	"fmt"

	"lockkeeper/jepsen"
)

// hitApart cuts the network in two: between servers, and between each client and the servers of the
// other side.
func (s *Stage) hitApart(f Fault, trios []*trio, primary int) error {
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
			t.fail(errors.Join(
				t.a.block(server, !left[server], !left[server]),
				t.b.block(server, left[server], left[server]),
				t.c.block(server, left[server], left[server])))
		}
	})
	return err
}

// names are those of servers, given as hosts.
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
	if s.kind.Cuts[0] == [2]int{1, 1} { // there are two primaries now
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
