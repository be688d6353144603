// Package metrics is the list of what a member measures, in the form in which the four-letter word
// mntr, the HTTP port and Prometheus have it. It measures nothing itself: package server makes a
// List of what sessions, the replica and itself have counted, each time that one is read.
//
// A metric that ZooKeeper has keeps ZooKeeper's name and type (zookeeper.go). All others are
// lockkeeper's own, and Prometheus has them as lockkeeper_NAME. The unit of a metric is in its help
// line; names of lockkeeper's own end in it.
//
// Begin with Metric and List.Lines.
package metrics
