package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"lockkeeper/bench"
	"lockkeeper/jepsen"
	"lockkeeper/wire"
)

// The table of scale: many idle sessions, and many nodes.

// snapshotWrites of snapshotWriteBytes each make a snapshot due in all members.
const snapshotWrites, snapshotWriteBytes = 120_000, 1000

// scaleFigure is a row.
type scaleFigure struct{ name, unit string }

// scaleFigures are the rows, in their order.
func scaleFigures(sessions, nodes int) []scaleFigure {
	s, n := number(float64(sessions))+" idle sessions", number(float64(nodes))+" nodes"
	return []scaleFigure{
		{s + ", time to open them", "s"},
		{s + ", memory of all members", "MB"},
		{s + ", CPU of all members", "% of a core"},
		{s + ", from their close until all are gone", "s"},
		{s + ", from the cut of their connections until all are gone", "s"},
		{n + ", time to make them", "s"},
		{n + ", memory of a member", "MB"},
		{n + ", size of a snapshot", "MB"},
		{n + ", time to write it", "s"},
		{n + ", restart of a follower", "s"},
	}
}

// The indexes of scaleFigures: the first of sessions, and of nodes.
const (
	scaleSessions = 0
	scaleNodes    = 5
)

// runScale measures one system after the other.
func runScale(ctx context.Context, r *ownRun) (string, error) {
	results := map[string][]float64{}
	for _, s := range r.systems {
		for _, part := range []struct {
			name    string
			first   int
			measure func(context.Context, *keeper) ([]float64, error)
		}{{"sessions", scaleSessions, r.scaleSessions}, {"nodes", scaleNodes, r.scaleNodes}} {
			if !r.only.MatchString(part.name) {
				continue
			}
			// Both know the key; lockkeeper's default is 16,384 connections of a member.
			cfg := jepsen.ClusterConfig{Members: members, Extra: []string{fmt.Sprintf("maxCnxns=%d", r.sessions)}}
			err := r.with(ctx, s, cfg, func(k *keeper) error {
				found, err := part.measure(ctx, k)
				r.say("%s, %s: %.2f", s.name, part.name, found)
				if results[s.name] == nil {
					results[s.name] = make([]float64, len(scaleFigures(0, 0)))
				}
				copy(results[s.name][part.first:], found)
				return err
			})
			if err != nil {
				return "", err
			}
		}
	}
	return scaleTable(scaleFigures(r.sessions, r.nodes), results), nil
}

// scaleSessions opens idle sessions twice: they are closed, and they expire.
func (r *ownRun) scaleSessions(ctx context.Context, k *keeper) ([]float64, error) {
	before, err := k.usage()
	if err != nil {
		return nil, err
	}
	idle, err := r.openIdle(ctx, k.Servers(), r.sessions, 3*r.duration)
	if err != nil {
		return nil, err
	}
	found := []float64{idle.took.Seconds()}
	r.say("opened in %v", idle.took)
	if err := settle(ctx, k.pids()); err != nil {
		return nil, err
	}
	after, err := k.usage()
	if err != nil {
		return nil, err
	}
	jepsen.Sleep(ctx, r.duration) // all ping once in a third of their timeout
	later, err := k.usage()
	if err != nil {
		return nil, err
	}
	found = append(found, float64(after.Resident-before.Resident)/1e6,
		100*(later.CPU-after.CPU).Seconds()/r.duration.Seconds())
	began := time.Now()
	if err := idle.end("close"); err != nil {
		return nil, err
	}
	gone, err := k.awaitNoSessions(ctx, began)
	if err != nil {
		return nil, err
	}
	found = append(found, gone.Seconds())
	if idle, err = r.openIdle(ctx, k.Servers(), r.sessions, 3*r.duration); err != nil {
		return nil, err
	}
	began = time.Now()
	if err := idle.end("abandon"); err != nil {
		return nil, err
	}
	gone, err = k.awaitNoSessions(ctx, began)
	return append(found, gone.Seconds()), err
}

// awaitNoSessions waits until no member knows a session.
func (k *keeper) awaitNoSessions(ctx context.Context, began time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	err := jepsen.Poll(ctx, 20*time.Millisecond, func() error {
		for _, m := range k.Members() {
			text, err := jepsen.FourLetter(ctx, m.ClientAddr, "mntr")
			if err != nil {
				return err
			}
			if !strings.Contains(text, "zk_global_sessions\t0\n") {
				return fmt.Errorf("%s still has sessions", m)
			}
		}
		return nil
	})
	return time.Since(began), err
}

