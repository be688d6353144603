// Package bench puts load on ZooKeeper-compatible servers and measures throughput, latency, errors
// and, for servers on this machine, CPU time and memory. `lockkeeper bench` runs it. It never
// imports a package of the server except wire, and knows nothing of the server that it measures.
// Begin reading with Run in bench.go, then the table in workloads.go; measure.go has the closed
// loop and open.go the open one, which jepsen/compare uses for etcd, too. The clients speak the
// protocol themselves (conn.go), because the machine that runs the servers mostly runs the load,
// too, and a library would take its CPU.
package bench
