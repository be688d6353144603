// Package locktest runs lockkeeper inside of Go tests: one server, or a cluster of members that the
// test can kill, cut off and freeze while it holds locks. It never starts a process, and it is not
// for production. Begin reading with Server and Start.
//
//	func TestNightly(t *testing.T) {
//		addr := locktest.Server(t) // host:port, for any ZooKeeper client
//		...
//	}
//
//	func TestNightlySurvivesItsLeader(t *testing.T) {
//		c := locktest.Start(t, 3)
//		conn, err := recipes.Connect(recipes.Config{Servers: c.Servers()})
//		...
//		c.Kill(c.Leader())
//		...
//	}
//
// Servers run in the process of the test, listen on ports of 127.0.0.1 that the system chooses,
// keep their data in directories of the test, log nothing, and are gone when the test ends. A
// single server is ready after some milliseconds, a cluster after its first election, which takes
// up to two seconds.
//
// # Real and simulated
//
// The servers are the ones of cmd/lockkeeper, with their files and client ports. The network
// between the members is simulated, so that it can be cut. A killed member has lost nothing that it
// had written, as after kill -9; power cuts and damaged disks are for the simulations
// (docs/simulation.md) and for real processes (docs/jepsen.md).
package locktest