// scaleNodes makes many nodes, has a snapshot taken, and starts a follower again.
func (r *ownRun) scaleNodes(ctx context.Context, k *keeper) ([]float64, error) {
	before, err := k.usage()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := r.fill(ctx, k, r.nodes); err != nil {
		return nil, err
	}
	found := []float64{time.Since(began).Seconds()}
	if err := settle(ctx, k.pids()); err != nil {
		return nil, err
	}
	after, err := k.usage()
	if err != nil {
		return nil, err
	}
	found = append(found, float64(after.Resident-before.Resident)/members/1e6)
	leads, err := k.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	follower := k.Members()[0]
	if follower == leads {
		follower = k.Members()[1]
	}
	size, took, err := nextSnapshot(ctx, follower.DataDir(), func() error {
		return bench.Send(ctx, leads.ClientAddr, 1+snapshotWrites, func(i int) (wire.Op, wire.Record) {
			if i == 0 {
				return wire.OpCreate, &wire.CreateRequest{Path: "/scale", ACL: wire.OpenACL}
			}
			return wire.OpSetData, &wire.SetDataRequest{Path: "/scale", Data: make([]byte, snapshotWriteBytes), Version: -1}
		})
	})
	if err != nil {
		return nil, err
	}
	found = append(found, float64(size)/1e6, took.Seconds())
	if err := follower.Kill(); err != nil {
		return nil, err
	}
	began = time.Now()
	err = follower.Restart(ctx)
	return append(found, time.Since(began).Seconds()), err
}

// newestSnapshot finds the newest file of a snapshot in a data directory, of lockkeeper or of
// ZooKeeper, by the name that it has when it is finished; "" if there is none.
func newestSnapshot(dir string) (newest string) {
	var modified time.Time
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "state.bin" && !strings.HasPrefix(d.Name(), "snapshot.") {
			return nil // also if it has gone meanwhile
		}
		if info, err := d.Info(); err == nil && info.ModTime().After(modified) {
			newest, modified = strings.Replace(path, unfinished, "/", 1), info.ModTime()
		}
		return nil
	})
	return newest
}

// unfinished is how the folder of a snapshot ends that lockkeeper has not finished.
const unfinished = ".tmp/"

// statSnapshot looks at the file of a snapshot, which may not be finished.
func statSnapshot(path string) (fs.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(path) + unfinished + filepath.Base(path))
	}
	return info, err
}

// nextSnapshot has load make a snapshot due, and returns its size and the time from the moment when
// its file is first seen until the last byte is written.
func nextSnapshot(ctx context.Context, dir string, load func() error) (size int64, took time.Duration, err error) {
	const finished = 3 * time.Second // for so long a finished file has not grown
	before := newestSnapshot(dir)
	loaded := make(chan error, 1)
	go func() { loaded <- load() }()
	ctx, cancel := context.WithTimeout(ctx, stepPatience)
	defer cancel()
	path, seen := "", time.Time{}
	err = jepsen.Poll(ctx, 2*time.Millisecond, func() error {
		if path == "" {
			if found := newestSnapshot(dir); found != before {
				path, seen = found, time.Now()
			}
			return errors.New("no snapshot is begun")
		}
		info, err := statSnapshot(path)
		if err != nil || time.Since(info.ModTime()) < finished {
			return errors.Join(errors.New("the snapshot is not finished"), err)
		}
		size, took = info.Size(), max(0, info.ModTime().Sub(seen))
		return nil
	})
	return size, took, errors.Join(err, <-loaded)
}

// pids are the members' processes.
func (k *keeper) pids() (pids []int) {
	for _, m := range k.Members() {
		pids = append(pids, bench.FindProcess(m.ClientAddr))
	}
	return pids
}

// usage is the CPU time and memory of all members together.
func (k *keeper) usage() (total bench.Usage, err error) {
	for _, pid := range k.pids() {
		u, err := bench.UsageOf(pid)
		if err != nil {
			return total, err
		}
		total.CPU += u.CPU
		total.Resident += u.Resident
	}
	return total, nil
}

// scaleTable is the table of the results, by system.
func scaleTable(figures []scaleFigure, results map[string][]float64) string {
	var rows [][]string
	for i, f := range figures {
		var values [2]float64
		for j, name := range []string{"lockkeeper", "zookeeper"} {
			if found := results[name]; found != nil {
				values[j] = found[i]
			}
		}
		ours, theirs := values[0], values[1]
		rows = append(rows, []string{f.name, f.unit, orNone(ours != 0, number(ours)), orNone(theirs != 0, number(theirs)),
			orNone(ours != 0 && theirs != 0, fmt.Sprintf("%.2fx", ours/theirs))})
	}
	return markdown([]string{"figure", "", "lockkeeper", "ZooKeeper", "ratio"}, rows)
}
