package simdisk

import (
	"bytes"
	"maps"
	"slices"

	"github.com/hashicorp/raft"
)

// contents are the bytes of a disk: as its readers see them, or as a power cut would leave them.
type contents struct {
	low, high uint64 // of the log; both 0 when it is empty
	logs      map[uint64]raft.Log
	values    map[string][]byte
	numbers   map[string]uint64
	snapshots []snapshot // the oldest state first; never changed in place
}

func newContents() contents {
	return contents{logs: make(map[uint64]raft.Log), values: make(map[string][]byte), numbers: make(map[string]uint64)}
}

// clone copies the maps; what they point to is never changed.
func (c *contents) clone() contents {
	return contents{
		low: c.low, high: c.high,
		logs:      maps.Clone(c.logs),
		values:    maps.Clone(c.values),
		numbers:   maps.Clone(c.numbers),
		snapshots: slices.Clone(c.snapshots),
	}
}

func (c *contents) store(l raft.Log) {
	c.logs[l.Index] = l
	if c.low == 0 {
		c.low = l.Index
	}
	c.low, c.high = min(c.low, l.Index), max(c.high, l.Index)
}

func (c *contents) delete(first, last uint64) {
	for i := max(first, c.low); i <= min(last, c.high); i++ {
		delete(c.logs, i)
	}
	switch {
	case len(c.logs) == 0:
		c.low, c.high = 0, 0
	case first <= c.low:
		c.low = max(c.low, last+1)
	case last >= c.high:
		c.high = min(c.high, first-1)
	}
}

func copyLog(l *raft.Log) raft.Log {
	c := *l
	c.Data, c.Extensions = bytes.Clone(l.Data), bytes.Clone(l.Extensions)
	return c
}
