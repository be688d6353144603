// Package simnet is a TCP network that exists only in memory, for tests that run
// whole clusters inside a testing/synctest bubble. It never does real I/O, and a
// run with the same seed has the same faults at the same times. Begin reading with
// Network in network.go, then pipe.go (one direction of a connection) and faults.go.
//
// A [Network] has hosts with an address each. A [Host] has the two functions that programs take
// their connections from, Listen and Dial; their connections behave as Go's own TCP connections do
// towards the code that uses them: deadlines (os.ErrDeadlineExceeded), half-close, back-pressure,
// ECONNREFUSED, ECONNRESET, EPIPE, net.ErrClosed, *net.TCPAddr addresses.
//
// # Time
//
// Nothing here does real I/O, and nothing blocks but on sync.Cond, channels and timers that are
// made where they are used. So in a bubble every wait is "durably blocked", and virtual time jumps
// from one arrival to the next. One mutex guards a network; it is never held while anything waits.
// Outside of a bubble the package works in real time.
//
// # What is modelled
//
//	writer --> queue (latency, FIFO) --> receive buffer --> reader
//	       <-- room comes back when the reader has read   <--
//
// Each direction of a connection carries at most [Config.BufferBytes] that have
// been written and not been read; then Write blocks. A segment arrives a
// latency and a jitter after it was written, never before an earlier one.
// Dial takes three segments (SYN, SYN-ACK, ACK): it needs both directions.
//
// Faults:
//
//   - [Network.Cut] and [Network.Partition] hold everything back, segments in
//     flight included, as TCP does, which retransmits. Neither side is notified.
//     [Network.Heal] delivers it, at the next retransmission (Config.RTO).
//     A sender that got nothing across for Config.GiveUp has its connection
//     broken with ETIMEDOUT. Acknowledgements travel on the opposite direction:
//     while that one is cut, a writer gets no room back.
//   - [Network.Reset] is a power cut and an instant reboot: the host's connections and listeners
//     vanish silently, and a peer gets a reset when it next sends something, or probes
//     (Config.KeepAlive). The old *Host has ended; Network.Host returns the new one, so goroutines
//     that still run for the old program cannot reach the network any more.
//   - [Network.Kill] is kill -9: as Reset, but the operating system lives and
//     closes the connections, so that the peers see EOF or a reset.
//   - [Network.Break] resets the connections between two hosts, as a firewall
//     that restarted would.
//
// Not modelled: bandwidth, loss short of a cut, DNS that changes, SO_LINGER, UDP.
//
// # Determinism
//
// The jitter of the n-th segment of the n-th connection between two hosts is a function of
// Config.Seed alone. Everything else that happens at one instant of virtual time happens in the
// order in which the Go scheduler runs the goroutines, which no seed controls; a run with the same
// seed gets the same faults at the same times, not the same interleaving.
package simnet
