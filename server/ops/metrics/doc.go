// Package metrics is the list of a member's measurements, in the form of the four-letter word mntr,
// the HTTP port and Prometheus. It measures nothing itself: package server makes a List of the
// counters of sessions, the replica and itself for each reading.
//
// A metric that ZooKeeper has keeps ZooKeeper's name and type (zookeeper.go). All others are
// lockkeeper's own, and Prometheus has them as lockkeeper_NAME. The unit of a metric is in its help
// line; names of lockkeeper's own end in it.
//
// Begin with Metric and List.Lines.
package metrics
