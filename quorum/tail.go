package quorum

// tail keeps the sizes of the newest entries, to say how many of them may stay in the log behind a snapshot.
type tail struct {
	sizes []int64 // a ring
	next  int
	known int
}

func newTail(entries uint64) tail { return tail{sizes: make([]int64, entries)} }

func (t *tail) add(size int) {
	if len(t.sizes) == 0 {
		return
	}
	t.sizes[t.next] = int64(size)
	t.next = (t.next + 1) % len(t.sizes)
	t.known = min(t.known+1, len(t.sizes))
}

// trailingMin entries stay in any case: with fewer, the uncommitted end of a deposed leader's log could reach further back
// than the log of its successor.
const trailingMin = 16

// fitting is how many of the newest entries have together at most so many bytes, trailingMin at least. Of entries that are
// older than those it knows it assumes that they fit: they were kept under the same rule.
func (t *tail) fitting(maxBytes int64) uint64 {
	sum := int64(0)
	for n := range t.known {
		sum += t.sizes[(t.next-1-n+2*len(t.sizes))%len(t.sizes)]
		if sum > maxBytes {
			return max(uint64(n), min(trailingMin, uint64(len(t.sizes))))
		}
	}
	return uint64(len(t.sizes))
}
