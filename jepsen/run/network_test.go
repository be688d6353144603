package run

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// heardBy is whom each host hears under a cut, itself included.
func heardBy(c cut, n int) map[int][]int {
	heard := make(map[int][]int)
	for to := 1; to <= n; to++ {
		for from := 1; from <= n; from++ {
			if !slices.Contains(c, [2]int{from, to}) {
				heard[to] = append(heard[to], from)
			}
		}
	}
	return heard
}

// Every kind of cut fits its name, whatever the order of the hosts.
func TestCuts(t *testing.T) {
	for n := 2; n <= 7; n++ {
		for seed := range uint64(20) {
			rng := rand.New(rand.NewPCG(seed, 0))
			hosts := rng.Perm(n)
			for i := range hosts {
				hosts[i]++
			}
			check := func(what string, ok bool, c cut) {
				t.Helper()
				if !ok {
					t.Errorf("%d hosts, %v: %s: %v", n, hosts, what, heardBy(c, n))
				}
			}
			c, _ := cutHalves(hosts, 1)
			small := 0
			for _, heard := range heardBy(c, n) {
				if len(heard) == n/2 {
					small++
				}
			}
			check("two halves", small == n/2 || n%2 == 0 && small == n, c)

			c, _ = cutRing(hosts, n/2+1)
			heard := heardBy(c, n)
			for i := 1; i <= n; i++ {
				check("a majority each", len(heard[i]) == n/2+1 && slices.Contains(heard[i], i), c)
				for j := 1; j < i && n > 2; j++ {
					check("no two the same", !slices.Equal(heard[i], heard[j]), c)
				}
			}
			c, _ = cutRing(hosts, n/2)
			for i, heard := range heardBy(c, n) {
				check("a minority each", len(heard) <= n/2 && slices.Contains(heard, i), c)
			}

			c, _ = cutBridge(hosts, 1)
			all := 0
			for _, heard := range heardBy(c, n) {
				if len(heard) == n {
					all++
				}
			}
			// Two hosts have nothing to bridge.
			check("one hears all", all == 1 || n == 2 && all == 2, c)

			c, on := cutGroups([][]int{{1}, without(hosts, 1)})
			check("the leader is alone: "+on, len(heardBy(c, n)[1]) == 1 && len(c) == 2*(n-1), c)
		}
	}
}
