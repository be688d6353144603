// Command compare measures lockkeeper beside ZooKeeper and etcd, on one machine, in one run, and writes a table in Markdown.
//
//	bench/compare.sh [-rounds 3] [-duration 3s] [-only REGEXP] [-systems lockkeeper,zookeeper,etcd] [-delay 1ms] [-json FILE] [-out FILE]
//
// compare.sh installs what is missing (Debian) and runs it; docs/performance.md says what is measured and how to read the
// table.
//
//	figures.go   the rows of the table: unit and target
//	steps.go     what is run to get them; a step gives one or more figures
//	round.go     one system after the other: start three members, warm them up, take the steps, kill them
//	keeper.go    servers that speak ZooKeeper's protocol, under package bench
//	etcd.go      etcd, under its own client
//	machine.go   the machine that was measured on, and how fast its disk was
//	table.go     medians, spread, ratios
//
// Only one cluster runs at a time. It is a module of its own, so that nobody else depends on etcd's client.
package main
