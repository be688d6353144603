package wire

import "encoding/binary"

// LegacyPassword returns the password that ZooKeeper gives to session id. It is a pure function of
// the id, so it protects nothing: only for sessions taken over from a ZooKeeper
// (docs/protocol/wire.md section 4.4).
func LegacyPassword(id SessionID) [PasswordLen]byte {
	// java.util.Random, seeded with the id and a constant, and its nextBytes.
	const (
		secret     = 0xB3415C00
		multiplier = 0x5DEECE66D
		mask       = 1<<48 - 1
	)
	var p [PasswordLen]byte
	s := (uint64(id) ^ secret ^ multiplier) & mask
	for i := 0; i < PasswordLen; i += 4 {
		s = (s*multiplier + 0xB) & mask
		binary.LittleEndian.PutUint32(p[i:], uint32(s>>16))
	}
	return p
}
