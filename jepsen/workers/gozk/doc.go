// Command gozk is a client process of the jepsen tests: the unmodified
// library github.com/go-zookeeper/zk, with its own Lock (the recipe zklock)
// and with this module's package recipes above it (the recipe mutex).
//
//	gozk HARNESS NAME SERVERS SESSION_TIMEOUT_MS
//
// It takes commands of the harness over TCP; the protocol is described in the documentation of the
// package lockkeeper/jepsen.
package main
