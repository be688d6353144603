// Package znode is the replicated state machine.
package znode
