//go:build !linux

package attack

// lowerPriority does nothing where a thread has no priority of its own.
func lowerPriority() {}
