//go:build !linux

package main

// coarseTimers is for Linux.
func coarseTimers() {}
