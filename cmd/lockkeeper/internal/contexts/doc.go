// Package contexts reads and changes a user's file of contexts: names of clusters, with their
// members and the files that a client needs there. Its caller is package main, in one goroutine.
// Begin reading with File in file.go, the only file.
//
// The file is text. Its keys are the names of flags; secrets are in files that it names:
//
//	current = prod
//
//	[prod]
//	servers = zoo1:2181,zoo2:2181,zoo3:2181
//	tls-ca = ca.pem
//	auth-file = /home/anna/.prod-auth
//
// A line that begins with # is a comment. Relative names of files begin at the directory of the
// file. A change keeps the other lines as they are.
package contexts
