//go:build !linux

package main

import "context"

// fitProcessors is for Linux.
func fitProcessors(context.Context) {}
