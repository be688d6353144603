// Package codec encodes and decodes the frames between members and the records on disk: fixed-width
// big-endian numbers and byte strings, one after the other.
//
// A format is one function that lists its fields. With an encoding Codec it appends them, with a
// decoding one it sets them, so that the two directions cannot differ:
//
//	func (p *Point) code(c *codec.Codec) {
//		c.U64(&p.X, &p.Y)
//		c.Bytes(&p.Name)
//	}
//
// The package does not know what it encodes, it allocates no more than what it decodes has bytes,
// and it has no versions: formats have them.
package codec
