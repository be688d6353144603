package main

import (
	"context"
	"fmt"
	"strings"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
)

// The table of sizes: clusters of several sizes, with clients at the leader only and spread over
// all members.

// size is a cluster in this table.
type size struct{ voters, observers int }

func (s size) String() string {
	if s.observers > 0 {
		return fmt.Sprintf("%d + %d observers", s.voters, s.observers)
	}
	return fmt.Sprint(s.voters)
}

func sizes() []size { return []size{{1, 0}, {3, 0}, {5, 0}, {7, 0}, {3, 2}} }

// sizeClients is the number of clients.
const sizeClients = 64

// sizeLoad is a load in this table.
type sizeLoad struct {
	workload string
	spread   bool // over all members; else at the leader
}

func sizeLoads() []sizeLoad {
	return []sizeLoad{{"write", false}, {"write", true}, {"read", false}, {"read", true}}
}

// sizeKey names a cell.
type sizeKey struct {
	size   size
	load   sizeLoad
	system string
}

// runSizes measures all sizes, of one system after the other.
func runSizes(ctx context.Context, r *ownRun) (string, error) {
	var list []size
	for _, s := range sizes() {
		if r.only.MatchString(s.String()) {
			list = append(list, s)
		}
	}
	results := map[sizeKey]*bench.Result{}
	for _, of := range list {
		for _, s := range r.systems {
			cfg := jepsen.ClusterConfig{Members: of.voters + of.observers, Observers: of.observers}
			err := r.with(ctx, s, cfg, func(k *keeper) error {
				for _, l := range sizeLoads() {
					res, err := r.size(ctx, k, s, l)
					if err != nil {
						return err
					}
					r.say("%s, %v members: %+v: %.0f/s", s.name, of, l, res.PerSecond)
					results[sizeKey{of, l, s.name}] = res
				}
				return nil
			})
			if err != nil {
				return "", err
			}
		}
	}
	return sizeTable(list, results), nil
}

// size measures one load. A JVM is warmed up with the load itself.
func (r *ownRun) size(ctx context.Context, k *keeper, s *system, l sizeLoad) (*bench.Result, error) {
	leads, err := k.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	servers := []string{leads.ClientAddr}
	if l.spread {
		servers = inOrder(strings.Split(k.Servers(), ","), leads.ClientAddr, leader)
	}
	cfg := bench.Config{Workload: l.workload, Servers: servers, Clients: sizeClients, Duration: r.duration}
	if s.jit {
		cfg.WarmUp = r.warmUp / 2
	}
	res, err := bench.Run(ctx, cfg)
	if err == nil {
		err = worthless(res)
	}
	return res, err
}

// sizeTable is the table of the results.
func sizeTable(list []size, results map[sizeKey]*bench.Result) string {
	head := []string{"members", fmt.Sprintf("%d clients", sizeClients), "lockkeeper, at the leader, 1/s", "spread, 1/s",
		"ZooKeeper, at the leader, 1/s", "spread, 1/s", "ratio at the leader", "ratio spread"}
	var rows [][]string
	for _, of := range list {
		for _, workload := range []string{"write", "read"} {
			cells := []string{of.String(), workload}
			var rates []float64 // by system, then by load
			for _, system := range []string{"lockkeeper", "zookeeper"} {
				for _, spread := range []bool{false, true} {
					rate := 0.0
					if res := results[sizeKey{of, sizeLoad{workload, spread}, system}]; res != nil {
						rate = res.PerSecond
					}
					rates = append(rates, rate)
				}
			}
			for _, rate := range rates {
				cells = append(cells, orNone(rate != 0, number(rate)))
			}
			for i, other := range rates[2:] {
				cells = append(cells, orNone(rates[i] != 0 && other != 0, times(rates[i]/other)))
			}
			rows = append(rows, cells)
		}
	}
	return markdown(head, rows)
}

// orNone is a cell that may have no value.
func orNone(known bool, text string) string {
	if known {
		return text
	}
	return "–"
}
