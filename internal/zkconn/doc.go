// Package zkconn is a connection to the client port of a server, frame by frame and without a
// client library, for programs that have to see every frame in its order: the load generator, the
// workloads, the attacks and the differential test. It never pings, connects again, or acts on a
// reply. Begin reading with Conn.
package zkconn
