package model

import "unsafe"

// frontier is the states of one level of an exploration, in order. Neighbours differ little, so
// each is kept as the 8-byte words in which it differs from the one before, a tenth of a State.
type frontier struct {
	chunks [][]byte
	length int // states
	last   State
}

const (
	words     = int(unsafe.Sizeof(State{})) / 8
	chunkSize = 1 << 20
	maxDelta  = 9*words + 1
)

// asWords is the memory of a state. It holds numbers only, no pointers.
func (s *State) asWords() *[words]uint64 { return (*[words]uint64)(unsafe.Pointer(s)) }

// push appends a state.
func (f *frontier) push(s *State) {
	n := len(f.chunks)
	if n == 0 || len(f.chunks[n-1])+maxDelta > chunkSize {
		f.chunks = append(f.chunks, make([]byte, 0, chunkSize))
		n++
	}
	b := f.chunks[n-1]
	count := len(b)
	b = append(b, 0)
	old, now := f.last.asWords(), s.asWords()
	for i := range words {
		if d := old[i] ^ now[i]; d != 0 {
			b = append(b, byte(i), byte(d), byte(d>>8), byte(d>>16), byte(d>>24), byte(d>>32), byte(d>>40), byte(d>>48),
				byte(d>>56))
			b[count]++
		}
	}
	f.chunks[n-1] = b
	f.last = *s
	f.length++
}

// drain calls visit with each state, in order, until that returns false. It leaves nothing.
func (f *frontier) drain(visit func(s *State) bool) {
	var s State
	w := s.asWords()
	for i, b := range f.chunks {
		f.chunks[i] = nil
		for len(b) > 0 {
			n := int(b[0])
			b = b[1:]
			for range n {
				w[b[0]] ^= uint64(b[1]) | uint64(b[2])<<8 | uint64(b[3])<<16 | uint64(b[4])<<24 | uint64(b[5])<<32 |
					uint64(b[6])<<40 | uint64(b[7])<<48 | uint64(b[8])<<56
				b = b[9:]
			}
			if !visit(&s) {
				return
			}
		}
	}
}
