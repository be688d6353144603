// Command compare measures lockkeeper beside ZooKeeper, etcd and the limit (package floor), in turn
// and on one machine, and writes tables in Markdown and a picture. It never runs two clusters at a
// time. Begin reading with steps.go, the figures, and round.go, the method; docs/performance.md
// says how to read the tables.
//
//	jepsen/compare.sh [-rounds 3] [-duration 2s] [-only REGEXP] [-systems lockkeeper,zookeeper,...]
//	                 [-delay 1ms] [-log-disk DIR] [-json FILE] [-out FILE] [-pictures DIR]
//	jepsen/compare.sh -table pauses|sizes|scale [-duration 10m] [-only REGEXP] [-out FILE]
//
// openloop.go has the writes at given times, picture.go draws them, settings.go has the systems
// with recommended settings. own.go has the tables of -table: pauses.go, sizes.go and scale.go.
//
// compare.sh installs missing packages (Debian) and runs it. It is a module of its own, so that
// nobody else depends on etcd's client.
package main
