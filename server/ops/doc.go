// Package ops shows a member to people and programs, and lets operators act on it. A surface reads
// the interface [Member], which package server implements, and renders it:
//
//	           Figures (one snapshot of all counts)   Cluster (reports of all members)
//	               |                                      |
//	words      four-letter words: srvr, mntr, cons, ...   mbrs
//	metrics    Prometheus: Figures.Metrics with names
//	admin      /commands: ZooKeeper's AdminServer
//	console    /api/v1 and the page                       /api/v1/cluster
//	Endpoints  /live, /ready, /stoppable, /leader         /members
//
// All HTTP comes through package door, which knows who sends a request; package audit records the
// acts. The surfaces below (words, admin, console) import this package; it imports none of them.
// Package server opens the ports and puts the surfaces together.
//
// Begin with [Member] and [Figures]. A new figure is a field of Figures, filled in by server, and a
// line in Figures.Metrics; docs/metrics.md follows from that.
package ops
