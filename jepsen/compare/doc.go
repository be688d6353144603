// Command compare measures lockkeeper beside ZooKeeper, etcd and the limit (package floor), in turn
// and on one machine, and writes a table in Markdown. It never runs two clusters at a time. Begin
// reading with steps.go, the figures, and round.go, the method; docs/performance.md says how to
// read the table.
//
//	jepsen/compare.sh [-rounds 3] [-duration 3s] [-only REGEXP]
//	                 [-systems lockkeeper,zookeeper,etcd,limit] [-delay 1ms] [-json FILE] [-out FILE]
//
// compare.sh installs missing packages (Debian) and runs it. It is a module of its own, so that
// nobody else depends on etcd's client.
package main
