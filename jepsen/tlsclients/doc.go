// Package tlsclients connects unmodified clients with TLS: kazoo, ZooKeeper's own command line
// client and Curator over Netty, and go-zookeeper with a dialer, to lockkeeper and, to compare who
// they are told to be, to ZooKeeper. It has tests only. The C client of Debian is built without
// SSL, so it is not among them.
package tlsclients
