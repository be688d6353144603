//go:build !simruntime

package simtest

import (
	"testing"
	"testing/cryptotest"
)

// runtimeSeeded says that chance in the Go runtime follows from the seed. It does not here: see
// package jepsen/sim.
const runtimeSeeded = false

// seedRuntime makes the random bytes of package crypto/rand follow from the seed.
func seedRuntime(t *testing.T, seed uint64) { cryptotest.SetGlobalRandom(t, seed) }
