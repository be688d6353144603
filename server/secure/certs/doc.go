// Package certs makes the certificates and the secret of a cluster, in files that a zoo.cfg names
// as they are. It keeps them in one directory of a machine that is no member:
//
//	DIR/authority/ca.key     private key and certificate of the newest authority
//	DIR/authority/ca.pem     the certificates of all authorities that are trusted, the newest first
//	DIR/NAME/tls.pem         private key and certificate of a holder, a member or a client
//	DIR/NAME/ca.pem          a copy of authority/ca.pem
//	DIR/member-N/peer.secret the secret of the cluster
//
// A holder gets its directory DIR/NAME and nothing else. A file is written whole: under another
// name, with an fsync, and a rename. [Dir.Issue] replaces none; [Dir.Renew] and [Dir.Rotate] do.
//
// An authority is replaced without a pause: [Dir.Rotate] makes the new one and has everybody trust
// both, [Dir.Renew] issues all certificates anew, [Dir.Retire] ends the trust in the old one. After
// each step the directories go to their holders.
package certs
