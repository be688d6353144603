// Package connlimit bounds the connections to a port: how many there are, of all hosts and of one,
// and how many begin in a time. Ports for clients, HTTP and members use it, each with its own
// settings, counters and messages. It knows no socket.
package connlimit
