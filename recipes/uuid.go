package recipes

import (
	"crypto/rand"
	"encoding/hex"
)

// newUUID returns a random UUID (version 4) as 32 hexadecimal digits: kazoo's
// uuid4().hex.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])         // never fails
	u[6] = u[6]&0x0f | 0x40 // version 4
	u[8] = u[8]&0x3f | 0x80 // RFC 9562 variant
	return hex.EncodeToString(u[:])
}
