package run

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// A cut is which host does not hear which: from, to.
type cut [][2]int

// partitions are the nemeses of the network between the members.
func partitions() []nemesis {
	return oneOf("partition", "one of the following kinds each time",
		partition("partition-halves", "two halves, as equal as they can be", cutHalves),
		partition("partition-majority-ring", "each member hears a majority, no two the same",
			func(hosts []int, _ int) (cut, string) { return cutRing(hosts, len(hosts)/2+1) }),
		partition("partition-minority-ring", "each member hears the next ones, too few to lead",
			func(hosts []int, _ int) (cut, string) { return cutRing(hosts, len(hosts)/2) }),
		partition("partition-leader", "the leader is cut off from all others",
			func(hosts []int, leader int) (cut, string) {
				return cutGroups([][]int{{leader}, without(hosts, leader)})
			}),
		partition("partition-bridge", "two halves that only one member connects", cutBridge),
		nemesis{
			name:   "partition-one-way",
			help:   "a member hears nobody, or nobody hears it; half the time it is the leader",
			usable: hasLinks, rest: seconds(2, 6), lasts: seconds(3, 12), plan: planOneWay,
		},
	)
}

// partition makes a nemesis of a way to cut. hosts are in random order.
func partition(name, help string, choose func(hosts []int, leader int) (cut, string)) nemesis {
	return nemesis{
		name: name, help: help, usable: hasLinks,
		rest: seconds(2, 6), lasts: seconds(3, 12),
		plan: func(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
			hosts := shuffled(f, rng)
			leader := hosts[0]
			if m := f.leader(ctx); m != nil {
				leader = m.ID
			}
			c, on := choose(hosts, leader)
			return c.act(f, name, on), nil
		},
	}
}

// hasLinks says why the network cannot be cut, if so.
func hasLinks(f *field) error {
	if f.links == nil {
		return fmt.Errorf("%w: one member has no network", errUnusable)
	}
	return nil
}

// shuffled are the hosts' numbers in random order.
func shuffled(f *field, rng *rand.Rand) []int {
	hosts := rng.Perm(f.links.Size())
	for i := range hosts {
		hosts[i]++
	}
	return hosts
}

func without(hosts []int, one int) []int {
	return slices.DeleteFunc(slices.Clone(hosts), func(h int) bool { return h == one })
}

// act is the cut as an act. Only one nemesis cuts at a time: the cuts of two would heal each other.
func (c cut) act(f *field, name, on string) *act {
	got, release := f.claim(name, []any{"links"})
	if len(got) == 0 {
		return nil
	}
	return &act{
		on:    on,
		begin: []jepsen.Op{{F: jepsen.FCut, Note: on}},
		end:   []jepsen.Op{{F: jepsen.FHeal, Note: on}},
		start: func(context.Context) error {
			var errs []error
			for _, pair := range c {
				errs = append(errs, f.links.Block(pair[0], pair[1]))
			}
			return errors.Join(errs...)
		},
		mend:    func(context.Context) error { return jepsen.HealAll(f.links) },
		release: release,
		harm:    harm{cuts: c},
	}
}

// cutGroups separates groups of all hosts from each other, both ways.
func cutGroups(groups [][]int) (cut, string) {
	var words []string
	for _, group := range groups {
		words = append(words, members(group))
	}
	return jepsen.Apart(slices.Max(slices.Concat(groups...)), groups), strings.Join(words, " | ")
}

// members are hosts for people.
func members(hosts []int) string {
	words := make([]string, len(hosts))
	for i, h := range hosts {
		words[i] = "m" + strconv.Itoa(h)
	}
	return strings.Join(words, " ")
}

func cutHalves(hosts []int, _ int) (cut, string) {
	return cutGroups([][]int{hosts[:len(hosts)/2], hosts[len(hosts)/2:]})
}

// cutBridge leaves the last host connected to all.
func cutBridge(hosts []int, _ int) (cut, string) {
	n := len(hosts) - 1
	left, right := hosts[:n/2], hosts[n/2:n]
	c, _ := cutGroups([][]int{slices.Concat(left, hosts[n:]), slices.Concat(right, hosts[n:])})
	return c, fmt.Sprintf("%s | %s, between them m%d", members(left), members(right), hosts[n])
}

// cutRing has every host hear only itself and the next ones in a ring, a given number in all.
func cutRing(hosts []int, hears int) (cut, string) {
	var c cut
	for i, to := range hosts {
		for k := hears; k < len(hosts); k++ {
			c = append(c, [2]int{hosts[(i+k)%len(hosts)], to})
		}
	}
	return c, fmt.Sprintf("each hears itself and the next %d of %s", hears-1, members(hosts))
}

