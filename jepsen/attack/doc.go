// Package attack plays requests of somebody without any right at the ports of a cluster of real
// processes, and measures their effect on lock users beside it. It never uses a client library for
// the attacker: each byte is its own. Begin with Attack, an entry of the table All (requests.go,
// buffers.go, floods.go, peers.go, others.go), and Run; then Play (an attack under way), user (a
// bystander) and Result. An attack that was not played as it was meant to be fails, because it
// proves nothing. docs/attack.md has the criteria and the results.
package attack
