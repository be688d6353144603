package simdisk

import (
	"maps"
	"slices"
)

// contents are what the stores of a disk hold: as their readers see them, or as a power cut would
// leave them.
type contents struct {
	values    map[string][]byte
	numbers   map[string]uint64
	snapshots []snapshot // the oldest state first; never changed in place
}

func newContents() contents {
	return contents{values: make(map[string][]byte), numbers: make(map[string]uint64)}
}

// clone copies the maps; what they point to is never changed.
func (c *contents) clone() contents {
	return contents{values: maps.Clone(c.values), numbers: maps.Clone(c.numbers), snapshots: slices.Clone(c.snapshots)}
}