// planOneWay silences or deafens one member.
func planOneWay(ctx context.Context, f *field, rng *rand.Rand) (*act, error) {
	hosts := shuffled(f, rng)
	victim := hosts[0]
	leads, deaf := rng.IntN(2) == 0, rng.IntN(2) == 0
	if m := f.leader(ctx); m != nil && leads {
		victim = m.ID
	}
	var c cut
	for _, other := range without(hosts, victim) {
		pair := [2]int{victim, other}
		if deaf {
			pair = [2]int{other, victim}
		}
		c = append(c, pair)
	}
	on := fmt.Sprintf("nobody hears m%d", victim)
	if deaf {
		on = fmt.Sprintf("m%d hears nobody", victim)
	}
	return c.act(f, "partition-one-way", on), nil
}

// FSlow, FLossy: a member's messages come late, or not at the first try; FSmooth: they do not any
// more. (jepsen.Op.F)
const (
	FSlow   = "slow"
	FLossy  = "lossy"
	FSmooth = "smooth"
)

// linkNemeses make links bad.
func linkNemeses() []nemesis {
	return []nemesis{
		badLinks("slow", FSlow, "what some members send to others takes 20 to 400 ms",
			func(rng *rand.Rand) (jepsen.Shape, string) {
				delay := time.Duration(20+rng.IntN(280)) * time.Millisecond
				return jepsen.Shape{Delay: delay, Jitter: delay / 3},
					fmt.Sprintf("%v ± %v", delay, (delay / 3).Round(time.Millisecond))
			}),
		badLinks("lossy", FLossy, "1 to 20 % of the packets that some members send to others are lost",
			func(rng *rand.Rand) (jepsen.Shape, string) {
				percent := 1 + rng.IntN(20)
				return jepsen.Shape{Loss: float64(percent) / 100}, fmt.Sprintf("%d %%", percent)
			}),
	}
}

func badLinks(name, f, help string, choose func(*rand.Rand) (jepsen.Shape, string)) nemesis {
	return nemesis{
		name: name, help: help, rest: seconds(2, 5), lasts: seconds(3, 12),
		usable: func(field *field) error {
			if err := hasLinks(field); err != nil {
				return err
			}
			if err := field.links.Shape(1, jepsen.Shape{Delay: time.Millisecond}); err != nil {
				return err
			}
			return field.links.Shape(1, jepsen.Shape{})
		},
		plan: func(_ context.Context, field *field, rng *rand.Rand) (*act, error) {
			hosts := shuffled(field, rng)[:1+rng.IntN(field.links.Size())]
			shape, what := choose(rng)
			var things []any
			for _, h := range hosts {
				things = append(things, fmt.Sprintf("link %d", h))
			}
			taken, release := field.claim(name, things)
			if len(taken) < len(hosts) {
				release()
				return nil, nil
			}
			set := func(shape jepsen.Shape) func(context.Context) error {
				return func(context.Context) error {
					var errs []error
					for _, h := range hosts {
						errs = append(errs, field.links.Shape(h, shape))
					}
					return errors.Join(errs...)
				}
			}
			on := members(hosts) + ", " + what
			return &act{
				on: on, begin: []jepsen.Op{{F: f, Note: on}}, end: []jepsen.Op{{F: FSmooth, Note: on}},
				start: set(shape), mend: set(jepsen.Shape{}), release: release,
				harm: harm{weak: hosts}, // they act, but nobody can say how fast
			}, nil
		},
	}
}

// FSwap, FSwapBack: two members have each other's peer addresses; they have their own again.
// (jepsen.Op.F)
const (
	FSwap     = "swap"
	FSwapBack = "swap-back"
)

// swapNemeses exchange addresses.
func swapNemeses() []nemesis {
	return []nemesis{{
		name: "swap", help: "two members have each other's peer addresses for a while",
		usable: canSwap, rest: seconds(3, 8), lasts: seconds(2, 8), plan: planSwap,
	}}
}

// canSwap says why addresses cannot be exchanged, if so.
func canSwap(f *field) error {
	if err := errors.Join(onlyLockkeeper(f), hasLinks(f)); err != nil {
		return err
	}
	if _, proxies := f.links.(*jepsen.Proxies); !proxies {
		return fmt.Errorf("%w: addresses are exchanged behind proxies only", errUnusable)
	}
	return nil
}

// planSwap exchanges the addresses of two members. Nobody else is to reach either of them.
func planSwap(_ context.Context, f *field, rng *rand.Rand) (*act, error) {
	two := shuffled(f, rng)[:2]
	got, release := f.claim("swap", []any{"addresses"})
	if len(got) == 0 {
		return nil, nil
	}
	exchange := func(context.Context) error { return f.links.(*jepsen.Proxies).Exchange(two[0], two[1]) }
	on := fmt.Sprintf("m%d <-> m%d", two[0], two[1])
	return &act{
		on: on, begin: []jepsen.Op{{F: FSwap, Note: on}}, end: []jepsen.Op{{F: FSwapBack, Note: on}},
		start: exchange, mend: exchange, release: release, harm: harm{weak: two},
	}, nil
}
