package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"lockkeeper/jepsen"
)

// loneLeader cuts the leader off from the other members, together with half of the clients, and
// restarts the other members meanwhile. They elect another leader at once, as they have no
// connections to the old one that would have to time out first; the old one gives up only when it
// has noticed that its followers are silent, and goes on serving its clients until then. So does a
// switch that fails when the machines behind it lose their power, too. With clients that reach both
// sides nobody would see two holders: they go where requests are answered.
func loneLeader() nemesis {
	return nemesis{
		name: "lone-leader",
		help: "the leader and half of the clients are cut off from the others, which are restarted",
		// Not one of all: half of the clients make no progress meanwhile.
		general: "partition", usable: hasLinks, rest: seconds(4, 8), lasts: seconds(14, 18), plan: planLoneLeader,
	}
}

// planLoneLeader cuts off whoever leads now.
func planLoneLeader(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
	leader := f.leader(ctx)
	if leader == nil {
		return nil, nil
	}
	var others []*jepsen.Member
	var hosts []int
	for _, m := range f.cluster.Members() {
		if m.ID != leader.ID {
			others, hosts = append(others, m), append(hosts, m.ID)
		}
	}
	got, release := f.claim("lone-leader", []any{"links"})
	restarted, releaseMembers := f.claimMembers("lone-leader", rng, others, len(others))
	both := func() { release(); releaseMembers() }
	if len(got) == 0 || len(restarted) < len(others) {
		both()
		return nil, nil
	}
	c, on := cutGroups([][]int{{leader.ID}, hosts})
	with := rng.Perm(len(f.clients))[:len(f.clients)/2]
	return &act{
		on:    fmt.Sprintf("%s, with m%d %s", on, leader.ID, f.clientNames(with)),
		begin: append([]jepsen.Op{{F: jepsen.FCut, Note: on}}, memberOps(jepsen.FKill, others)...),
		end:   append([]jepsen.Op{{F: jepsen.FHeal, Note: on}}, memberOps(jepsen.FRestart, others)...),
		start: func(ctx context.Context) error {
			errs := []error{f.divide(leader, others, with)}
			for _, pair := range c {
				errs = append(errs, f.links.Block(pair[0], pair[1]))
			}
			return errors.Join(append(errs, inTurn(each(killMember), each(startMember))(ctx, f, others))...)
		},
		mend:    func(context.Context) error { return errors.Join(jepsen.HealAll(f.links), f.unite()) },
		release: both,
		harm:    harm{down: hosts, cuts: c},
	}, nil
}

// clientNames are clients, by number, for people.
func (f *field) clientNames(numbers []int) string {
	words := make([]string, len(numbers))
	for i, n := range numbers {
		words[i] = f.clients[n].String()
	}
	return strings.Join(words, ", ")
}

// divide lets some clients, by number, reach one member only, and all others the other members
// only.
func (f *field) divide(one *jepsen.Member, others []*jepsen.Member, with []int) error {
	beyond := make([][]string, len(f.clients)) // members that each client cannot reach
	for n := range beyond {
		beyond[n] = []string{one.ClientAddr}
	}
	for _, n := range with {
		beyond[n] = nil
		for _, m := range others {
			beyond[n] = append(beyond[n], m.ClientAddr)
		}
	}
	var errs []error
	for n, c := range f.clients {
		errs = append(errs, c.cutOff(beyond[n]))
	}
	return errors.Join(errs...)
}

// unite lets all clients reach all members.
func (f *field) unite() error {
	var errs []error
	for _, c := range f.clients {
		errs = append(errs, c.cutOff(nil))
	}
	return errors.Join(errs...)
}
