// Command locklab plays the stories of the lock lab: `go run ./cmd/jepsen lock-lab` builds and
// starts it. It is a module of its own, because of the client libraries of the systems that it
// compares. docs/lock-lab.md is for its users.
package main
