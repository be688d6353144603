// Package jepsen starts clusters of real server processes and breaks them from outside: it cuts
// their network, kills, stops and starts members, fails their disks, and starts clients of
// unmodified libraries. It never imports the server: it only knows its command line, zoo.cfg, the
// client protocol and the four-letter words, so the same tests run against ZooKeeper. Begin with
// Cluster and Member; then Links (Network or Proxies), Disks, Worker, and History: its comment says
// why an overlap of two lock holders in it is a real one. The clients' operations and the checkers
// are in jepsen/workload, runs with faults are in jepsen/run.
package jepsen
