// Package bench puts load on ZooKeeper-compatible servers and measures throughput,
// latency, errors and, for servers on this machine, CPU time and memory. It is what
// `lockkeeper bench` runs. It never imports a package of the server except wire, and
// it knows nothing of the server that it measures. Begin reading with Run in bench.go,
// then the table in workloads.go.
//
// It speaks the wire protocol itself, over connections of its own (conn.go), for
// the machine that carries the servers mostly carries the load, too: a client is
// one goroutine that writes what it may have in flight with one system call and
// reads what has come with another. It knows nothing of any server.
//
//	Run(ctx, Config) ---> a Workload of the table in workloads.go ---> Result
//	                          |  sets up, works for Config.Duration, cleans up
//	                          v
//	                      Recorder: one per client, merged in the end
//
// Workloads that stop and start servers (failover, boot, znodes with a restart)
// do so with the command line or the process that Config names.
package bench
