// Package sasl is the server's side of SASL with the mechanism DIGEST-MD5 (RFC 2831), as ZooKeeper
// has it for its own clients, kazoo and the C client. It also reads the files that say who
// the users are: a JAAS file of ZooKeeper's, and a file of hashed entries. It has no goroutine, no
// clock and no I/O but for random numbers. Begin with Server in digestmd5.go.
//
//	client                          server
//	empty token                 ->
//	                            <-  realm, nonce                      the challenge
//	user, cnonce, response      ->
//	                            <-  rspauth                           or an error
//
// The response is a hash of HA1 (a hash of user, realm and password), of both nonces and of the
// name of the service; rspauth shows the client that the server knows HA1, too. So the password
// does not travel, and a recorded response is worth nothing on another connection. It can be
// guessed from a recording, as MD5 is fast; and a client that has HA1 can log in without the
// password. Only TLS helps against the first, only the permissions of the file against the second.
package sasl
