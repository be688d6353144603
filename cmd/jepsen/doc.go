// Command jepsen puts clusters through faults and checks the histories of their clients.
//
//	go run ./cmd/jepsen help
package main
