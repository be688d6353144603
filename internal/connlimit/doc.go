// Package connlimit bounds the connections to a port: their number, of all hosts and of one, and
// the rate at which they begin. Ports for clients, HTTP and members use it, each with its own
// settings, counters and messages. It knows no socket.
package connlimit
