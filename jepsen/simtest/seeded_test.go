//go:build simruntime

package simtest

import (
	"testing"
	"testing/cryptotest"
	_ "unsafe" // for go:linkname
)

// runtimeSeeded says that chance in the Go runtime follows from the seed: this binary was built
// with the standard library of package jepsen/sim.
const runtimeSeeded = true

//go:linkname bubbleSeed runtime.bubbleSeed
var bubbleSeed uint64

// seedRuntime makes chance in bubbles follow from the seed: which case of a select runs, which of
// two timers of one instant fires first, where a map's iteration begins, the top level functions of
// math/rand, and the random bytes of package crypto/rand.
func seedRuntime(t *testing.T, seed uint64) {
	cryptotest.SetGlobalRandom(t, seed)
	bubbleSeed = seed*0x9e3779b97f4a7c15 | 1
}
