// Package pemfile reads files in PEM (RFC 7468) and loses nothing in silence: each byte belongs to
// a block that is returned, or is a comment, or [Parse] returns an error with the line. It is the
// only reader of PEM of this repository: encoding/pem skips a block that it cannot read.
//
// Comments are lines outside of blocks. A line that begins with # is a comment whatever follows;
// another line that looks like the boundary or the content of a block is a fault. A byte order mark
// at the beginning of a line is white space, as in files that are the concatenation of others.
package pemfile
