// Command jepsen puts clusters through faults and checks what their clients saw.
//
//	go run ./cmd/jepsen help
package main
