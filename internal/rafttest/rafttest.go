package rafttest

import (
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// Servers has those with these numbers as voters; behind a dot as others.
func Servers(numbers string) (list []raft.Server) {
	suffrage := raft.Voter
	for _, n := range numbers {
		if n == '.' {
			suffrage = raft.Nonvoter
			continue
		}
		id := ServerID(int(n - '0'))
		list = append(list, raft.Server{ID: id, Address: raft.ServerAddress(id), Suffrage: suffrage})
	}
	return list
}

// Entries are those with the indexes from first to last, of term 5.
func Entries(first, last uint64) (list []*raft.Log) {
	for i := first; i <= last; i++ {
		list = append(list, &raft.Log{Index: i, Term: 5, Data: []byte{byte(i)}})
	}
	return list
}

// Begin calls f in a goroutine, and returns a function that tells whether it has returned, and its
// result.
func Begin(f func() error) func() (err error, returned bool) {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return func() (error, bool) {
		synctest.Wait()
		select {
		case err := <-c:
			return err, true
		default:
			return nil, false
		}
	}
}

// Work has a log work for a while: store appends entries with data of these sizes, cut removes
// those from first to last. A log in segments of 20 KiB has several then, of which the first have
// been removed; a file of raft-boltdb inner pages, values that take several pages, and free pages.
func Work(store func(sizes ...int), cut func(first, last uint64)) {
	last := uint64(0)
	add := func(sizes ...int) {
		store(sizes...)
		last += uint64(len(sizes))
	}
	for i := range 300 {
		add(10+i, 150)
		if i%100 == 40 {
			add(9_000)
		}
		if i == 200 {
			cut(1, 150)
		}
	}
	cut(last-5, last)
	store(100)
}
