// Package freeport hands out loopback ports that nobody listens on, each once per process.
//
// They lie below the range from which the kernel takes the ports of outgoing connections (32768 and
// up on Linux): a server that is killed and started again must get its old port back, and a
// client's connection must not have taken it in the meantime.
package freeport
