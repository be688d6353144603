// Package words answers ZooKeeper's four-letter words, on the client port: the text of srvr, mntr,
// cons and the others, as ZooKeeper writes it (docs/protocol/admin.md). It reads everything from
// [ops.Member]; package server reads the word from the connection, and sends the answer.
package words
