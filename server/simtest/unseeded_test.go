//go:build !simruntime

package simtest

// runtimeSeeded says that chance in the Go runtime follows from the seed. It does not here: see
// package jepsen/sim.
const runtimeSeeded = false

func seedRuntime(uint64) {}
